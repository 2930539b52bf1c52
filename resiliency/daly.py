"""How often to save: what a save costs against what a failure costs. Pure functions.

``young`` and ``daly`` give the time between the starts of two saves, in the unit of their arguments, for a
cost ``delta`` and a mean time between failures ``mtbf``. Sources: Young, "A first order approximation to the
optimum checkpoint interval", CACM 17 (1974); Daly, "A higher order estimate of the optimum checkpoint
interval", FGCS 22 (2006), eq. 37. The failure rate starts from a published one and moves to what is seen:
a gamma prior over a Poisson rate. ``tests/resiliency/test_daly.py`` has the oracles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

DAY_S: Final = 86400.0
#: Failures per 1000 node-days of 8 GPUs: Meta, arXiv 2410.21680 (RSC-1).
FAILURES_PER_1000_NODE_DAYS: Final = 6.5
#: How many failures' worth of evidence the published rate is: after as many of our own, both weigh the same.
PRIOR_FAILURES: Final = 1.0


def young(delta: float, mtbf: float) -> float:
    """√(2δM)."""
    return math.sqrt(2.0 * delta * mtbf)


def daly(delta: float, mtbf: float) -> float:
    """√(2δM)·[1 + ⅓√(δ/2M) + ⅑(δ/2M)] − δ for δ < 2M, else M."""
    if delta >= 2.0 * mtbf:
        return mtbf
    ratio = delta / (2.0 * mtbf)
    return young(delta, mtbf) * (1.0 + math.sqrt(ratio) / 3.0 + ratio / 9.0) - delta


def mtbf_s(nodes: int, failures: int = 0, exposure_s: float = 0.0) -> float:
    """Mean time between failures of ``nodes`` nodes, after ``failures`` in ``exposure_s`` seconds of them."""
    prior_rate = max(1, nodes) * FAILURES_PER_1000_NODE_DAYS / 1000.0 / DAY_S
    prior_exposure = PRIOR_FAILURES / prior_rate
    return (prior_exposure + exposure_s) / (PRIOR_FAILURES + failures)


@dataclass(frozen=True)
class Facts:
    """What the choice rests on, in seconds. ``stall``: what a save costs training; ``duration``: what it
    takes until it counts; ``left``: of this link (None: unlimited)."""

    stall: float
    duration: float
    step: float
    mtbf: float
    left: float | None = None
    least: float = 0.0
    most: float = 3600.0


@dataclass(frozen=True)
class Choice:
    """Time between two saves, also in steps, and what decided it."""

    seconds: float
    steps: int
    reason: str


def choose(facts: Facts) -> Choice:
    """Daly's time, kept where it makes sense.

    Not under twice the duration of a save (one must be done before the next, and half of the time is enough
    to spend on writing); not over ``most``; not over a third of what is left of the link, so that not much
    is lost if its end comes without a warning.
    """
    best = daly(max(facts.stall, 1e-3), facts.mtbf)
    seconds, reason = best, "Daly's optimum for this cost and failure rate"
    if facts.left is not None and facts.left > 0 and facts.left / 3.0 < seconds:
        seconds, reason = facts.left / 3.0, "a third of what is left of the allocation"
    if facts.most < seconds:
        seconds, reason = facts.most, "the longest interval that is allowed"
    floor = max(facts.least, 2.0 * facts.duration, facts.step)
    if floor > seconds:
        seconds, reason = floor, "twice the time that a save takes until it counts"
    steps = max(1, round(seconds / facts.step)) if facts.step > 0 else 1
    return Choice(seconds, steps, reason)


def differs(old: float, new: float, by: float = 0.2) -> bool:
    """Whether a new interval is worth taking: small changes are noise."""
    return abs(new - old) > by * old
