"""How each event changes a run's state: the rules behind :func:`resiliency.state.fold`.

Every rule gives the same state whatever the order or repetition of events: a field holds the
earliest word, the latest word, a maximum or a set, never "what came last". ``words`` remembers
which event spoke. An event whose content makes no sense is noted in ``RunState.malformed``.
``tests/resiliency/test_state.py`` shuffles and duplicates events to prove it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .contract import parse_attempt_id, parse_token
from .events import Event
from .exclusion import Order
from .jobstate import JobRecord
from .state import Attempt, RunState, Stage, Submission

Words = dict[str, tuple[Any, ...]]
_OF_A_CYCLE = frozenset(
    {"cycle.started", "cycle.ended", "incident", "verdict", "decision", "preflight"}
    | {"node.swapped", "node.shrunk"}
)
_RECORD_FIELDS = frozenset(JobRecord.__dataclass_fields__) - {"job_id", "restart_count"}


def apply(state: RunState, event: Event) -> None:
    """Apply one event; never raises on content."""
    state.run = state.run or event.run
    state.last_ts = max(state.last_ts, event.ts)
    try:
        _apply(state, event)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        state.malformed.add(event.key)


def _earliest(words: Words, name: str, event: Event) -> bool:
    """Whether ``event`` is the earliest word on ``name`` so far."""
    if name in words and event.order > words[name]:
        return False
    words[name] = event.order
    return True


def _latest(words: Words, name: str, event: Event, *, at: int = 0) -> bool:
    """Whether ``event`` is the latest word on ``name``; ``at`` (a step) counts before time."""
    key = (at, *event.order)
    if name in words and key < words[name]:
        return False
    words[name] = key
    return True


def step_of(data: Mapping[str, Any]) -> int:
    """The step an event speaks of; raises TypeError, ValueError or OverflowError if it is none."""
    step = int(data.get("step") or 0)
    if not 0 <= step < 2**63:
        raise ValueError(f"step {step} is out of range")
    return step


def _apply(state: RunState, event: Event) -> None:
    data, kind = event.data, event.type
    if kind == "run.created":
        if _earliest(state.words, "created", event):
            state.created, state.created_ts = dict(data), event.ts
            for item in data.get("stages", []):
                stage = state.stage(item["name"])
                stage.kind, stage.needs = item.get("kind", ""), tuple(item.get("needs", ()))
    elif kind == "run.resumed":
        for name, epoch in dict(data.get("stages", {})).items():
            stage = state.stage(name)
            stage.epoch = max(stage.epoch, int(epoch))
    elif kind == "run.cancelled":
        for name, epoch in dict(data.get("stages", {})).items():
            state.stage(name).cancels.add(int(epoch))
    elif kind.startswith("submission."):
        _apply_submission(state, event)
    elif kind.startswith("stage.") and event.stage:
        _apply_stage(state.stage(event.stage), event)
    elif kind == "link.excluding":
        submission = _submission(state, event)
        if submission is not None and _latest(submission.words, "exclude", event):
            submission.exclude = tuple(sorted(map(str, data.get("nodes") or ())))
    elif kind == "link.cancelled":
        submission = _submission(state, event)
        if submission is not None:
            submission.cancelled = True
            for attempt in state.stage(submission.stage).attempts.values():
                if attempt.token == submission.token:
                    attempt.cancelled_by_us = True
    elif kind in ("node.excluded", "node.readmitted"):
        order = Order.of(event)
        if order is not None:
            state.orders[event.key] = order
    elif kind == "fault.injected":
        state.rehearsal = True
    elif kind in ("eval.result", "data.built") and event.stage:
        stage = state.stage(event.stage)
        if _latest(stage.words, kind, event):
            stage.results[kind] = dict(data)
    else:
        _apply_attempt(state, event)


def _apply_stage(stage: Stage, event: Event) -> None:
    epoch = int(event.data.get("epoch") or 0)
    if event.type == "stage.completed":
        if _earliest(stage.words, "completed", event):
            stage.completed, stage.completed_ts = dict(event.data), event.ts
    elif event.type == "stage.stopped":
        if _earliest(stage.words, f"stopped {epoch}", event):
            stage.stops[epoch] = dict(event.data)
    elif event.type == "stage.held" and _earliest(stage.words, f"held {epoch}", event):
        stage.holds[epoch] = dict(event.data)


def _submission(state: RunState, event: Event) -> Submission | None:
    token = str(event.data.get("token", ""))
    parsed = parse_token(token)
    if parsed is None:
        return None
    stage = state.stage(parsed[1])
    return stage.submissions.setdefault(token, Submission(token, parsed[1], parsed[2]))


def _apply_submission(state: RunState, event: Event) -> None:
    submission = _submission(state, event)
    if submission is None:
        return
    data = event.data
    if event.type == "submission.intent" and _latest(submission.words, "exclude", event):
        submission.exclude = tuple(sorted(map(str, data.get("exclude") or ())))
    if event.type == "submission.intent":
        epoch = int(data.get("epoch") or 0)
        if event.ts not in submission.intents:
            submission.intents.append(event.ts)
            submission.intents.sort()
        if "cluster" in data and _latest(submission.words, "cluster", event):
            submission.cluster = str(data["cluster"])
        submission.epoch = max(submission.epoch, epoch)
    elif event.type == "submission.accepted":
        job_id = str(data["job_id"])
        if job_id not in submission.job_ids:
            submission.job_ids.append(job_id)
            submission.job_ids.sort(key=lambda j: (len(j), j))
    else:
        outcome = event.type.removeprefix("submission.")
        if data.get("looked_up") and event.ts not in submission.negatives:
            submission.negatives.append(event.ts)
            submission.negatives.sort()
        submission.closed[outcome] = max(submission.closed.get(outcome, event.ts), event.ts)
        if _latest(submission.words, "reason", event):
            submission.reason = str(data.get("reason", ""))


def _attempt_of(state: RunState, event: Event) -> Attempt | None:
    """The attempt an event is about, made on first mention (events may come in any order)."""
    parts = parse_attempt_id(event.attempt) if event.attempt and event.stage else None
    if parts is None or event.attempt is None or event.stage is None:
        return None
    stage = state.stage(event.stage)
    attempt = stage.attempts.get(event.attempt)
    if attempt is None:
        attempt = Attempt(event.attempt, stage.name, "", 0, parts[1], parts[2])
        stage.attempts[event.attempt] = attempt
    parsed = parse_token(str(event.data.get("token", "")))
    if parsed is not None and _earliest(attempt.words, "token", event):
        attempt.token, attempt.link = str(event.data["token"]), parsed[2]
    submission = stage.submissions.get(attempt.token)
    if submission is not None and submission.cancelled:
        attempt.cancelled_by_us = True
    return attempt


def _observed(attempt: Attempt, event: Event) -> None:
    """The scheduler's latest word; but a job that ended does not come back with the same restart
    count, so no word "not ended", however late its writer's clock, replaces one that it ended."""
    fields = {k: v for k, v in event.data.items() if k in _RECORD_FIELDS}
    record = JobRecord(job_id=attempt.job_id, restart_count=attempt.restart_count, **fields)
    known = attempt.record
    if known is None or (record.ended, event.order) >= (known.ended, attempt.record_order):
        attempt.record, attempt.record_order = record, event.order


