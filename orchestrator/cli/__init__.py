"""The command line: one small module per verb, no logic of its own.

``main`` knows the verbs by name and loads the one that is asked for; a verb imports what it needs when
it runs, so that ``--help`` and ``status`` start fast (``scripts/bench/bench_startup.py``).
``tests/orchestrator/test_cli.py`` fails when a verb or an option is not in ``docs/cli.md``.
"""
