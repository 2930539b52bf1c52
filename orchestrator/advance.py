"""What a run needs next: a pure function from its state and plan to a list of acts.

No clock, file or subprocess: ``control`` carries the acts out and journals them. The same state gives
the same acts, so doing it twice does nothing twice. ``tests/orchestrator/test_advance.py`` is a table of
states and acts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from resiliency import contract, policy
from resiliency.jobstate import PENDING
from resiliency.state import Attempt, RunState, Stage
from resiliency.taxonomy import Action


class StageChain(Protocol):
    """The part of a stage's plan that its chain needs."""

    @property
    def name(self) -> str: ...
    @property
    def needs(self) -> Sequence[str]: ...
    @property
    def lookahead(self) -> int: ...
    @property
    def max_links(self) -> int: ...
    @property
    def budgets(self) -> policy.Budgets: ...


@dataclass(frozen=True)
class SubmitLink:
    """Submit one link, after the links of ``after`` (tokens; their job ids are looked up when acting)."""

    stage: str
    link: int
    epoch: int
    after: tuple[str, ...] = ()
    exclude: tuple[str, ...] | None = None  # nodes to keep off; None: as planned

    def token(self, run_id: str) -> str:
        return contract.token(run_id, self.stage, self.link)


@dataclass(frozen=True)
class CancelLink:
    """Cancel a job of ours."""

    token: str
    job_ids: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class ReleaseJob:
    """Release a job that the scheduler holds after a failed launch."""

    stage: str
    attempt: str
    token: str
    job_id: str
    reason: str


