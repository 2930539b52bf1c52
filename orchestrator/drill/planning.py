"""From faults as asked for to the plan that ranks and driver follow. Pure but for the dice it is given."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resiliency.errors import UsageError
from resiliency.faultkinds import OUTSIDE, RANK
from resiliency.faults import Fault

from ..plan import RunPlan, StagePlan
from .asked import Asked

PLAN = "faults.json"
#: Done before the first job is there: it is the start of a job that fails.
BEFORE_START = ("prolog-failure",)


@dataclass(frozen=True)
class Target:
    """The stage that is harmed. ``steps`` None: not known ahead."""

    stage: str
    world: int
    ranks_per_node: int
    steps: int | None = None

    @classmethod
    def of(cls, stage: StagePlan) -> Target:
        train: Mapping[str, Any] = stage.spec.get("train") or {}
        steps = train.get("steps")
        ranks = stage.ranks_per_node
        return cls(stage.name, stage.nodes * ranks, ranks, int(steps) if steps is not None else None)


def choose_stage(plan: RunPlan, wanted: str | None) -> StagePlan:
    """The named stage; else the first that trains, else the last. Raises UsageError."""
    names = [stage.name for stage in plan.stages]
    if wanted is not None:
        if wanted not in names:
            raise UsageError(f"there is no stage {wanted!r}", hint=f"stages: {', '.join(names)}")
        return plan.stage(wanted)
    trains = [stage for stage in plan.stages if "train" in stage.spec]
    return (trains or list(plan.stages)[-1:])[0]


def make_plan(asked: Sequence[Asked], target: Target, dice: random.Random) -> tuple[Fault, ...]:
    """What was left open is chosen: the step about the middle, the rank by the dice (not the first one,
    whose node holds the batch script, unless it is the only one). Raises UsageError."""
    return tuple(_fault(number, one, target, dice) for number, one in enumerate(asked, 1))


def _fault(number: int, asked: Asked, target: Target, dice: random.Random) -> Fault:
    kind = asked.kind
    if asked.rank is not None and asked.rank >= target.world:
        raise UsageError(
            f"--fault {asked.text}: stage {target.stage} has no rank {asked.rank}",
            hint=f"ranks are 0 to {target.world - 1}",
        )
    if asked.step is not None and target.steps is not None and asked.step > target.steps:
        raise UsageError(
            f"--fault {asked.text}: stage {target.stage} has {target.steps} steps",
            hint="choose an earlier step",
        )
    step = asked.step
    if step is None:
        step = 1 if asked.point or target.steps is None else max(1, target.steps // 2)
    rank, point = asked.rank, asked.point or kind.point
    # Not every rank comes to a point: there, whoever is first.
    if rank is None and asked.node is None and (kind.node or (kind.by == RANK and not point)):
        first = target.ranks_per_node if kind.node else 1
        rank = dice.randrange(min(first, target.world - 1), target.world)
    if kind.by == OUTSIDE and not kind.node:
        rank = None  # whoever gets there first says that the step is reached
    return Fault(
        id=f"{number}-{kind.name}",
        kind=kind.name,
        step=step,
        point=asked.point,
        rank=rank,
        # Only ranks on that node meet it; of an outside kind any rank says that the step is reached.
        node=asked.node if kind.by == RANK else None,
        seconds=asked.seconds or kind.seconds,
    )
