"""Jobs of one chain to events: what an import adds to what the run's journal already says. Pure.

An attempt is known again by cluster, job id and time of submission, which a requeue renews; so the same
dump, or a later one that overlaps, adds nothing twice. ``tests/orchestrator/importing/test_sacct.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from orchestrator.schedulers.slurm import history
from resiliency import contract, diagnosis
from resiliency.attempt import Attempt
from resiliency.jobstate import UNKNOWN, JobRecord
from resiliency.state import RunState, Stage

from .jobs import Chain, JobRow
from .rundir import STAGE, ImportedRun, Said

_CANNOT_OPEN: Final = 53  # Slurm's own: it could not open the job's output, nothing was started
#: Ends that the state alone does not explain: diagnosis asks whether the work had begun.
_ASKS: Final = frozenset({"FAILED", "COMPLETED", "CANCELLED"})
_KEPT: Final = ("exit_code", "signal", "submitted_at", "started_at", "ended_at", "cancelled_by")


@dataclass
class Added:
    """``said``: the events to write; ``attempts``: runs of jobs in the dump; ``new``: those not known;
    ``unexplained``: ends without a known cause; ``late``: older than an attempt already known, so
    numbered behind it."""

    run: ImportedRun
    said: list[Said] = field(default_factory=list)
    attempts: int = 0
    new: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    unexplained: int = 0
    late: int = 0
    repeated: int = 0
    together: int = 0


def add(run: ImportedRun, chain: Chain, jobs: Sequence[JobRow], source: dict[str, Any]) -> Added:
    """What the jobs of one chain add to its run. ``source``: what ``import.source`` says of the dump."""
    added = Added(run)
    stage = run.state.stages.get(STAGE) or Stage(STAGE)
    known = _known(stage.attempts.values())
    rows = [job.row for job in jobs]
    found = history.records((), rows, queue_answered=False)
    records = sorted((r for r in found if r.state != UNKNOWN), key=_submitted)
    added.repeated = len(rows) - len(records)
    facts: list[Said] = []
    last: tuple[float, JobRecord, bool] | None = None
    live = {a.id for a in stage.attempts.values() if not a.ended}
    busy = 0.0
    for record in records:
        times = known.setdefault(record.job_id, {})
        key = _submitted(record)
        before = times.get(key)
        if before is None:
            added.late += any(key < other for other in times)
            before = (max((count for count, _ in times.values()), default=-1) + 1, None)
            times[key] = before
            added.new += 1
        count, attempt = before
        added.attempts += 1
        added.ends[record.state if record.ended else f"not over ({record.state})"] += 1
        began = _began(record)
        added.unexplained += record.state == "FAILED" and _category(record, began) == "unknown"
        if record.started_at is not None:
            added.together += record.started_at < busy
            busy = max(busy, record.ended_at or record.started_at)
        name = contract.attempt_id(chain.cluster, record.job_id, count)
        (live.discard if record.ended else live.add)(name)
        facts += _facts(run, stage, record, name, attempt, began)
        if last is None or key >= last[0]:
            last = (key, record, began)
    if facts and last is not None:
        first = min([_submitted(r) for r in records] + [ts for ts, *_ in facts])
        added.said = [*_created(run.state, chain, first), *facts, *_over(stage, facts, last, live, source)]
    return added


def _known(attempts: Iterable[Attempt]) -> dict[str, dict[float, tuple[int, Attempt | None]]]:
    """Job id → time of submission → restart count and attempt."""
    found: dict[str, dict[float, tuple[int, Attempt | None]]] = {}
    for attempt in attempts:
        if attempt.record is not None:
            times = found.setdefault(attempt.job_id, {})
            times[_submitted(attempt.record)] = (attempt.restart_count, attempt)
    return found


def _submitted(record: JobRecord) -> float:
    for at in (record.submitted_at, record.started_at, record.ended_at):
        if at is not None:
            return at
    return 0.0


def _began(record: JobRecord) -> bool:
    """Whether its work began, as far as accounting says."""
    return record.started_at is not None and record.signal != _CANNOT_OPEN


def _category(record: JobRecord, began: bool) -> str:
    seen = diagnosis.AttemptEvidence(
        scheduler_state=record.state,
        exit_code=record.exit_code,
        signal=record.signal,
        scheduler_reason=record.reason,
        started=began,
        cancelled_by=record.cancelled_by,
        nodes=record.nodes,
    )
    return diagnosis.diagnose(seen).category


def _created(state: RunState, chain: Chain, at: float) -> list[Said]:
    if state.created is not None:
        return []
    data = {
        "name": chain.name,
        "cluster": chain.cluster,
        "user": chain.user,
        "experiment": f"imported: {chain.directory or 'working directory not known'}",
        "imported": "sacct",
        "stages": [{"name": STAGE, "kind": "imported", "needs": []}],
    }
    return [(at, "run.created", data, {})]


def _facts(
    run: ImportedRun, stage: Stage, record: JobRecord, name: str, attempt: Attempt | None, began: bool
) -> list[Said]:
    """What the journal does not say yet about one attempt."""
    known = attempt.record if attempt is not None else None
    data = {key: value for key in _KEPT if (value := getattr(record, key)) is not None}
    data = {"state": record.state, **data}
    data |= {key: value for key in ("nodes", "reason") if (value := getattr(record, key))}
    if known is not None and (known.ended or all(getattr(known, key) == data[key] for key in data)):
        return []
    digits = "".join(filter(str.isdecimal, record.job_id.partition("_")[0])) or "0"
    token = contract.token(run.path.name, stage.name, int(digits))
    where = {"stage": stage.name, "attempt": name}
    said: list[Said] = []
    asked = _submitted(record)
    submission = stage.submissions.get(token)
    if not record.ended and (submission is None or record.job_id not in submission.job_ids):
        # Of a job that is over, the scheduler's word on its end says all.
        job = {"token": token, "job_id": record.job_id, "via": "import"}
        said.append((asked, "submission.accepted", job, {"stage": stage.name}))
    if began and record.started_at is not None and record.state in _ASKS:
        said.append((record.started_at, "attempt.started", {"token": token, "imported": True}, where))
        # The role's start ends what counts as launching: of what follows nothing is known.
        said.append((record.started_at, "role.started", {"role": "imported"}, {**where, "cycle": 0}))
    now = next(t for t in (record.ended_at, record.started_at, asked) if t is not None)
    said.append((now, "job.observed", {"token": token, **data}, where))
    return said


def _over(
    stage: Stage,
    facts: Sequence[Said],
    last: tuple[float, JobRecord, bool],
    live: set[str],
    source: dict[str, Any],
) -> list[Said]:
    """Where it came from; and, once no job is left, that nothing more is expected of the stage."""
    end = max(ts for ts, *_ in facts)
    said: list[Said] = [(end, "import.source", source, {})]
    epoch = stage.epoch
    if stage.stopped is not None:
        epoch += 1
        said.append((end, "run.resumed", {"stages": {stage.name: epoch}, "by": "import"}, {}))
    if live:
        return said
    key, record, began = last
    older = [a for a in stage.attempts.values() if a.record is not None and _submitted(a.record) > key]
    if older:
        record = max((a.record for a in older if a.record is not None), key=_submitted)
        began = _began(record)
    stop = {
        "epoch": epoch,
        "category": _category(record, began),
        "rule": "imported",
        "reason": f"imported: last job {record.state}; progress unknown",
    }
    return [*said, (end, "stage.stopped", stop, {"stage": stage.name})]