@dataclass(frozen=True)
class ExcludeNodes:
    """Keep a queued job off these nodes and no others."""

    stage: str
    token: str
    job_ids: tuple[str, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class CompleteStage:
    """The artifact verifies and nobody has said so yet."""

    stage: str
    epoch: int


@dataclass(frozen=True)
class StopStage:
    """The stage will not go on by itself."""

    stage: str
    epoch: int
    rule: str
    reason: str
    category: str


@dataclass(frozen=True)
class HoldStage(StopStage):
    """The stage waits for a person or a condition."""


@dataclass(frozen=True)
class RecordDecision:
    """The policy's word on an attempt that could not say it itself (its node was lost, say)."""

    stage: str
    attempt: str
    decision: policy.Decision


Act = (
    SubmitLink
    | CancelLink
    | ReleaseJob
    | ExcludeNodes
    | CompleteStage
    | StopStage
    | HoldStage
    | RecordDecision
)


def advance(
    state: RunState,
    chains: Sequence[StageChain],
    *,
    artifact_ok: Callable[[str], bool] = lambda stage: False,
    decided: Mapping[str, str] | None = None,
    keep_off: Mapping[str, Sequence[str]] | None = None,
) -> list[Act]:
    """The acts that bring the run forward; ``chains`` in an order in which needs come first.

    ``artifact_ok(stage)`` verifies a stage's artifact; it is asked only for stages that ended without
    saying that they are complete. ``decided``: attempts whose decision is journaled already.
    ``keep_off``: nodes that each stage's links are kept off; None: nobody looked, leave them as they are.
    """
    acts: list[Act] = []
    stopped_now: dict[str, StopStage] = {}
    completed_now: set[str] = set()
    tails: dict[str, str] = {}
    for chain in chains:
        stage = state.stage(chain.name)
        done = _finish(state, stage, chain, artifact_ok, stopped_now, decided or {})
        if done is not None:
            for act in done:
                if isinstance(act, StopStage):
                    stopped_now[stage.name] = act
                if isinstance(act, CompleteStage):
                    completed_now.add(stage.name)
            acts += done
        if done is None or not any(isinstance(a, (StopStage, CompleteStage)) for a in done):
            acts += _go_on(state, stage, chain, completed_now, tails, keep_off)
    return acts


def _go_on(
    state: RunState,
    stage: Stage,
    chain: StageChain,
    completed_now: set[str],
    tails: dict[str, str],
    keep_off: Mapping[str, Sequence[str]] | None,
) -> list[Act]:
    """Release and submit for a stage that may go on; notes the stage's last link in ``tails``."""
    if stage.terminal or stage.held is not None:
        return []
    acts = _release(stage, chain)
    submits = _submit(state, stage, chain, completed_now, tails)
    if keep_off is not None and stage.name in keep_off:
        nodes = tuple(sorted(keep_off[stage.name]))
        acts += _exclude(stage, nodes)
        submits = [replace(one, exclude=nodes) for one in submits]
    live = stage.live_links()
    if submits:
        tails[stage.name] = submits[-1].token(state.run)
    elif live and not any(s.outcome in ("intent", "uncertain") for s in stage.links()):
        tails[stage.name] = live[-1].token
    return [*acts, *submits]


def _finish(
    state: RunState,
    stage: Stage,
    chain: StageChain,
    artifact_ok: Callable[[str], bool],
    stopped_now: Mapping[str, StopStage],
    decided: Mapping[str, str],
) -> list[Act] | None:
    """Acts that end a stage or follow its end; None or only records while it should go on."""
    if stage.completed is not None:
        return _cancel(stage, "the stage is complete", pending_only=True)
    stop = stage.stopped
    if stop is not None:
        # `cancel` ends everything; a link that a person scancelled ends only what is queued behind it.
        reason = f"the stage is stopped: {stop.get('reason', '')}"
        return _cancel(stage, reason, pending_only=stage.epoch not in stage.cancels)

    for need in chain.needs:
        why = _why_stopped(state, need, stopped_now)
        if why is not None:
            act = StopStage(
                stage.name, stage.epoch, f"needs:{need}", f"stage {need} stopped: {why[0]}", why[1]
            )
            return [act, *_cancel(stage, act.reason, pending_only=True)]

    rejected = [s for s in stage.links() if s.outcome == "rejected" and s.epoch == stage.epoch]
    if rejected:
        why_not = rejected[-1].reason
        act = StopStage(
            stage.name,
            stage.epoch,
            "rejected-by-scheduler",
            f"submission refused: {why_not}",
            "config_error",
        )
        return [act, *_cancel(stage, act.reason, pending_only=True)]

    ended = [a for a in stage.chain() if a.ended and _counts(stage, a)]
    acts: list[Act] = []
    if ended:
        last = ended[-1]
        history = stage.history()
        capacity = policy.Capacity(
            links_used=links_used(stage), wall_used_s=sum(past.wall_s for past in history)
        )
        decision = policy.decide(last.verdict(), history, chain.budgets, capacity)
        # Another link may be running or finishing the work: only a settled chain is judged complete.
        if not stage.live_links() and artifact_ok(stage.name):
            return [CompleteStage(stage.name, stage.epoch)]
        if last.finished is None and decided.get(last.id) != decision.rule:
            acts.append(RecordDecision(stage.name, last.id, decision))
        # When links are used up the last of them may still be on its way.
        if decision.rule == "budget:max-links" and stage.live_links():
            return acts
        if decision.action is Action.STOP:
            stop_act = StopStage(stage.name, stage.epoch, decision.rule, decision.reason, decision.category)
            return [*acts, stop_act, *_cancel(stage, stop_act.reason, pending_only=True)]
        if decision.action is Action.HOLD and stage.held is None:
            hold = HoldStage(stage.name, stage.epoch, decision.rule, decision.reason, decision.category)
            return [*acts, hold, *_cancel(stage, hold.reason, pending_only=True)]
    if stage.held is not None:
        return [*acts, *_cancel(stage, "the stage is held", pending_only=True)]
    return acts or None


def _counts(stage: Stage, attempt: Attempt) -> bool:
    epochs = {s.token: s.epoch for s in stage.submissions.values()}
    return (
        not attempt.cancelled_by_us
        and not attempt.duplicate
        and epochs.get(attempt.token, stage.epoch) == stage.epoch
    )


def _why_stopped(state: RunState, need: str, stopped_now: Mapping[str, StopStage]) -> tuple[str, str] | None:
    if need in stopped_now:
        return stopped_now[need].reason, stopped_now[need].category
    other = state.stages.get(need)
    if other is None or other.completed is not None:
        return None
    stop = other.stopped
    return (str(stop.get("reason", "")), str(stop.get("category", "unknown"))) if stop else None


def _cancel(stage: Stage, reason: str, *, pending_only: bool) -> list[Act]:
    """Cancel what is queued; a running link of a complete or stopped stage ends by itself."""
    acts: list[Act] = []
    for link in stage.live_links():
        attempts = stage.attempts_of(link.token)
        running = bool(attempts) and (
            attempts[-1].state in ("RUNNING", "COMPLETING")
            or (attempts[-1].started is not None and not attempts[-1].ended)
        )
        if not (running and pending_only):
            acts.append(CancelLink(link.token, tuple(link.job_ids), reason))
    return acts


def _release(stage: Stage, chain: StageChain) -> list[Act]:
    """Release jobs that the scheduler requeued held after a failed launch, within the launch budget."""
    acts: list[Act] = []
    for attempt in stage.chain():
        record = attempt.record
        if record is None or not record.held or attempt.ended:
            continue
        if "launch failed" not in record.reason.lower() and record.reason != "JobHoldMaxRequeue":
            continue  # a person's hold is a person's to release
        earlier = sum(len(a.releases) for a in stage.attempts_of(attempt.token))
        if earlier < chain.budgets.launch:
            acts.append(ReleaseJob(stage.name, attempt.id, attempt.token, attempt.job_id, record.reason))
    return acts


def _exclude(stage: Stage, nodes: tuple[str, ...]) -> list[Act]:
    """Queued links whose list of nodes is not this one. Only while a job is pending can it be changed."""
    acts: list[Act] = []
    for link in stage.live_links():
        attempts = stage.attempts_of(link.token)
        pending = bool(attempts) and attempts[-1].state in PENDING and attempts[-1].started is None
        if pending and set(link.exclude) != set(nodes):
            acts.append(ExcludeNodes(stage.name, link.token, tuple(link.job_ids), nodes))
    return acts


def links_used(stage: Stage) -> int:
    """Links of this epoch that count against ``max_links``: one that only waited at the gate does not."""
    used = 0
    for link in stage.links():
        if link.epoch != stage.epoch or link.cancelled or link.outcome == "absent":
            continue
        attempts = stage.attempts_of(link.token)
        if attempts and attempts[-1].ended and all(a.gate == "wait" for a in attempts):
            continue
        used += 1
    return used


def _submit(
    state: RunState,
    stage: Stage,
    chain: StageChain,
    completed_now: set[str],
    tails: Mapping[str, str],
) -> list[SubmitLink]:
    """Links to queue so that ``lookahead`` of them are on their way."""
    links = stage.links()
    if any(s.outcome in ("intent", "uncertain") for s in links):
        return []  # settle those first: their job, if it exists, is the next link
    live = stage.live_links()
    waiting = [
        need for need in chain.needs if need not in completed_now and state.stage(need).completed is None
    ]
    if any(need not in tails for need in waiting):
        return []  # nothing to queue behind: the needed stage is held, or unsettled
    # One link ahead suffices while the stage cannot start yet.
    want = min(chain.lookahead, 1) if waiting else chain.lookahead
    room = min(want - len(live), chain.max_links - links_used(stage))
    if room <= 0:
        return []
    numbers = [s.link for s in links if s.outcome == "absent" and s.epoch == stage.epoch][:room]
    top = max((s.link for s in links), default=0)
    numbers += range(top + 1, top + 1 + room - len(numbers))
    acts: list[SubmitLink] = []
    previous = live[-1].token if live else None
    for link in numbers:
        after = (previous,) if previous else tuple(tails[need] for need in waiting)
        acts.append(SubmitLink(stage.name, link, stage.epoch, after))
        previous = acts[-1].token(state.run)
    return acts
