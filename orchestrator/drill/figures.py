"""What a rehearsal showed, from its journal and the steps its ranks logged. Pure.

Times are Unix seconds. They are compared across writers here, which a decision never does: on hosts whose
clocks differ, so do the figures. ``tests/orchestrator/test_drill_figures.py`` has journals to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from resiliency.events import Event
from resiliency.faultkinds import ENDS, KINDS, UNHARMED
from resiliency.faults import Fault

#: Signs that the run has noticed, and what of the event says how.
_NOTICED = {
    "incident": "detail",
    "node.lost": "reason",
    "drain.requested": "reason",
    "straggler": "rank",
    "checkpoint.quarantined": "reason",
    "attempt.finished": "reason",
    "job.observed": "state",
}
#: A clock that is set again may go back a little.
_SLACK_S = 0.05


@dataclass(frozen=True)
class Step:
    """A trained step, as logged when it was done. ``loss`` as written, so that every digit is compared."""

    step: int
    loss: str
    time: float


@dataclass
class Story:
    """One fault and what came of it. None: it did not happen, or is not known. ``category``, ``action`` and
    ``rule`` are of the last decision before the work went on; ``decisions`` has all of them."""

    id: str
    kind: str
    expect: str
    injected_at: float | None = None
    what: str = ""
    step: int | None = None
    rank: int | None = None
    node: str | None = None
    detected_s: float | None = None
    detected_by: str = ""
    category: str = ""
    action: str = ""
    rule: str = ""
    in_job: bool | None = None
    decisions: list[str] = field(default_factory=list)
    resumed_from: int | None = None
    new_step: int | None = None
    recovery_s: float | None = None
    lost_steps: int | None = None
    ok: bool = False
    why: str = ""


@dataclass
class Outcome:
    """The whole rehearsal. ``repeated``: steps trained more than once; ``differing``: of those and of the
    baseline's, the ones whose loss is not the same to the last digit."""

    run: str
    stage: str
    status: str
    stories: list[Story] = field(default_factory=list)
    seconds: float = 0.0
    attempts: int = 0
    cycles: int = 0
    last_step: int | None = None
    last_loss: str = ""
    lost_steps: int = 0
    repeated: int = 0
    differing: list[int] = field(default_factory=list)
    baseline_run: str | None = None
    baseline_seconds: float | None = None

    @property
    def ok(self) -> bool:
        return not self.differing and bool(self.stories) and all(story.ok for story in self.stories)


def steps_of(records: Iterable[Mapping[str, Any]], events: Sequence[Event], stage: str) -> list[Step]:
    """Logged steps; where a stage logs none, the ones its progress in the journal tells of."""
    found = [
        Step(int(r["step"]), repr(r.get("loss")), float(r["time"]))
        for r in records
        if "step" in r and "time" in r
    ]
    seen = {(one.step, one.loss) for one in found}
    for event in events:
        if event.type == "progress" and event.stage == stage and event.data.get("step"):
            one = Step(int(event.data["step"]), repr(event.data.get("loss")), event.ts)
            if event.data.get("loss") is not None and (one.step, one.loss) not in seen:
                found.append(one)
    return sorted(found, key=lambda one: (one.time, one.step))


def outcome(
    run: str,
    stage: str,
    status: str,
    faults: Sequence[Fault],
    done: Mapping[str, Mapping[str, Any]],
    events: Sequence[Event],
    steps: Sequence[Step],
    baseline: Sequence[Step] = (),
) -> Outcome:
    """``done``: fault id → its marker (time, step, rank, node, what); ``events``: of the run, in order."""
    mine = [event for event in events if event.stage == stage]
    result = Outcome(run, stage, status)
    times = sorted(float(facts["time"]) for facts in done.values())
    for fault in faults:
        facts = done.get(fault.id)
        story = Story(fault.id, fault.kind, KINDS[fault.kind].expect)
        if facts is not None:
            later = [at for at in times if at > float(facts["time"])]
            until = later[0] if later else float("inf")
            _tell(story, facts, mine, steps, until)
        _judge(story, status, _stopped(events))
        result.stories.append(story)
    started = [event.ts for event in events if event.type in ("run.created", "attempt.started")]
    ended = [event.ts for event in mine if event.type in ("stage.completed", "attempt.finished")]
    if started and ended:
        result.seconds = round(max(ended) - min(started), 3)
    result.attempts = len({e.attempt for e in mine if e.type == "attempt.started"})
    result.cycles = sum(e.type == "cycle.started" for e in mine)
    result.lost_steps = sum(story.lost_steps or 0 for story in result.stories)
    _compare(result, steps, baseline)
    return result


