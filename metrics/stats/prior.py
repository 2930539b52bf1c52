"""The fleet that a node is measured against: two groups, fitted to what all nodes did.

A node's failures are Poisson. Its rate is drawn from a gamma distribution: that of the healthy nodes, or, for
a small share of nodes, that of lemons, which is wide and lies well above (empirical Bayes with two groups:
Efron, Statistical Science 23 (2008)). Without the second group the lemons would pull the first one's mean
and spread up until they look normal. Fitted by marginal likelihood (negative binomial), the two groups
weighed by EM. Pure. ``tests/metrics/stats/test_prior.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from resiliency.daly import FAILURES_PER_1000_NODE_DAYS, PRIOR_FAILURES

from .gamma import gamma_quantile, upper

#: Lemons' rates, in multiples of the healthy: gamma with this shape and mean, so 5 to 95 % are 2 to 28
#: times. Ours, wide and on the low side: taking 1.2 % of nodes out brought the failures of Meta's large jobs
#: from 14 to 4 % (arXiv 2410.21680).
LEMON_SHAPE: Final = 2.0
LEMON_MEAN: Final = 12.0
#: What is believed of the lemons' share before anything is seen: one in a hundred nodes, from a hundred.
LEMON_PRIOR: Final = (1.0, 99.0)
MOST_LEMONS: Final = 0.2
#: Shapes tried for the spread of healthy nodes: standard deviation 1/√shape of the mean, 50 % to 3 %.
SHAPES: Final = (4.0, 8.0, 16.0, 32.0, 64.0, 1024.0)
#: The published rate counts as a node with this many failures in these node-days (as in resiliency.daly) and
#: a rate of its own: a log-logistic prior, which gives way wherever the fleet's own failures point.
_RATE_PRIOR: Final = (int(PRIOR_FAILURES), PRIOR_FAILURES * 1000.0 / FAILURES_PER_1000_NODE_DAYS)
_RATE_PRIOR_SHAPE: Final = 1.0
_GRID: Final = 0.05  # node-days are rounded to 5 % for the fit, so its cost does not grow with the fleet
_ROUNDS: Final = 200


@dataclass(frozen=True)
class Fleet:
    """Healthy nodes' mean ``rate`` (failures a node-day), its bounds, the ``shape`` of their spread.

    ``share``: of lemons. ``seen``: failures that the bounds rest on.
    """

    rate: float
    low: float
    high: float
    shape: float
    share: float
    seen: float


@dataclass(frozen=True)
class Posterior:
    """A node's rate: a mixture of gammas, each (weight, shape, rate parameter in node-days)."""

    parts: tuple[tuple[float, float, float], ...]

    @property
    def mean(self) -> float:
        return sum(weight * shape / days for weight, shape, days in self.parts)

    def exceeds(self, rate: float) -> float:
        """Probability that the node's rate is over ``rate`` (failures a node-day)."""
        return min(1.0, sum(weight * upper(shape, days * rate) for weight, shape, days in self.parts))

    def quantile(self, p: float) -> float:
        """By bisection between the quantiles of the parts."""
        ends = [gamma_quantile(p, shape, days) for weight, shape, days in self.parts if weight > 1e-12]
        low, high = min(ends), max(ends)
        while high - low > 1e-9 * high:
            middle = (low + high) / 2.0
            if self.exceeds(middle) > 1.0 - p:
                low = middle
            else:
                high = middle
        return (low + high) / 2.0


def _log_count(failures: int, days: float, shape: float, rate: float) -> float:
    """ln of the negative binomial: ``failures`` in ``days`` of a rate that is gamma with that mean."""
    prior = shape / rate
    return (
        math.lgamma(failures + shape) - math.lgamma(shape) - math.lgamma(failures + 1.0)
        + shape * math.log(prior / (prior + days))
        + failures * (math.log(days) - math.log(prior + days))
    )  # fmt: skip


def _is_lemon(failures: int, days: float, shape: float, rate: float, share: float) -> tuple[float, float]:
    """(probability of the second group, ln of the marginal likelihood)."""
    healthy = math.log1p(-share) + _log_count(failures, days, shape, rate)
    lemon = math.log(share) + _log_count(failures, days, LEMON_SHAPE, LEMON_MEAN * rate)
    top = max(healthy, lemon)
    total = top + math.log(math.exp(healthy - top) + math.exp(lemon - top))
    return math.exp(lemon - total), total


