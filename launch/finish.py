"""How an attempt ends: its facts into the journal, its verdict and decision, what is left over cancelled.

Decides by ``resiliency.diagnosis`` and ``resiliency.policy`` over the folded journal, as the control
plane does; looking later, it comes to the same and repeats what failed here. Facts are journaled before
their effects. ``tests/launch/test_segment.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from resiliency import artifact, exitcodes, policy
from resiliency.errors import StorageError
from resiliency.events import Event
from resiliency.redact import redact
from resiliency.state import Attempt, RunState, Stage, fold
from resiliency.taxonomy import Action

from . import leftover, successor
from .gate import Gate, own_faults
from .leftover import say
from .outcome import RankEnd, speaker
from .segment import Segment

_MISSING_ARTIFACT = "ended with 0, but its artifact does not verify"


# -- ends --------------------------------------------------------------------------------------


def closed(segment: Segment, gate: Gate) -> int:
    """End an attempt that the gate did not let through; its exit code."""
    config = segment.config
    state = segment.state()
    stage = state.stage(config.name)
    jobs: list[str] = []
    if gate.verdict == "complete":
        code, category, action, rule = exitcodes.COMPLETE, "healthy", Action.NONE, "complete"
        if stage.completed is None:
            _completed(segment, stage)
        jobs = leftover.name(segment, state, "the stage is complete", False)
    elif gate.verdict == "wait":
        code, category, action, rule = exitcodes.PROGRESS_MADE, "requeued", Action.REQUEUE, "gate:wait"
    else:
        code, action, rule = exitcodes.NEEDS_HUMAN, Action.STOP, "gate:stopped"
        stop = stage.stopped or stage.held or {}
        category = str(stop.get("category") or ("data_error" if gate.damaged else "config_error"))
        if gate.damaged and not stage.terminal:
            data = {"epoch": stage.epoch, "category": category, "rule": "gate:damaged-input"}
            segment.journal.append("stage.stopped", {**data, "reason": gate.detail}, sync=True)
        jobs = leftover.name(segment, state, f"the stage is stopped: {gate.detail}", True)
    _finished(
        segment,
        {
            "exit_code": code,
            "category": category,
            "reason": gate.detail,
            "step": None,
            "resumed_from": None,
            "decision": action.value,
            "rule": rule,
        },
    )
    leftover.cancel(segment, jobs)
    return code


def ended(segment: Segment, ends: Sequence[RankEnd]) -> int:
    """End an attempt that did its work, or tried to; its exit code."""
    said = speaker(ends) or RankEnd(None, 1, time.time(), "nothing is known of any rank")
    if said.code == exitcodes.COMPLETE:
        said = _sealed(segment, said)
    try:
        state = segment.state()
        state = _with_workload(segment, state, said)
    except StorageError as error:
        say(f"{error}; ending without a decision")
        _finished(segment, {"exit_code": said.code, "category": "storage_io", "reason": error.message})
        return said.code
    code = said.code
    # Fold our own last word before it is written, so that history and verdict are the ones that
    # anybody reading the journal later comes to.
    fold([_event(segment, "attempt.finished", {"exit_code": code})], state)
    stage = state.stage(segment.config.name)
    attempt = stage.attempts[segment.attempt]
    verdict = attempt.verdict()
    history = stage.history()
    capacity = policy.Capacity(
        links_used=len({a.token for a in _of_this_epoch(stage)}),
        wall_used_s=sum(past.wall_s for past in history),
    )
    decision = policy.decide(verdict, history, segment.config.budgets, capacity)
    if segment.config.recovery.get("shadow"):
        decision = policy.shadowed(decision)
    if attempt.cancelled_by_us and decision.rule != "complete":
        # A left-over of ours that had just started: its end says nothing about the stage.
        reason = "cancelled by Trainmaster, no longer needed"
        verdict = replace(verdict, category="planned_rollover", reason=reason)
        decision = policy.Decision(Action.NONE, "left-over", reason, "planned_rollover")
    jobs = _carry_out(segment, state, stage, decision)
    reason = "; ".join([_reason(verdict.reason, said), *segment.notes])
    _finished(
        segment,
        {
            "exit_code": code,
            "category": verdict.category,
            "reason": reason,
            "step": attempt.step,
            "resumed_from": attempt.resumed_from,
            "decision": decision.action.value,
            "rule": decision.rule,
        },
    )
    leftover.cancel(segment, jobs)
    if decision.goes_on:
        successor.prepare(segment, stage, decision.exclude)
    print(
        f"trainmaster: {segment.attempt} ends with {code}: {verdict.category} "
        f"({reason}); {decision.action.value} by {decision.rule}",
        flush=True,
    )
    return code


def _reason(reason: str, said: RankEnd) -> str:
    """The verdict's reason, and what the rank itself showed if the reason does not have it."""
    if not said.failed or not said.summary or said.summary in reason:
        return redact(reason)
    who = f"rank {said.rank}" if said.rank is not None else "launch"
    where = f" on {said.node}" if said.node else ""
    return redact(f"{reason} ({who}{where}: {said.summary})")