def _apply_attempt(state: RunState, event: Event) -> None:
    attempt = _attempt_of(state, event)
    if attempt is None:
        return
    data, kind, words = event.data, event.type, attempt.words
    if kind == "job.observed":
        _observed(attempt, event)
    elif kind == "job.missing":
        attempt.missing.add(event.ts)
    elif kind == "job.gone":
        attempt.gone = True
    elif kind == "job.released":
        attempt.releases.add(event.ts)
    elif kind == "attempt.started":
        if _latest(words, kind, event):
            attempt.started, attempt.started_ts = dict(data), event.ts
    elif kind == "attempt.gate":
        if _latest(words, kind, event):
            attempt.gate = str(data.get("verdict"))
    elif kind == "attempt.finished":
        if _latest(words, kind, event):
            attempt.finished, attempt.finished_ts = dict(data), event.ts
    elif kind == "drain.requested":
        if _earliest(words, kind, event):
            attempt.drain_reason = str(data.get("reason"))
    elif kind == "duplicate.refused":
        attempt.duplicate = True
    elif kind == "workload.error":
        cycle = attempt.cycle(event.cycle or 0)
        if _earliest(cycle.words, kind, event):
            cycle.error = dict(data)
    elif kind == "node.lost":
        node = str(data["node"])
        if _earliest(words, f"lost {node}", event):
            attempt.lost[node] = str(data.get("reason") or "lost")
    elif kind in _OF_A_CYCLE:
        _apply_cycle(attempt, event)
    elif kind == "workload.resumed":
        step = step_of(data)
        cycle = attempt.cycle(event.cycle or 0)
        cycle.resumed_from = step if cycle.resumed_from is None else min(cycle.resumed_from, step)
        cycle.step = max(cycle.step or 0, step)
        known = attempt.resumed_from
        attempt.resumed_from = step if known is None else min(known, step)
        attempt.step = max(attempt.step or 0, step)
    elif kind == "checkpoint.committed":
        step = step_of(data)
        cycle = attempt.cycle(event.cycle or 0)
        cycle.saved_step = max(cycle.saved_step or 0, step)
        cycle.step = max(cycle.step or 0, step)
        attempt.checkpoint_step = max(attempt.checkpoint_step or 0, step)
        attempt.step = max(attempt.step or 0, step)
    elif kind == "progress":
        _progress(attempt, event)