def _tell(
    story: Story, facts: Mapping[str, Any], events: Sequence[Event], steps: Sequence[Step], until: float
) -> None:
    at = float(facts["time"])
    story.injected_at, story.what = at, str(facts.get("what", ""))
    story.step, story.rank, story.node = facts.get("step"), facts.get("rank"), facts.get("node")
    after = [event for event in events if at - _SLACK_S <= event.ts]
    window = [event for event in after if event.ts < until]
    for event in window:
        if _notices(event):
            noticed = float(event.data.get("detected") or event.ts)
            story.detected_s = round(max(0.0, noticed - at), 3)
            detail = event.data.get(_NOTICED[event.type], "")
            story.detected_by = f"{event.type}: {detail}" if detail != "" else event.type
            break
    highest = _highest(story, events, steps, at)
    again = [e for e in after if e.type == "workload.resumed" and e.ts < until]
    if not again:
        # One that came later belongs to this fault only if nothing new was trained in between.
        again = [e for e in after if e.type == "workload.resumed"][:1] if story.detected_s is not None else []
    if again:
        story.resumed_from = int(again[0].data.get("step") or 0)
    elif story.detected_s is not None and _cycle_after(after):
        story.resumed_from = 0
    back = again[0].ts if again else at
    new = [one for one in steps if one.time > max(at, back) and one.step > (highest or 0)]
    if new:
        first = min(new, key=lambda one: one.time)
        story.new_step, story.recovery_s = first.step, round(first.time - at, 3)
    _decided(story, window, at + story.recovery_s if story.recovery_s is not None else float("inf"))
    if story.resumed_from is not None and highest is not None:
        story.lost_steps = max(0, highest - story.resumed_from)


def _notices(event: Event) -> bool:
    if event.type == "attempt.finished":
        return event.data.get("exit_code") != 0
    if event.type == "job.observed":
        # Where nobody is left in the allocation to say anything, the scheduler does.
        return bool(event.data.get("ended_at")) and event.data.get("state") not in ("COMPLETED", "CANCELLED")
    return event.type in _NOTICED


def _cycle_after(events: Sequence[Event]) -> bool:
    return any(event.type in ("cycle.started", "attempt.started") for event in events)


def _decided(story: Story, window: Sequence[Event], until: float) -> None:
    """``until``: when the work had gone on. What was first believed may be put right by what is learned."""
    for event in window:
        data = event.data
        if event.ts > until:
            break
        if event.type == "verdict":
            story.category = str(data.get("category", ""))
        elif event.type == "decision":
            story.action, story.rule = str(data.get("action", "")), str(data.get("rule", ""))
            story.in_job = bool(data.get("in_job"))
        elif event.type == "attempt.finished" and data.get("category") not in ("healthy", None):
            story.category = str(data["category"])
            story.action, story.rule = str(data.get("decision", "")), str(data.get("rule", ""))
            story.in_job = False
        elif event.type in ("stage.stopped", "stage.held"):
            story.category = str(data.get("category") or story.category)
            story.rule = str(data.get("rule") or story.rule)
            continue
        else:
            continue
        if story.rule:
            story.decisions.append(f"{story.action} ({story.rule})")
    story.decisions = list(dict.fromkeys(story.decisions))


def _highest(story: Story, events: Sequence[Event], steps: Sequence[Step], at: float) -> int | None:
    """The highest step that had been done when the fault's consequences ended the work: what must be passed
    to be further than before. Steps that were done and not logged any more are known from the supervisor."""
    known = [one.step for one in steps if one.time <= at]
    if story.step:
        known.append(story.step - 1)
    running = [e for e in events if e.type == "cycle.started" and e.ts <= at + _SLACK_S]
    for event in events:
        # Of the cycle that was harmed: where its supervisor went too, nobody wrote how it ended.
        if event.type == "cycle.ended" and running and _same_cycle(event, running[-1]):
            if event.data.get("step") is not None:
                known.append(int(event.data["step"]))
            break
    return max(known, default=None)


def _same_cycle(one: Event, other: Event) -> bool:
    return (one.attempt, one.data.get("cycle")) == (other.attempt, other.data.get("cycle"))


def _stopped(events: Sequence[Event]) -> str:
    """Why some stage of the run does not go on; empty: all do."""
    words = [event for event in events if event.type in ("stage.stopped", "stage.held")]
    return f"{words[-1].stage}: {words[-1].data.get('reason', '')}" if words else ""


def _judge(story: Story, status: str, stopped: str) -> None:
    kind = KINDS[story.kind]
    if story.injected_at is None:
        story.why = "it was never done: the run did not get there" + (f" ({stopped})" if stopped else "")
    elif kind.expect == ENDS:
        if status == "complete":
            story.why = "the run went on as if nothing had happened"
        elif story.category not in kind.categories:
            named = story.category or "nothing"
            story.why = f"put down to {named}, not to {' or '.join(kind.categories)}"
        else:
            story.ok = True
    elif status != "complete":
        story.why = f"the run is {status}" + (f" ({stopped})" if stopped else "")
    elif kind.expect == UNHARMED and story.lost_steps:
        story.why = f"{story.lost_steps} steps were lost to what should do no harm"
    else:
        story.ok = True


def _compare(result: Outcome, steps: Sequence[Step], baseline: Sequence[Step]) -> None:
    losses: dict[int, set[str]] = {}
    counts: dict[int, int] = {}
    for one in steps:
        losses.setdefault(one.step, set()).add(one.loss)
        counts[one.step] = counts.get(one.step, 0) + 1
    result.repeated = sum(count > 1 for count in counts.values())
    differing = {step for step, seen in losses.items() if len(seen) > 1}
    for one in baseline:
        if one.step in losses and losses[one.step] != {one.loss}:
            differing.add(one.step)
    # What is not a number on purpose is not a digit that differs.
    result.differing = sorted(step for step in differing if not _is_nan(losses[step]))
    if steps:
        last = max(steps, key=lambda one: (one.step, one.time))
        result.last_step, result.last_loss = last.step, last.loss


def _is_nan(losses: set[str]) -> bool:
    return any("nan" in loss for loss in losses)
