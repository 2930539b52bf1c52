"""What to change, from what was seen: how often to save, spares to hold, the cause to fix first. Pure.

``tests/metrics/stats/test_advice.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from resiliency.daly import daly, differs

from .gamma import upper

#: Failures of a cause below which its share may be chance.
_FEW: Final = 3


@dataclass(frozen=True)
class IntervalAdvice:
    """Seconds of training between two saves, with the ETTR expected of each (0 to 1).

    ``best_low`` and ``best_high``: the best interval at the bounds of the time between failures (None: no
    such bound). ``worth``: the change is more than noise. ``text``: for a person.
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
    them costs. ``lost_without``, ``lost_with``: share of the allocation that is held idle or waits, with none
    and with so many.
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
    """What one cause cost: ``node_hours`` of lost work and of getting over it, in ``failures`` failures."""

    cause: str
    failures: int
    node_hours: float


@dataclass(frozen=True)
class Fix:
    """``share_of_cost``: of what all causes cost. ``share_of_allocation``: what goodput would gain."""

    cause: str
    failures: int
    node_hours: float
    share_of_cost: float
    share_of_allocation: float
    text: str


def expected_ettr(
    interval_s: float, stall_s: float, mtbf_s: float, recovery_s: float, persist_s: float = 0.0
) -> float:
    """Share of wall-clock that is new training: τ / (M · e^(R/M) · (e^((τ+δ)/M) - 1)).

    Daly's complete model (FGCS 22 (2006)) for failures at random times with mean M between them:
    τ ``interval_s``, δ ``stall_s`` of a save, R ``recovery_s`` from a failure to training again. A save that
    goes on in the background counts ``persist_s`` after the stall; work of that time is lost too, which is
    taken as a longer R (exact to first order in 1/M). Queue time is part of R where there is any. Raises
    ValueError unless interval and M are over 0 and the rest is not negative.
    """
    if not all(math.isfinite(one) and one > 0.0 for one in (interval_s, mtbf_s)):
        raise ValueError(f"interval and time between failures must be over 0: {interval_s}, {mtbf_s}")
    if not all(math.isfinite(one) and one >= 0.0 for one in (stall_s, recovery_s, persist_s)):
        raise ValueError(f"stall and recovery must not be negative: {stall_s}, {recovery_s}, {persist_s}")
    cycle, back = (interval_s + stall_s) / mtbf_s, (recovery_s + persist_s) / mtbf_s
    if cycle + back > 700.0:
        return 0.0
    return interval_s / (mtbf_s * math.exp(back) * math.expm1(cycle))


def checkpoint_interval(
    now_s: float,
    stall_s: float,
    mtbf_s: float,
    recovery_s: float,
    low_s: float | None = None,
    high_s: float | None = None,
    persist_s: float = 0.0,
) -> IntervalAdvice:
    """The interval as it is (``now_s``) against Daly's best; ``low_s``, ``high_s``: bounds of ``mtbf_s``.

    Arguments and errors as :func:`expected_ettr`. No interval is called best that is shorter than a save
    takes until it counts. ``worth`` is false where the change is under a fifth, where ``now_s`` lies
    between the best at both bounds, or where it would gain under a thousandth of ETTR.
    """

    def best_at(mtbf: float) -> float:
        return max(daly(max(stall_s, 1e-3), mtbf), persist_s)

    ettr_now = expected_ettr(now_s, stall_s, mtbf_s, recovery_s, persist_s)
    best = best_at(mtbf_s)
    ettr_best = expected_ettr(best, stall_s, mtbf_s, recovery_s, persist_s)
    if not (low_s or mtbf_s) <= mtbf_s <= (high_s or mtbf_s):
        raise ValueError(f"bounds must enclose the time between failures: {low_s}, {mtbf_s}, {high_s}")
    best_low = None if low_s is None else best_at(low_s)
    best_high = None if high_s is None else best_at(high_s)
    within = best_low is not None and best_low <= now_s <= (math.inf if best_high is None else best_high)
    worth = differs(now_s, best) and not within and ettr_best - ettr_now >= 0.001
    text = (
        f"a save every {_time(now_s)} gives an expected ETTR of {ettr_now:.3f};"
        f" every {_time(best)} {ettr_best:.3f} (stall {_time(stall_s)}, a failure every {_time(mtbf_s)})"
    )
    if best_low is not None:
        bounds = (
            f"from {_time(best_low)} on" if best_high is None else f"{_time(best_low)} to {_time(best_high)}"
        )
        text += f"; best within the bounds of the time between failures: {bounds}"
    text += "" if worth else "; leave it"
    return IntervalAdvice(now_s, best, ettr_now, ettr_best, best_low, best_high, worth, text)


