"""The command line: one small module per verb, no logic of its own.

Verbs import what they need when they run, so that ``--help`` and ``status`` start fast
(``scripts/bench/bench_startup.py``). ``tests/orchestrator/test_cli_docs.py`` fails when a verb or an
option is not in ``docs/cli.md``.
"""
