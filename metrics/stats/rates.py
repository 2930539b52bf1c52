"""Failure rates and times between failures, each with its bounds. Pure functions.

Failures are taken as a Poisson process that was watched for a given time (a time-terminated test). Every
function takes time in the caller's unit and answers in it, unless its name says another. Source of the
bounds: MIL-HDBK-338B (chi-square, Garwood's for a Poisson mean); Wilson, JASA 22 (1927) for
shares. ``tests/metrics/stats/test_rates.py`` has the oracles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from .gamma import chi_square_quantile

LEVEL: Final = 0.95


@dataclass(frozen=True)
class Estimate:
    """``value`` with ``low`` and ``high`` at confidence ``level``, from ``n`` events.

    None: not known (no failures: a mean time between them has a ``low`` alone; nothing observed: nothing).
    """

    value: float | None
    low: float | None
    high: float | None
    level: float
    n: int


def _check(exposure: float, failures: int, level: float) -> None:
    if not (math.isfinite(exposure) and exposure >= 0.0):
        raise ValueError(f"observed time must not be negative: {exposure}")
    if failures < 0 or failures != int(failures):
        raise ValueError(f"failures must be a whole number from 0 on: {failures}")
    if not 0.0 < level < 1.0:
        raise ValueError(f"a confidence level must lie between 0 and 1, both left out: {level}")


def mttf(exposure: float, failures: int, level: float = LEVEL) -> Estimate:
    """Mean time to failure T / r from ``failures`` in ``exposure``; also MTBF and MTBI with their own counts.

    Bounds: 2T / χ²(1-α/2; 2r+2) and 2T / χ²(α/2; 2r). Without failures only the one-sided lower bound
    2T / χ²(1-α; 2) = T / -ln α. Raises ValueError for a negative time or count.
    """
    _check(exposure, failures, level)
    if exposure == 0.0:
        return Estimate(None, None, None, level, failures)
    alpha = 1.0 - level
    if failures == 0:
        return Estimate(None, 2.0 * exposure / chi_square_quantile(level, 2.0), None, level, 0)
    low = 2.0 * exposure / chi_square_quantile(1.0 - alpha / 2.0, 2.0 * failures + 2.0)
    high = 2.0 * exposure / chi_square_quantile(alpha / 2.0, 2.0 * failures)
    return Estimate(exposure / failures, low, high, level, failures)


def failure_rate(failures: int, exposure: float, level: float = LEVEL) -> Estimate:
    """Failures per unit of ``exposure``: the reciprocal of :func:`mttf` with its bounds.

    Without failures: 0, from 0 to the one-sided upper bound. Errors as :func:`mttf`.
    """
    time = mttf(exposure, failures, level)
    if time.low is None:
        return Estimate(None, None, None, level, failures)
    if time.value is None or time.high is None:
        return Estimate(0.0, 0.0, 1.0 / time.low, level, 0)
    return Estimate(1.0 / time.value, 1.0 / time.high, 1.0 / time.low, level, failures)


def per_1000_node_days(failures: int, node_days: float, level: float = LEVEL) -> Estimate:
    """Failures per 1000 node-days, as Meta counts them (arXiv 2410.21680). Errors as :func:`mttf`."""
    return failure_rate(failures, node_days / 1000.0, level)


def job_mttf_hours(nodes: int, per_1000: float) -> float:
    """Hours between failures of a job on ``nodes`` nodes with ``per_1000`` failures per 1000 node-days each.

    1 / (N · r_f): the nodes are in series, one failure stops all (Meta, arXiv 2410.21680). Infinite where
    nothing fails. Raises ValueError for no node or a negative rate.
    """
    if nodes < 1:
        raise ValueError(f"a job has at least one node: {nodes}")
    if not (math.isfinite(per_1000) and per_1000 >= 0.0):
        raise ValueError(f"a failure rate must not be negative: {per_1000}")
    return 24.0 * 1000.0 / (nodes * per_1000) if per_1000 else math.inf


def share(successes: int, trials: int, level: float = LEVEL) -> Estimate:
    """``successes`` / ``trials`` with Wilson's score interval; ``n``: the trials.

    Raises ValueError where one is negative or there are more successes than trials.
    """
    _check(float(trials), successes, level)
    if successes > trials:
        raise ValueError(f"more successes than trials: {successes} of {trials}")
    if trials == 0:
        return Estimate(None, None, None, level, 0)
    z = NormalDist().inv_cdf(0.5 + level / 2.0)
    p = successes / trials
    weight = 1.0 + z * z / trials
    centre = (p + z * z / (2.0 * trials)) / weight
    half = z * math.sqrt(p * (1.0 - p) / trials + z * z / (4.0 * trials * trials)) / weight
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == trials else min(1.0, centre + half)
    return Estimate(p, low, high, level, trials)
