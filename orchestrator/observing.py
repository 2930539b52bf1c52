"""What a look at the scheduler adds to the journal: the changes in its word about our jobs, and nothing else.

Decides nothing about stages. Absence counts only when the scheduler answered and has been silent about a
job for long enough (rule 6). ``tests/orchestrator/test_observing.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resiliency.contract import attempt_id
from resiliency.jobstate import GONE, JobRecord, Observation
from resiliency.journal import JournalWriter
from resiliency.state import Attempt, RunState, Stage, Submission

from .schedulers.base import Scheduler

#: Type, data and fields of one event to append.
Item = tuple[str, Mapping[str, Any], Mapping[str, Any]]

#: Why a pending job waits, as far as it says nothing a person could act on; it flips between these.
_WAITING = frozenset({"", "None", "Priority", "Resources", "Dependency", "BeginTime", "JobArrayTaskLimit"})

#: Seconds between the first look that misses a job and believing it gone: accounting may be minutes late,
#: and slurmctld forgets a finished job only after MinJobAge (300 s by default).
GONE_AFTER_S = 120.0


def record_changes(
    state: RunState,
    scheduler: Scheduler,
    seen: Observation,
    began: float,
    asked: frozenset[str],
    journal: JournalWriter,
) -> None:
    """Journal what changed in the scheduler's word about this run's jobs."""
    by_job: dict[str, list[JobRecord]] = {}
    for record in seen.records:
        by_job.setdefault(record.job_id, []).append(record)
    items = []
    for stage in state.stages.values():
        for link in stage.links():
            for job_id in link.job_ids:
                if job_id not in asked:
                    continue
                records = by_job.get(job_id, [])
                for record in records:
                    event = _changed(stage, link.token, scheduler.cluster, record)
                    if event is not None:
                        items.append(event)
                if not records and job_id in seen.unlisted:
                    event = _gone(stage, link, scheduler, job_id, began)
                    if event is not None:
                        items.append(event)
    if items:
        journal.append_many(items, sync=False)


def _changed(stage: Stage, token: str, cluster: str, record: JobRecord) -> Item | None:
    key = attempt_id(cluster, record.job_id, record.restart_count)
    known = stage.attempts.get(key)
    old = known.record if known else None
    if record.state == "UNKNOWN" or (old is not None and _same(old, record)):
        return None
    return (
        "job.observed",
        {"token": token, "cluster": cluster, **record.as_data()},
        {"stage": stage.name, "attempt": key},
    )


def _same(old: JobRecord, new: JobRecord) -> bool:
    """Whether nothing worth a line changed."""
    if old.ended and not new.ended:
        return True
    if old.state == "PENDING" == new.state and old.held == new.held:
        return old.reason == new.reason or {old.reason, new.reason} <= _WAITING
    a, b = old.as_data(), new.as_data()
    # Accounting may leave out what the queue said, and the other way round.
    return all(b[k] in (None, "", a[k]) for k in b if k != "state") and a["state"] == b["state"]


def _gone(stage: Stage, link: Submission, scheduler: Scheduler, job_id: str, began: float) -> Item | None:
    attempts = [a for a in stage.attempts_of(link.token) if a.job_id == job_id]
    last: Attempt | None = attempts[-1] if attempts else None
    if last is not None and last.state == GONE:
        return None
    key = last.id if last else attempt_id(scheduler.cluster, job_id, 0)
    data = {"token": link.token, "job_id": job_id, "cluster": scheduler.cluster}
    fields = {"stage": stage.name, "attempt": key}
    # Its own last word says how it ended; the local queue forgets nothing by itself.
    if scheduler.kind == "local" or (last is not None and last.finished is not None):
        return ("job.gone", data, fields)
    missing = last.missing_since if last else None
    if missing is None:
        return ("job.missing", data, fields)
    return ("job.gone", data, fields) if began - missing >= GONE_AFTER_S else None