def _grouped(records: Iterable[tuple[float, int]]) -> list[tuple[int, float, int]]:
    """(nodes, mean node-days, failures) of nodes that did nearly the same."""
    groups: dict[tuple[int, int], list[float]] = {}
    for days, failures in records:
        group = groups.setdefault((failures, round(math.log(days) / _GRID)), [0.0, 0.0])
        group[0] += 1
        group[1] += days
    return [(int(n), days / n, failures) for (failures, _), (n, days) in sorted(groups.items())]


def _start(records: Sequence[tuple[float, int]]) -> float:
    """Rate of the 95 % of nodes with the fewest failures: one lemon may have more than all others."""
    kept = sorted(records, key=lambda one: one[1])[: max(1, math.ceil(len(records) * 0.95) - 1)]
    failures, days = sum(one[1] for one in kept), sum(one[0] for one in kept)
    return (_RATE_PRIOR[0] + failures) / (_RATE_PRIOR[1] + days)


def _fit(groups: list[tuple[int, float, int]], shape: float, rate: float) -> tuple[float, float, float]:
    """(rate, share, ln likelihood with priors) for one shape."""
    nodes = sum(group[0] for group in groups)
    share = LEMON_PRIOR[0] / sum(LEMON_PRIOR)
    best = -math.inf
    for _ in range(_ROUNDS):
        lemons, total = 0.0, 0.0
        believed = 1.0 / (1.0 + rate * _RATE_PRIOR[1] / _RATE_PRIOR_SHAPE)
        counted, watched = believed * _RATE_PRIOR[0], believed * _RATE_PRIOR[1]
        for n, days, failures in groups:
            lemon, log_likelihood = _is_lemon(failures, days, shape, rate, share)
            lemons += n * lemon
            total += n * log_likelihood
            weight = n * (1.0 - lemon) / (1.0 + rate * days / shape)
            counted += failures * weight
            watched += days * weight
        total += _log_count(_RATE_PRIOR[0], _RATE_PRIOR[1], _RATE_PRIOR_SHAPE, rate)
        total += LEMON_PRIOR[0] * math.log(share) + LEMON_PRIOR[1] * math.log1p(-share)
        if abs(total - best) <= 1e-7 * abs(total):
            break
        best = total
        rate = counted / watched
        share = min(MOST_LEMONS, (LEMON_PRIOR[0] + lemons) / (sum(LEMON_PRIOR) + nodes))
    return rate, share, total


def fit(records: Iterable[tuple[float, int]], level: float = 0.95) -> Fleet:
    """The fleet behind (node-days over 0, failures) of each node; bounds of its rate at ``level``.

    Only the healthy group sets the rate (the lemons' pull on it is left out on purpose). Meta's published
    rate holds it where the fleet has seen next to nothing.
    """
    seen = list(records)
    groups = _grouped(seen)
    rate = _start(seen) if seen else _RATE_PRIOR[0] / _RATE_PRIOR[1]
    best: tuple[float, float, float, float] | None = None
    for shape in SHAPES if groups else SHAPES[-1:]:
        rate, share, total = _fit(groups, shape, rate)
        if best is None or total > best[0]:
            best = (total, rate, share, shape)
    assert best is not None
    _, rate, share, shape = best
    counted = watched = 0.0
    for n, days, failures in groups:
        healthy = n * (1.0 - _is_lemon(failures, days, shape, rate, share)[0])
        counted += healthy * failures
        watched += healthy * days
    tail = (1.0 - level) / 2.0
    low = gamma_quantile(tail, counted) / watched if counted > 0.01 else 0.0
    high = gamma_quantile(1.0 - tail, counted + 1.0) / watched if watched > 0.0 else math.inf
    return Fleet(rate, low, high, shape, share, counted)


def posterior(failures: int, days: float, fleet: Fleet) -> Posterior:
    """What is known of the rate of a node with ``failures`` in ``days`` node-days."""
    lemon = fleet.share if days <= 0.0 else (
        _is_lemon(failures, days, fleet.shape, fleet.rate, fleet.share)[0]
    )  # fmt: skip
    return Posterior(
        (
            (1.0 - lemon, fleet.shape + failures, fleet.shape / fleet.rate + days),
            (lemon, LEMON_SHAPE + failures, LEMON_SHAPE / (LEMON_MEAN * fleet.rate) + days),
        )
    )
