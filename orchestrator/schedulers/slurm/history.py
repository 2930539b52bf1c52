"""Joins what the queue and accounting say into one record per allocation. Pure.

The queue (slurmctld) is right about the present and knows the restart count; accounting (slurmdbd)
remembers earlier runs, may be minutes late, and has no restart count, so its rows are numbered by
their order. The submission time, which a requeue renews, tells which row the queue's job is.
``tests/orchestrator/test_slurm_history.py``; the recorded hazards are in ``data/slurm`` there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from resiliency.jobstate import ENDED, UNKNOWN, JobRecord

from .sacct import AccountingRow
from .squeue import QueueRow, held

#: A row older than the run that asks belongs to an earlier owner of a job id that was used again;
#: clocks of login node and controller may differ by this much.
CLOCK_SLACK_S = 600.0


@dataclass(frozen=True)
class _Run:
    """An accounting row with its number."""

    row: AccountingRow
    restart_count: int


def records(
    queue: Iterable[QueueRow],
    accounting: Iterable[AccountingRow],
    *,
    queue_answered: bool,
    since: float | None = None,
) -> list[JobRecord]:
    """One record per run, oldest first per job."""
    live = {row.job_id: row for row in queue}
    rows: dict[str, list[AccountingRow]] = {job_id: [] for job_id in live}
    for row in accounting:
        submitted = row.submitted_at
        if since is None or submitted is None or submitted >= since - CLOCK_SLACK_S:
            rows.setdefault(row.job_id, []).append(row)
    found: list[JobRecord] = []
    for job_id, of_job in rows.items():
        found += _of_job(live.get(job_id), _runs(of_job), queue_answered)
    return found


def _of_job(current: QueueRow | None, rows: Sequence[AccountingRow], queue_answered: bool) -> list[JobRecord]:
    runs = _number(current, rows)
    earlier = [run for run in runs if current is None or run.restart_count < current.restart_count]
    last = runs[-1] if runs else None
    known = [
        _from_accounting(run)
        for run in earlier
        # A run that a later one follows is over; while its row does not say how it ended, it is
        # left out rather than called running.
        if _is_over(run.row) or (run is last and current is None)
    ]
    if current is None:
        if queue_answered and known and last is not None and not _is_over(last.row):
            said = known[-1].state
            known[-1] = replace(
                known[-1],
                state=UNKNOWN,
                held=False,
                reason=f"accounting says {said}, but the queue does not list the job",
            )
        if not queue_answered and last is not None and last.row.state == "REQUEUED":
            known.append(_again(last))
        return known
    same = [run.row for run in runs if run.restart_count == current.restart_count]
    return [*known, _current(current, same[0] if same else None)]


def _number(current: QueueRow | None, rows: Sequence[AccountingRow]) -> list[_Run]:
    """Restart counts by order; where the queue knows the job, counted back from its count."""
    if current is None or not rows:
        return [_Run(row, number) for number, row in enumerate(rows)]
    submitted = current.submitted_at
    if submitted is None:  # never seen; then the newest row is the queue's run unless it is over
        older = len(rows) - (0 if _is_over(rows[-1]) and current.state not in ENDED else 1)
    else:
        older = sum(row.submitted_at is not None and row.submitted_at < submitted for row in rows)
    first = current.restart_count - older
    # Below 0 are rows of an earlier job with the same id; above the queue's count, of a run that
    # began since the queue was asked: the next look tells.
    return [_Run(row, first + i) for i, row in enumerate(rows) if first + i >= 0]


def _runs(rows: Iterable[AccountingRow]) -> list[AccountingRow]:
    """One row per run, oldest first: duplicates dropped, resizes joined to what follows them."""
    by_submission: dict[float | None, AccountingRow] = {}
    for row in rows:
        seen = by_submission.get(row.submitted_at)
        # (job id, submission time) is slurmdbd's key: a second row is the same run, told again.
        if seen is None or not (_is_over(seen) and not _is_over(row)):
            by_submission[row.submitted_at] = row
    ordered = sorted(by_submission.values(), key=lambda row: row.submitted_at or float("inf"))
    runs: list[AccountingRow] = []
    resized: AccountingRow | None = None
    for row in ordered:
        if resized is not None:
            row = replace(row, submitted_at=resized.submitted_at, started_at=resized.started_at)
            resized = None
        if row.state == "RESIZING":
            resized = row  # the same run went on with other nodes, in a row of its own
        else:
            runs.append(row)
    if resized is not None:
        runs.append(resized)
    return runs


def _is_over(row: AccountingRow) -> bool:
    return row.state in ENDED or (row.state == "REQUEUED" and row.ended_at is not None)


def _again(run: _Run) -> JobRecord:
    """The run that follows a requeued one, which neither source tells about yet."""
    return JobRecord(
        job_id=run.row.job_id,
        restart_count=run.restart_count + 1,
        state=UNKNOWN,
        name=run.row.name,
        reason="requeued; the queue does not answer",
    )


def _from_accounting(run: _Run) -> JobRecord:
    row = run.row
    return JobRecord(
        job_id=row.job_id,
        restart_count=run.restart_count,
        state=row.state,
        name=row.name,
        exit_code=row.exit_code,
        signal=row.signal,
        reason=row.reason,
        nodes=row.nodes,
        submitted_at=row.submitted_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        cancelled_by=row.cancelled_by,
        held=not _is_over(row) and held(row.state, row.reason),
    )


def _current(row: QueueRow, told: AccountingRow | None) -> JobRecord:
    record = JobRecord(
        job_id=row.job_id,
        restart_count=row.restart_count,
        state=row.state,
        name=row.name,
        comment=row.comment,
        exit_code=row.exit_code,
        signal=row.signal,
        reason=row.reason,
        nodes=row.nodes,
        submitted_at=row.submitted_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        held=row.held,
    )
    if told is not None and row.state == "COMPLETING" and told.state == "CANCELLED":
        # Not over, but accounting knows already that a person ended it: the job itself asks for this.
        return replace(record, cancelled_by=told.cancelled_by or "somebody")
    if told is None or row.state not in ENDED or not _is_over(told) or told.state not in ENDED:
        return record
    # Ended in both: accounting adds who cancelled it, and its exit code is the job's, where
    # squeue's may be the batch step's.
    return replace(
        record,
        state=told.state,
        exit_code=told.exit_code if told.exit_code is not None else record.exit_code,
        signal=told.signal if told.signal is not None else record.signal,
        ended_at=told.ended_at,
        cancelled_by=told.cancelled_by,
    )


def tokens(wanted: Collection[str], found: Iterable[JobRecord]) -> dict[str, tuple[str, ...]]:
    """Token → job ids that carry it, by name or, should a site rename jobs, by comment."""
    from resiliency.contract import COMMENT_PREFIX

    carriers: dict[str, dict[str, None]] = {}
    for record in found:
        for token in (record.name, record.comment.removeprefix(COMMENT_PREFIX)):
            if token in wanted:
                carriers.setdefault(token, {})[record.job_id] = None
    return {token: tuple(ids) for token, ids in carriers.items()}