def _sealed(segment: Segment, said: RankEnd) -> RankEnd:
    """Make sure that 0 means a verified artifact; a command's is sealed here unless it did so itself."""
    config = segment.config
    try:
        faults = own_faults(config)
        if faults and config.is_command:
            config.artifact_dir.mkdir(parents=True, exist_ok=True)
            meta = {"stage": config.name, "attempt": segment.attempt}
            artifact.seal(config.artifact_dir, config.artifact_kind, meta)
            faults = own_faults(config)
    except (OSError, StorageError) as error:
        full = getattr(error, "errno", None) == 28 or "No space left" in str(error)
        say(f"cannot seal {config.artifact_dir}: {error}")
        category = "storage_full" if full else "storage_io"
        return RankEnd(None, StorageError.exit_code, time.time(), str(error), category)
    if not faults:
        return said
    say(f"{config.name} {_MISSING_ARTIFACT}: {faults[0]}")
    return RankEnd(None, 1, time.time(), f"{_MISSING_ARTIFACT}: {faults[0]}", "code_error")


def _with_workload(segment: Segment, state: RunState, said: RankEnd) -> RunState:
    """Add what the workload could not say itself: a plain cause of its error, a command's checkpoint."""
    stage = state.stage(segment.config.name)
    attempt = stage.attempts.get(segment.attempt)
    events: list[Event] = []
    if said.category and said.failed and not (attempt and attempt.error):
        data = {"category": said.category, "message": redact(said.summary), "hint": ""}
        segment.journal.append("workload.error", data, sync=True, cycle=segment.cycle)
        events.append(_event(segment, "workload.error", data))
    # Only a rank can say that it saved; told to stop before it began, nothing was.
    if segment.config.is_command and said.code == exitcodes.PROGRESS_MADE and said.rank is not None:
        events += _command_saved(segment, stage, attempt)
    if attempt is None or attempt.started is None or attempt.gate is None:
        # Our own journal could not be written: decide on what is known all the same.
        token = {"token": segment.token, "link": segment.link}
        events.append(_event(segment, "attempt.started", token))
        events.append(_event(segment, "attempt.gate", {"verdict": "go"}))
        if segment.drain_reason:
            events.append(_event(segment, "drain.requested", {"reason": segment.drain_reason}))
    return fold(events, state)


def _command_saved(segment: Segment, stage: Stage, attempt: Attempt | None) -> list[Event]:
    """75 is a command's word that it saved: journaled as a checkpoint, so that budgets see progress.

    Without a progress reader the link's number stands for the step: it grows, which is all that is known.
    """
    if attempt is not None and attempt.checkpoint_step is not None:
        return []
    earlier = [a.checkpoint_step for a in stage.chain() if a.checkpoint_step is not None]
    before = max(earlier, default=0)
    seen = attempt.step if attempt is not None else None
    step = seen if seen is not None else segment.link
    path = str(segment.config.checkpoint_dir)
    made: list[Event] = []
    resumed = {"step": min(before, step), "checkpoint": path, "source": "exit code 75"}
    saved = {"step": step, "path": path, "bytes": None, "seconds": None, "source": "exit code 75"}
    for type_, data in (("workload.resumed", resumed), ("checkpoint.committed", saved)):
        segment.journal.append(type_, data, cycle=segment.cycle)
        made.append(_event(segment, type_, data))
    return made


# -- what follows ------------------------------------------------------------------------------


def _of_this_epoch(stage: Stage) -> Iterator[Attempt]:
    """Attempts whose link counts as used: not left-overs, duplicates or waits at the gate."""
    epochs = {s.token: s.epoch for s in stage.submissions.values()}
    for attempt in stage.attempts.values():
        if attempt.cancelled_by_us or attempt.duplicate or attempt.gate == "wait":
            continue
        if epochs.get(attempt.token, stage.epoch) == stage.epoch:
            yield attempt


def _carry_out(segment: Segment, state: RunState, stage: Stage, decision: policy.Decision) -> list[str]:
    """Journal what the decision means for the stage; the job ids to cancel."""
    if decision.rule == "complete":
        _completed(segment, stage)
        return leftover.name(segment, state, "the stage is complete", False)
    word = {Action.STOP: "stage.stopped", Action.HOLD: "stage.held"}.get(decision.action)
    if word is None:
        return []
    if not stage.terminal:
        data = {
            "epoch": stage.epoch,
            "category": decision.category,
            "rule": decision.rule,
            "reason": redact(decision.reason),
        }
        segment.journal.append(word, data, sync=True)
    verb = "held" if decision.action is Action.HOLD else "stopped"
    return leftover.name(segment, state, f"the stage is {verb}: {redact(decision.reason)}", True)


def _completed(segment: Segment, stage: Stage) -> None:
    data = {"epoch": stage.epoch, "artifact": str(segment.config.artifact_dir)}
    if not segment.journal.append("stage.completed", data, sync=True):
        say("the stage is complete, but the journal cannot say so; its artifact does")


def _finished(segment: Segment, data: dict[str, Any]) -> None:
    segment.journal.append("attempt.finished", data, sync=True)


def _event(segment: Segment, type_: str, data: dict[str, Any]) -> Event:
    """An event as the fold wants it, for what is not (yet) on disk."""
    now = time.time()
    return Event(
        type=type_,
        run=segment.config.run,
        writer="in-memory",
        seq=0,
        ts=now,
        mono=time.monotonic(),
        stage=segment.config.name,
        attempt=segment.attempt,
        cycle=segment.cycle,
        data=data,
    )
