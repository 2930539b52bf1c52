"""The error family: what happened, and the next step.

Raised where the fault is known, shown once, at the rim (``orchestrator.cli``). Every subclass names
the exit code the command line ends with; ``docs/cli.md`` lists them.
"""

from __future__ import annotations


class TrainmasterError(Exception):
    """A failure a person can act on.

    ``message`` says what happened and where, ``hint`` the next step (empty: none is known).
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  next: {self.hint}" if self.hint else self.message


class UsageError(TrainmasterError):
    """The command line itself is wrong."""

    exit_code = 2


class SpecError(TrainmasterError):
    """The experiment file or clusters file is wrong; carries every fault found."""

    exit_code = 3

    def __init__(self, message: str, *, hint: str = "", faults: tuple[object, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.faults = faults


class SchedulerError(TrainmasterError):
    """The scheduler could not do what was asked."""

    exit_code = 4


class SchedulerUnreachable(SchedulerError):
    """No answer: nothing may be concluded from it (rule 6: UNKNOWN, never FAILED)."""


class SubmissionRejected(SchedulerError):
    """The scheduler read the request and definitely refused it; no job exists."""


class SubmissionDeferred(SchedulerError):
    """A limit on queued jobs is reached: nothing is wrong, ask again later."""


class SubmissionUncertain(SchedulerError):
    """The answer was lost: a job may or may not exist. Look the token up before trying again."""


class StorageError(TrainmasterError):
    """A file could not be written or read (disk full, permissions, gone)."""

    exit_code = 5


class LedgerError(TrainmasterError):
    """The ledger cannot be used as it is (locked, read-only, newer version, corrupt)."""

    exit_code = 6


class NotFound(TrainmasterError):
    """No such run, stage, attempt or cluster."""

    exit_code = 7


class LockBusy(TrainmasterError):
    """Another process holds the lock and is alive; nothing was changed."""

    exit_code = 8
