"""squeue: its arguments and its answer. Pure; ``tests/orchestrator/test_slurm_squeue.py``.

``-O TYPE:SUFFIX`` without a size prints a field at its full width (22.05 to 24.11), and unlike
``-o`` has the restart count. Every record ends with the job id again and a record separator, so
that a newline in a foreign job's comment is harmless and a torn answer is seen as such. ``--json``
would be 18 times slower (4.7 s for 10,000 jobs).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from resiliency import jobstate

from . import fields
from .fields import FIELD_END, RECORD_END

#: Free text comes last but for the closing id: what stands before it is read even if it is odd.
_COLUMNS: Final = (
    "JobID",
    "RestartCnt",
    "State",
    "exit_code",
    "SubmitTime",
    "StartTime",
    "EndTime",
    "NodeList",
    "Reason",
    "Name",
    "Comment",
)
_FORMAT: Final = ",".join(f"{column}:{FIELD_END}" for column in _COLUMNS) + f",JobID:{RECORD_END}"
#: Reasons of a pending job that waits for somebody to release it, as a squeue of 22.05 or 24.11
#: prints them (src/common/job_state_reason.c; the launch failure is a free description).
_HELD_REASONS: Final = frozenset(
    {
        "jobhelduser",
        "jobheldadmin",
        "jobholdmaxrequeue",
        "launch failed requeued held",
        "job requeued in held state",
    }
)
_HELD_STATES: Final = frozenset({"SPECIAL_EXIT", "REQUEUE_HOLD"})


@dataclass(frozen=True)
class QueueRow:
    """One job as slurmctld knows it now."""

    job_id: str
    restart_count: int
    state: str
    exit_code: int | None
    signal: int | None
    submitted_at: float | None
    started_at: float | None  # None while pending: squeue then prints an estimate
    ended_at: float | None  # None until it has ended: squeue then prints the time limit's end
    nodes: str
    reason: str
    name: str
    comment: str
    held: bool


@dataclass(frozen=True)
class Queue:
    """``complete``: the answer was whole. ``damaged``: ids of records that could not be read."""

    rows: list[QueueRow] = field(default_factory=list)
    complete: bool = True
    damaged: frozenset[str] = frozenset()


def arguments(user: str | None) -> list[str]:
    """All jobs of a user (None: of the caller), ended ones included while slurmctld keeps them.

    Never ``-j``: an id slurmctld has forgotten makes the whole call fail.
    """
    whose = ["--me"] if user is None else [f"--user={user}"]
    return ["squeue", "--noheader", *whose, "--states=all", f"--Format={_FORMAT}"]


def held(state: str, reason: str) -> bool:
    """Whether the job will not start until somebody releases it."""
    if state in _HELD_STATES:
        return True
    plain = reason.strip("()").replace("_", " ").lower()
    return state in jobstate.PENDING and plain in _HELD_REASONS


def parse(output: str) -> Queue:
    """Read an answer. Foreign records that cannot be read are named, never guessed at."""
    *records, rest = output.split(RECORD_END)
    rows: list[QueueRow] = []
    damaged: set[str] = set()
    complete = not rest.strip()
    for record in records:
        parts = record.split(FIELD_END)
        job_id = parts[0].rsplit("\n", 1)[-1].strip()  # before it: a line like "CLUSTER: beta"
        if not job_id.isdecimal():
            complete = False
            continue
        row = _row(job_id, parts)
        if row is None:
            damaged.add(job_id)
        else:
            rows.append(row)
    return Queue(rows, complete, frozenset(damaged))


def _row(job_id: str, parts: list[str]) -> QueueRow | None:
    if len(parts) < len(_COLUMNS) + 1 or parts[-1].strip() != job_id:
        return None
    if not parts[1].strip().isdecimal():
        return None
    # A separator in a comment (nobody's by accident) lengthens the comment, not the record.
    name, comment = parts[9], FIELD_END.join(parts[10:-1])
    state = jobstate.normalise(parts[2])
    ended = state in jobstate.ENDED
    code, signal = fields.exit_status(parts[3]) if ended else (None, None)
    nodes, reason = fields.text(parts[7]), fields.text(parts[8])
    started = fields.epoch(parts[5]) if state not in jobstate.PENDING else None
    if ended and not nodes:
        started = None  # cancelled while pending: squeue repeats the time of the cancellation
    return QueueRow(
        job_id=job_id,
        restart_count=int(parts[1]),
        state=state,
        exit_code=code,
        signal=signal,
        submitted_at=fields.epoch(parts[4]),
        started_at=started,
        ended_at=fields.epoch(parts[6]) if ended else None,
        nodes=nodes,
        reason=reason,
        name=fields.text(name),
        comment=fields.text(comment),
        held=held(state, parts[8]),
    )
