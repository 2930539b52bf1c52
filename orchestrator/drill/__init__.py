"""Rehearsals: a run of an experiment with faults done to it on purpose, and figures of how it came through.

``asked`` reads what a person typed, ``planning`` makes a plan of it, ``driving`` submits and follows the
run, ``outside`` does the harm that no rank can do to itself, ``figures`` says what came of it (pure).
``docs/drill.md``, ``tests/orchestrator/test_drill.py``.
"""
