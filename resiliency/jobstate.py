"""What a scheduler says about a job, in Slurm's words, and the named sets of its states.

Source: "JOB STATE CODES" of squeue(1) and sacct(1), Slurm 22.05 to 24.11. Every backend answers in
these words; ``tests/resiliency/test_jobstate.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

PENDING: Final = frozenset(
    {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "CONFIGURING"}
)
ACTIVE: Final = frozenset(
    {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
)
ENDED: Final = frozenset(
    {
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "TIMEOUT",
        "PREEMPTED",
        "NODE_FAIL",
        "BOOT_FAIL",
        "OUT_OF_MEMORY",
        "DEADLINE",
        "REVOKED",
    }
)
#: Ours: the scheduler, asked successfully, no longer knows the job, and accounting does not either.
GONE: Final = "GONE"
UNKNOWN: Final = "UNKNOWN"


def normalise(text: str) -> str:
    """``CANCELLED by 1000`` → ``CANCELLED``, ``cancelled+`` → ``CANCELLED``; any other word → UNKNOWN."""
    words = text.strip().upper().rstrip("+").split()
    word = words[0].rstrip("+") if words else ""
    if word in PENDING or word in ACTIVE or word in ENDED or word == GONE:
        return word
    return UNKNOWN


@dataclass(frozen=True)
class JobRecord:
    """One allocation as a scheduler reports it (one row of ``sacct -D``).

    Times are Unix seconds, None when the scheduler did not say. ``exit_code`` and ``signal`` are the two
    halves of Slurm's ``ExitCode``; None: not reported. ``restart_count`` is 0 for the first run.
    ``held``: pending and will not start until somebody releases it.
    """

    job_id: str
    restart_count: int
    state: str
    name: str = ""
    comment: str = ""
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    nodes: str = ""
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    cancelled_by: str | None = None
    held: bool = False

    @property
    def ended(self) -> bool:
        # Accounting keeps "REQUEUED" as the last word on a run that was requeued.
        requeued = self.state == "REQUEUED" and self.ended_at is not None
        return self.state in ENDED or self.state == GONE or requeued

    @property
    def live(self) -> bool:
        """Pending or running; UNKNOWN counts as live, since nothing may be concluded from it."""
        return not self.ended

    def as_data(self) -> dict[str, Any]:
        """The payload of a ``job.observed`` event (without its token)."""
        from dataclasses import asdict

        data = asdict(self)
        del data["name"], data["comment"]
        return data


@dataclass(frozen=True)
class Observation:
    """One look at a scheduler, batched over all jobs asked for.

    ``records``: every allocation known, requeues included, oldest first per job. ``queue_answered`` and
    ``accounting_answered``: whether each source gave a complete answer; without them absence means
    nothing. ``unlisted``: job ids asked for that no source that answered knows. ``tokens``: token → job
    ids carrying it, for jobs of any state; complete only if ``queue_answered``. ``problems``: one line
    each, for a person.
    """

    records: Sequence[JobRecord] = ()
    queue_answered: bool = False
    accounting_answered: bool = False
    unlisted: frozenset[str] = frozenset()
    tokens: Mapping[str, Sequence[str]] = field(default_factory=dict)
    problems: Sequence[str] = ()