def spares(nodes: int, per_1000: float, replacement_hours: float) -> SpareAdvice:
    """For a job that needs ``nodes`` nodes, each failing ``per_1000`` times per 1000 node-days.

    A failed node is away for ``replacement_hours`` on average, whatever the distribution: the number away is
    Poisson with mean N · r_f · T (Palm's theorem, M/G/∞). While more are away than there are spares, all
    nodes wait. Raises ValueError for no node, a negative rate or time, or more nodes away than there are.
    """
    if nodes < 1:
        raise ValueError(f"a job has at least one node: {nodes}")
    if not all(math.isfinite(one) and one >= 0.0 for one in (per_1000, replacement_hours)):
        raise ValueError(f"rate and replacement time must not be negative: {per_1000}, {replacement_hours}")
    missing = nodes * per_1000 / 1000.0 * replacement_hours / 24.0
    if missing > nodes:
        raise ValueError(f"more nodes away than the job has: {missing:.3g} of {nodes}; no spares help")
    idle, best = 0.0, (math.inf, 0, 0.0, 0.0)
    without = 0.0
    for held in range(math.ceil(missing + 10.0 * math.sqrt(missing)) + 3):
        enough = upper(held + 1.0, missing)  # P(X <= held)
        lost = (idle + nodes * (1.0 - enough)) / (nodes + held)
        without = lost if held == 0 else without
        if lost < best[0]:
            best = (lost, held, 1.0 - enough, idle)
        idle += enough  # E[(s - X)+] grows by P(X <= s) with each spare
    lost, held, short, idle = best
    text = (
        f"{held} of {nodes + held} nodes as spares: {missing:.2g} are away on average, more than that"
        f" {100.0 * short:.3g} % of the time; held idle {24.0 * idle:.3g} node-hours a day; idle or waiting"
        f" in all {100.0 * lost:.3g} % of the allocation, without spares {100.0 * without:.3g} %"
    )
    return SpareAdvice(held, missing, short, 24.0 * idle, without, lost, text)


def first_to_fix(causes: Iterable[CauseCost], allocated_node_hours: float) -> tuple[Fix, ...]:
    """The dearest cause first. Raises ValueError for a negative cost, count or allocation.

    A cause that costs nothing is left out: there is nothing to gain.
    """
    found = list(causes)
    for one in found:
        if one.failures < 0 or not (math.isfinite(one.node_hours) and one.node_hours >= 0.0):
            raise ValueError(f"{one.cause}: {one.failures} failures, {one.node_hours} node-hours")
    if not (math.isfinite(allocated_node_hours) and allocated_node_hours >= 0.0):
        raise ValueError(f"allocated node-hours must not be negative: {allocated_node_hours}")
    total = math.fsum(one.node_hours for one in found)
    order = sorted(found, key=lambda one: (-one.node_hours, one.cause))
    return tuple(_fix(one, total, allocated_node_hours) for one in order if one.node_hours > 0.0)


def _fix(one: CauseCost, total: float, allocated: float) -> Fix:
    gain = one.node_hours / allocated if allocated else 0.0
    text = (
        f"{one.cause}: {one.node_hours:.1f} node-hours, {one.node_hours / total:.0%} of what failures cost;"
        f" without it goodput is {100.0 * gain:.2g} points higher"
        + (f" (only {one.failures} of them: may be chance)" if one.failures < _FEW else "")
    )
    return Fix(one.cause, one.failures, one.node_hours, one.node_hours / total, gain, text)


def _time(seconds: float) -> str:
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
