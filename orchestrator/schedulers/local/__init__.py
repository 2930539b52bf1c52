"""The embedded scheduler: a real queue for one machine without Slurm, in Slurm's words and with
its rules.

No daemon: state lies in ``<home>/local/queue.db``; each running job has one detached shepherd
process (:mod:`.shepherd`); any command and any shepherd that ends does the scheduling
(:mod:`.passes`). This file imports nothing, since every shepherd imports it. ``docs/local-
scheduler.md`` says how it behaves, ``tests/orchestrator/test_schedulers.py`` and
``test_local_*.py`` hold it to that.
"""
