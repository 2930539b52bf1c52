"""What to do next about a stage: one pure function, without clock, file or subprocess.

The allocation, the login node, a replay and a simulator call the same :func:`decide`. Each decision
names the rule that made it. ``tests/resiliency/test_policy.py`` has a row per rule, docs/decisions.md the
whole table. No loop is endless: restarts in an allocation are counted, each swap or shrink uses up a node,
and across allocations the budgets count cycles like attempts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .diagnosis import Verdict
from .taxonomy import Action, Budget, category


@dataclass(frozen=True)
class PastAttempt:
    """One ended attempt of the stage, or one cycle of an attempt that another cycle followed (``in_job``);
    oldest first in a history.

    ``progressed``: it committed a checkpoint past the step it resumed from (or completed something that
    need not be done again). ``step``: highest step reached. ``wall_s``: seconds of allocation used (0 for
    a cycle: its attempt has them). ``worked``: it got past the gate, so it was more than a launch.
    ``node``: where it failed, if that is known; this blames nobody.
    """

    category: str
    signature: str = ""
    step: int | None = None
    progressed: bool = False
    worked: bool = True
    wall_s: float = 0.0
    node: str | None = None
    in_job: bool = False


@dataclass(frozen=True)
class Budgets:
    """Allowances by cause; None: no limit."""

    unexplained: int = 3
    no_progress: int = 3
    same_signature: int = 2
    launch: int = 5
    max_links: int | None = None
    total_wall_s: float | None = None


@dataclass(frozen=True)
class Capacity:
    """What the next attempt could have. ``links_used``: links submitted so far in this epoch.

    The rest is what the running allocation still offers; ``in_job`` False: there is none.
    ``restarts_left``: in-job restarts not yet used; ``spares``: idle nodes that passed their checks;
    ``can_shrink``: the stage may go on without the lost node; ``time_left_s`` until the allocation's stop
    signal (None: unlimited); ``restart_cost_s``: what a restart needs before it is worth anything;
    ``straggler_swap``: a spare may take a slow node's place.
    """

    links_used: int = 0
    wall_used_s: float = 0.0
    in_job: bool = False
    restarts_left: int = 0
    spares: int = 0
    can_shrink: bool = False
    time_left_s: float | None = None
    restart_cost_s: float = 0.0
    straggler_swap: bool = False


@dataclass(frozen=True)
class Decision:
    """``action`` for the chain; ``rule`` names what made it, ``reason`` says it to a person.

    ``node``: the one that is left or swapped out; ``exclude``: nodes the work must not be given again.
    ``evidence``: the lines it rests on.
    """

    action: Action
    rule: str
    reason: str
    category: str = "unknown"
    exclude: tuple[str, ...] = ()
    in_job: bool = False  # said of a running allocation
    evidence: tuple[str, ...] = ()
    node: str | None = None

    @property
    def goes_on(self) -> bool:
        return self.action in (
            Action.REQUEUE,
            Action.REQUEUE_EXCLUDING,
            Action.ROLLBACK_CHECKPOINT,
            Action.CONTINUE,
            Action.RESTART_IN_JOB,
            Action.SWAP_NODE,
            Action.SHRINK,
        )

    @property
    def stays(self) -> bool:
        """Whether the work goes on in the same allocation."""
        return self.in_job and self.action in _STAYS

    def as_data(self) -> dict[str, Any]:
        """For the journal (``decision``); whoever journals it says whether it is only a shadow."""
        return {
            "action": self.action.value,
            "rule": self.rule,
            "reason": self.reason,
            "category": self.category,
            "exclude": list(self.exclude),
            "in_job": self.in_job,
            "evidence": list(self.evidence),
        }


#: Actions that need nothing but the allocation there is.
_STAYS = frozenset(
    {
        Action.CONTINUE,
        Action.RESTART_IN_JOB,
        Action.SWAP_NODE,
        Action.SHRINK,
        Action.ROLLBACK_CHECKPOINT,
    }
)
#: Actions that go on without a node.
_LEAVES = frozenset({Action.SWAP_NODE, Action.SHRINK, Action.REQUEUE_EXCLUDING})
#: Running elsewhere is how it is found out (exit 16), so less than proof is enough.
_TRY_ELSEWHERE = frozenset({"sdc_suspected"})
#: A verdict this sure that names a node may keep it out of later allocations.
SURE = 0.9
#: Ends of these kinds without anything saved say something about the work: it may never get further.
_IDLE = ("time_limit", "planned_rollover", "unknown", "hang")


def decide(
    verdict: Verdict, history: Sequence[PastAttempt], budgets: Budgets, capacity: Capacity
) -> Decision:
    """What to do after the attempt or cycle that ``verdict`` is about; ``history`` ends with it."""
    action, rule, reason = (
        _final(verdict)
        or _slow(verdict, capacity)
        or _repeated(verdict, history, budgets, capacity)
        or _used_up(verdict, history, budgets, capacity)
        or (_in_job(verdict, capacity) if capacity.in_job else _next_link(verdict))
    )
    node = verdict.node if action in _LEAVES else None
    told = verdict.row.node_fault and (verdict.confidence >= SURE or verdict.category in _TRY_ELSEWHERE)
    exclude = (node,) if node and told else ()
    return Decision(action, rule, reason, verdict.row.name, exclude, capacity.in_job, verdict.evidence, node)


_Said = tuple[Action, str, str]  # action, rule, reason


def _final(verdict: Verdict) -> _Said | None:
    """What no budget and no spare changes."""
    row = verdict.row
    if row.name == "healthy":
        return Action.NONE, "complete", "the stage is complete"
    if row.name == "user_cancelled":
        return Action.STOP, "user-cancelled", f"{verdict.reason}; not retried"
    if row.action is Action.HOLD:
        return Action.HOLD, f"category:{row.name}", verdict.reason
    if row.budget is Budget.TERMINAL:
        return Action.STOP, f"category:{row.name}", verdict.reason
    return None


def _slow(verdict: Verdict, capacity: Capacity) -> _Said | None:
    """A rank that is only slow ends nothing: it is swapped out where that is wanted and possible."""
    if verdict.row.name != "straggler" or not capacity.in_job:
        return None
    if not capacity.straggler_swap:
        return Action.CONTINUE, "straggler:reported", verdict.reason
    if not capacity.spares or verdict.node is None:
        return Action.CONTINUE, "straggler:no-spare", f"{verdict.reason}; no spare node"
    if _too_late(capacity):
        return Action.CONTINUE, "straggler:no-time-left", f"{verdict.reason}; not worth a restart any more"
    return Action.SWAP_NODE, "straggler:swap", verdict.reason


def _repeated(
    verdict: Verdict, history: Sequence[PastAttempt], budgets: Budgets, capacity: Capacity
) -> _Said | None:
    """The same failure at the same step: deterministic, unless only one node has shown it."""
    row = verdict.row
    if not history or row.budget is not Budget.UNEXPLAINED or not verdict.signature:
        return None
    step = history[-1].step
    if step is None:
        return None  # two equal exits prove nothing then: that is what the unexplained budget is for
    same = [past for past in history if past.signature == verdict.signature and past.step == step]
    if len(same) < budgets.same_signature:
        return None
    nodes = {past.node for past in same}
    alone = verdict.node is not None and nodes == {verdict.node}
    if alone and row.node_fault:
        return None  # it has not run elsewhere yet
    if alone and row.node_suspect and capacity.in_job and capacity.spares and not _too_late(capacity):
        return (
            Action.SWAP_NODE,
            "same-node-twice",
            f"{verdict.reason}: {len(same)} times at step {step}, on {verdict.node} only; "
            "another node will show whether it is the node",
        )
    where = f" on {', '.join(sorted(n for n in nodes if n))}" if len(nodes - {None}) > 1 else ""
    return (
        Action.STOP,
        "same-signature-same-step",
        f"{verdict.reason}: {len(same)} times at step {step}{where}, it is deterministic",
    )


def _trailing(history: Sequence[PastAttempt], keep: Budget) -> int:
    """How many attempts and cycles of this budget there are since the last that made progress."""
    count = 0
    for past in reversed(history):
        if past.progressed:
            break
        if category(past.category).budget is keep:
            count += 1
    return count


def _idle(history: Sequence[PastAttempt]) -> int:
    """How many in a row worked and saved nothing new.

    A lost node or a preemption before the first checkpoint says nothing about the work itself.
    """
    count = 0
    for past in reversed(history):
        if past.progressed:
            break
        if past.worked and past.category in _IDLE:
            count += 1
    return count


def _used_up(
    verdict: Verdict, history: Sequence[PastAttempt], budgets: Budgets, capacity: Capacity
) -> _Said | None:
    """The first allowance that is used up."""
    row = verdict.row
    if row.budget is Budget.UNEXPLAINED and (used := _trailing(history, row.budget)) >= budgets.unexplained:
        why = f"{used} attempts in a row failed without an explanation ({verdict.reason})"
        return Action.STOP, "budget:unexplained", why
    if row.budget is Budget.LAUNCH and (used := _trailing(history, row.budget)) >= budgets.launch:
        return Action.STOP, "budget:launch", f"{used} launches in a row failed ({verdict.reason})"
    if (idle := _idle(history)) >= budgets.no_progress:
        why = f"{idle} attempts in a row saved nothing new; give it more time or save more often"
        return Action.STOP, "budget:no-progress", why
    total, used_s = budgets.total_wall_s, capacity.wall_used_s
    if total is not None and used_s >= total:
        return Action.STOP, "budget:total-wall-time", f"used {used_s:.0f} s of {total:.0f} s"
    if budgets.max_links is not None and capacity.links_used >= budgets.max_links:
        why = f"all {budgets.max_links} links are used and the stage is not complete"
        return Action.STOP, "budget:max-links", why
    return None


def _next_link(verdict: Verdict) -> _Said:
    """The allocation is over: what the chain does."""
    row, reason = verdict.row, verdict.reason
    if row.action in (Action.STOP, Action.RESTART_IN_JOB, Action.CONTINUE):
        # Within budget: an error that looked like code may still have been the machine's.
        return Action.REQUEUE, f"retry:{row.name}", reason
    return row.action, f"category:{row.name}", reason


def _too_late(capacity: Capacity) -> bool:
    left = capacity.time_left_s
    return left is not None and left <= capacity.restart_cost_s


def _in_job(verdict: Verdict, capacity: Capacity) -> _Said:
    """What the running allocation can still do."""
    row, reason, node = verdict.row, verdict.reason, verdict.node
    if row.domain == "scheduler" and row.budget is Budget.FREE:
        return Action.REQUEUE, f"category:{row.name}", reason
    leave = Action.REQUEUE_EXCLUDING if row.node_fault else Action.REQUEUE
    if _too_late(capacity):
        left = capacity.time_left_s or 0.0
        return leave, "in-job:no-time-left", f"{reason}; {left:.0f} s are left, a start needs more"
    if row.node_fault and node is not None:
        # Losing a node is not a failure of the work: the restart it needs is not counted. Nodes run out.
        if capacity.spares:
            return Action.SWAP_NODE, "in-job:spare", f"{reason}; a spare takes the place of {node}"
        if capacity.can_shrink:
            return Action.SHRINK, "in-job:shrink", f"{reason}; no spare node, goes on without {node}"
        return leave, "in-job:no-spare", f"{reason}; no spare node, and not allowed to go on with fewer"
    if capacity.restarts_left <= 0:
        return leave, "in-job:no-restarts-left", f"{reason}; the restarts in the job are used up"
    if row.action is Action.ROLLBACK_CHECKPOINT:
        return Action.ROLLBACK_CHECKPOINT, "in-job:roll-back", reason
    return Action.RESTART_IN_JOB, f"in-job:{row.name}", reason


def shadowed(decision: Decision) -> Decision:
    """What is done while decisions are only recorded: a failure ends the attempt, no node is kept out."""
    if decision.action is Action.CONTINUE or not decision.stays:
        action = Action.REQUEUE if decision.action is Action.REQUEUE_EXCLUDING else decision.action
        return replace(decision, action=action, exclude=())
    reason = f"shadow: would {decision.action.value} by {decision.rule}; {decision.reason}"
    return replace(decision, action=Action.REQUEUE, rule="shadow", reason=reason, exclude=(), in_job=False)
