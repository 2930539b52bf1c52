"""The experiment file: schema, loading, checks, messages with file and line.

Nothing is imported here: a command that needs no experiment file must not pay for pydantic and
omegaconf. Callers import ``orchestrator.spec.load`` where they load a file.
"""
