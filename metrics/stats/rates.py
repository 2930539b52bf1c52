"""Failure rates and times between failures, each with its bounds. Pure functions.

Failures are taken as a Poisson process that was watched for a given time (a time-terminated test). Every
function takes time in the caller's unit and answers in it, unless its name says another.
``tests/metrics/stats/test_rates.py`` has the oracles.
"""

from __future__ import annotations

from dataclasses import dataclass


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


def mttf(exposure: float, failures: int, level: float = 0.95) -> Estimate:
    """Mean time to failure from ``failures`` in ``exposure``; also MTBF, MTBI with their own counts."""
    raise NotImplementedError


def failure_rate(failures: int, exposure: float, level: float = 0.95) -> Estimate:
    """Failures per unit of ``exposure``; without failures 0 with a one-sided upper bound."""
    raise NotImplementedError


def per_1000_node_days(failures: int, node_days: float, level: float = 0.95) -> Estimate:
    """Failures per 1000 node-days."""
    raise NotImplementedError


def job_mttf_hours(nodes: int, per_1000: float) -> float:
    """Hours to the first failure of a job on ``nodes`` nodes, each with ``per_1000`` failures per 1000 days."""
    raise NotImplementedError


def share(successes: int, trials: int, level: float = 0.95) -> Estimate:
    """A share of ``trials`` with Wilson's interval; n: trials."""
    raise NotImplementedError
