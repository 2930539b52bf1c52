"""What to change, from what was seen. Pure functions. ``tests/metrics/stats/test_advice.py``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class IntervalAdvice:
    """Time of training between two saves, seconds, with the ETTR expected of each (0 to 1).

    ``best_low`` and ``best_high``: the best interval at the bounds of the time between failures (None: none
    known). ``worth``: whether the change is more than noise. ``text``: for a person.
    """

    now: float
    best: float
    ettr_now: float
    ettr_best: float
    best_low: float | None
    best_high: float | None
    worth: bool
    text: str


@dataclass(frozen=True)
class SpareAdvice:
    """``spares``: the number with the least node-time lost. ``missing``: nodes away at any time, mean.

    ``short``: share of time in which more than ``spares`` are away. ``idle_node_hours_per_day``: what holding
    them costs. ``lost_without``, ``lost_with``: share of the allocation that is idle or waits, with none and
    with so many.
    """

    spares: int
    missing: float
    short: float
    idle_node_hours_per_day: float
    lost_without: float
    lost_with: float
    text: str


@dataclass(frozen=True)
class CauseCost:
    """What one cause cost: ``node_hours`` lost and spent on getting over it, in ``failures`` failures."""

    cause: str
    failures: int
    node_hours: float


@dataclass(frozen=True)
class Fix:
    """``share_of_cost``: of what all causes cost; ``share_of_allocation``: what goodput would gain."""

    cause: str
    failures: int
    node_hours: float
    share_of_cost: float
    share_of_allocation: float
    text: str


def checkpoint_interval(
    now_s: float,
    stall_s: float,
    mtbf_s: float,
    recovery_s: float,
    low_s: float | None = None,
    high_s: float | None = None,
) -> IntervalAdvice:
    """``stall_s``: what a save costs training. ``recovery_s``: failure to training again. ``low_s`` and
    ``high_s``: bounds of ``mtbf_s``. Raises ValueError for what is not positive (stall and recovery may be 0)."""
    raise NotImplementedError


def spares(nodes: int, per_1000: float, replacement_hours: float) -> SpareAdvice:
    """For a job that needs ``nodes`` nodes, each failing ``per_1000`` times per 1000 node-days."""
    raise NotImplementedError


def first_to_fix(causes: Iterable[CauseCost], allocated_node_hours: float) -> tuple[Fix, ...]:
    """The dearest cause first."""
    raise NotImplementedError