def _apply_cycle(attempt: Attempt, event: Event) -> None:
    data, kind = event.data, event.type
    number = event.cycle if event.cycle is not None else data.get("cycle")
    if number is None:
        return  # a decision on the attempt as a whole
    cycle = attempt.cycle(int(number))
    if kind in ("cycle.started", "cycle.ended"):
        step = data.get("step")
        if step is not None:
            cycle.step = max(cycle.step or 0, step_of(data))
            attempt.step = max(attempt.step or 0, step_of(data))
    if kind == "node.swapped":
        out, into = str(data["out"]), str(data["in"])
        if _latest(cycle.words, f"swapped {out}", event):
            cycle.swapped[out] = into
        return
    if kind == "node.shrunk":
        cycle.shrunk = True
        return
    if not _latest(cycle.words, kind, event):
        return
    if kind == "cycle.started":
        cycle.nodes = tuple(map(str, data.get("nodes") or ()))
        cycle.spares = tuple(map(str, data.get("spares") or ()))
        cycle.started_ts = event.ts
    elif kind == "cycle.ended":
        cycle.ended_ts = event.ts
        cycle.category = str(data.get("category") or "")
        cycle.signature = str(data.get("signature") or "")
        cycle.reason = str(data.get("reason") or "")
        node, rank = data.get("node"), data.get("rank")
        cycle.node = str(node) if node else None
        cycle.rank = int(rank) if rank is not None else None
        cycle.continued = bool(data.get("continued"))
    elif kind == "incident":
        cycle.incident = dict(data)
    elif kind == "verdict":
        cycle.verdict = dict(data)
    elif kind == "preflight":
        cycle.checks, cycle.checked_ts = dict(data), event.ts
    else:
        cycle.decision = dict(data)


def _progress(attempt: Attempt, event: Event) -> None:
    step, data, words = step_of(event.data), event.data, attempt.words
    cycle = attempt.cycle(event.cycle or 0)
    cycle.step = max(cycle.step or 0, step)
    attempt.step = max(attempt.step or 0, step)
    attempt.last_progress_ts = max(attempt.last_progress_ts or 0.0, event.ts)
    if _latest(words, "section", event, at=step):
        attempt.section = str(data.get("section", ""))
    # A word without a loss (a save, say) does not make the last loss unknown.
    if data.get("loss") is not None and _latest(words, "loss", event, at=step):
        attempt.loss, attempt.loss_step = data["loss"], step
    if data.get("tokens") is not None and _latest(words, "tokens", event, at=step):
        attempt.tokens = data["tokens"]
