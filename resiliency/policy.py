"""What to do next about a stage: one pure function, without clock, file or subprocess.

The allocation, the login node, a replay and a simulator call the same :func:`decide`. Each decision
names the rule that made it. ``tests/resiliency/test_policy.py`` has a row per rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .diagnosis import Verdict
from .taxonomy import Action, Budget, category


@dataclass(frozen=True)
class PastAttempt:
    """One ended attempt of the stage, oldest first in a history.

    ``progressed``: it committed a checkpoint past the step it resumed from (or completed something that
    need not be done again). ``step``: highest step reached. ``wall_s``: seconds of allocation used.
    ``worked``: it got past the gate, so it was more than a launch. ``drained``: it was asked to stop.
    """

    category: str
    signature: str = ""
    step: int | None = None
    progressed: bool = False
    worked: bool = True
    wall_s: float = 0.0
    node: str | None = None
    in_job: bool = False  # a cycle that another one followed in the same allocation


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
    signal (None: unlimited); ``restart_cost_s``: what a restart needs before it is worth anything.
    """

    links_used: int = 0
    wall_used_s: float = 0.0
    in_job: bool = False
    restarts_left: int = 0
    spares: int = 0
    can_shrink: bool = False
    time_left_s: float | None = None
    restart_cost_s: float = 0.0


@dataclass(frozen=True)
class Decision:
    """``action`` for the chain; ``rule`` names what made it, ``reason`` says it to a person."""

    action: Action
    rule: str
    reason: str
    category: str = "unknown"
    exclude: tuple[str, ...] = ()
    in_job: bool = False  # said of a running allocation

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
#: A verdict this sure that names a node may keep it out of later allocations.
SURE = 0.9


def _trailing(history: Sequence[PastAttempt], keep: Budget) -> int:
    """How many attempts of this budget there are since the last that made progress."""
    count = 0
    for past in reversed(history):
        if past.progressed:
            break
        if category(past.category).budget is keep:
            count += 1
    return count


def decide(
    verdict: Verdict, history: Sequence[PastAttempt], budgets: Budgets, capacity: Capacity
) -> Decision:
    """What to do after the attempt that ``verdict`` is about; ``history`` ends with that attempt."""
    row = verdict.row

    def say(action: Action, rule: str, reason: str) -> Decision:
        return Decision(action, rule, reason, row.name, _excluded(verdict, action), capacity.in_job)

    if row.name == "healthy":
        return say(Action.NONE, "complete", "the stage is complete")
    if row.name == "user_cancelled":
        return say(Action.STOP, "user-cancelled", f"{verdict.reason}; not retried")
    if row.action is Action.HOLD:
        return say(Action.HOLD, f"category:{row.name}", verdict.reason)
    if row.budget is Budget.TERMINAL:
        return say(Action.STOP, f"category:{row.name}", verdict.reason)

    last = history[-1] if history else None
    if last is not None and row.budget is Budget.UNEXPLAINED and verdict.signature:
        same = [p for p in history if p.signature == verdict.signature and p.step == last.step]
        # Without a step, two equal exits prove nothing: that is what the unexplained budget is for.
        if last.step is not None and len(same) >= budgets.same_signature:
            return say(
                Action.STOP,
                "same-signature-same-step",
                f"{verdict.reason}: {len(same)} times at step {last.step}, it is deterministic",
            )
    if row.budget is Budget.UNEXPLAINED:
        used = _trailing(history, Budget.UNEXPLAINED)
        if used >= budgets.unexplained:
            return say(
                Action.STOP,
                "budget:unexplained",
                f"{used} attempts in a row failed without an explanation ({verdict.reason})",
            )
    if row.budget is Budget.LAUNCH:
        used = _trailing(history, Budget.LAUNCH)
        if used >= budgets.launch:
            return say(Action.STOP, "budget:launch", f"{used} launches in a row failed ({verdict.reason})")
    idle = 0
    for past in reversed(history):
        if past.progressed:
            break
        # A lost node or a preemption before the first checkpoint says nothing about the work itself.
        if past.worked and past.category in ("time_limit", "planned_rollover", "unknown", "hang"):
            idle += 1
    if idle >= budgets.no_progress:
        return say(
            Action.STOP,
            "budget:no-progress",
            f"{idle} attempts in a row saved nothing new; give it more time or save more often",
        )
    if budgets.total_wall_s is not None and capacity.wall_used_s >= budgets.total_wall_s:
        return say(
            Action.STOP,
            "budget:total-wall-time",
            f"used {capacity.wall_used_s:.0f} s of {budgets.total_wall_s:.0f} s",
        )
    if budgets.max_links is not None and capacity.links_used >= budgets.max_links:
        return say(
            Action.STOP,
            "budget:max-links",
            f"all {budgets.max_links} links are used and the stage is not complete",
        )
    if capacity.in_job:
        return say(*_in_job(verdict, capacity))
    if row.action is Action.STOP or row.action is Action.RESTART_IN_JOB:
        # Within budget: an error that looked like code may still have been the machine's.
        return say(Action.REQUEUE, f"retry:{row.name}", verdict.reason)
    return say(row.action, f"category:{row.name}", verdict.reason)


def _in_job(verdict: Verdict, capacity: Capacity) -> tuple[Action, str, str]:
    """What the running allocation can still do: (action, rule, reason)."""
    row, reason = verdict.row, verdict.reason
    if row.name == "straggler" and not capacity.spares:
        return Action.CONTINUE, "in-job:no-spare-for-a-straggler", reason
    if row.domain == "scheduler" and row.budget is Budget.FREE:
        return Action.REQUEUE, f"category:{row.name}", reason
    leave = Action.REQUEUE_EXCLUDING if row.node_fault else Action.REQUEUE
    left = capacity.time_left_s
    if left is not None and left <= capacity.restart_cost_s:
        return leave, "in-job:no-time-left", f"{reason}; {left:.0f} s are left, a start needs more"
    if row.node_fault or row.name == "straggler":
        # Losing a node is not a failure of the work: the restarts it needs are not counted.
        if capacity.spares:
            return Action.SWAP_NODE, "in-job:spare", reason
        if capacity.can_shrink:
            return Action.SHRINK, "in-job:shrink", reason
        return leave, "in-job:no-spare", f"{reason}; no spare node, and not allowed to go on with fewer"
    if capacity.restarts_left <= 0:
        return Action.REQUEUE, "in-job:no-restarts-left", f"{reason}; the restarts in the job are used up"
    if row.action is Action.ROLLBACK_CHECKPOINT:
        return Action.ROLLBACK_CHECKPOINT, "in-job:roll-back", reason
    return Action.RESTART_IN_JOB, f"in-job:{row.name}", reason


def _excluded(verdict: Verdict, action: Action) -> tuple[str, ...]:
    """Nodes that later allocations must do without: only a fault that is provably the node's counts."""
    leaves = action in (Action.SWAP_NODE, Action.SHRINK, Action.REQUEUE_EXCLUDING)
    sure = verdict.row.node_fault and verdict.confidence >= SURE
    return (verdict.node,) if leaves and sure and verdict.node else ()


def shadowed(decision: Decision) -> Decision:
    """What is done while decisions are only recorded: a failure ends the attempt, nothing is excluded."""
    if not decision.stays:
        return replace(decision, exclude=())
    reason = f"shadow: would {decision.action.value} by {decision.rule}; {decision.reason}"
    return replace(decision, action=Action.REQUEUE, rule="shadow", reason=reason, exclude=(), in_job=False)
