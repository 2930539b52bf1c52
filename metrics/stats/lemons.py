"""Which nodes fail more than their fleet, by more than luck explains. Pure functions.

Each node gets the probability that its rate is over ``factor`` times that of the healthy nodes
(:mod:`metrics.stats.prior`). Called are the likeliest ones, as many as keep the expected share of wrong ones
among them under ``fdr`` (Bayesian false discovery rate: Newton et al., Biostatistics 5 (2004)): among
thousands of nodes some fail twice by luck. ``tests/metrics/stats/test_lemons.py`` plants lemons in a fleet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from resiliency.daly import FAILURES_PER_1000_NODE_DAYS

from . import signals
from .gamma import lower
from .prior import Fleet, Posterior, fit, posterior

_PER_1000: Final = 1000.0
#: A node that was watched for less than a second, in days, was not.
_LEAST_DAYS: Final = 1.0 / 86400.0
_MOST_FAILURES: Final = 1_000_000
#: Failures of healthy nodes below which the fleet's own rate is a guess.
_FEW: Final = 5.0


@dataclass(frozen=True)
class NodeRecord:
    """What is known of a node in the window. ``node_days``: how long it was watched (allocated).

    ``failures``: those that this node caused, not those of jobs that it was merely part of. ``signals``: see
    :mod:`metrics.stats.signals`; one that is not known is left out, never 0.
    """

    node: str
    node_days: float
    failures: int
    signals: Mapping[str, float] = field(default_factory=dict)

    @property
    def watched(self) -> bool:
        """For long enough to say anything of it."""
        return self.node_days >= _LEAST_DAYS


@dataclass(frozen=True)
class Policy:
    """When a node is called a lemon. ``factor``: times the fleet's rate. ``fdr``: expected share of healthy
    nodes among those called, at most. ``least_failures`` of a node and ``least_nodes`` of a fleet: below,
    nobody is called. ``level``: of the intervals.
    """

    factor: float = 4.0
    fdr: float = 0.1
    least_failures: int = 2
    least_nodes: int = 4
    level: float = 0.95

    def __post_init__(self) -> None:
        if not (self.factor >= 1.0 and math.isfinite(self.factor)):
            raise ValueError(f"factor must be 1 or more: {self.factor}")
        if not (0.0 < self.fdr < 1.0 and 0.0 < self.level < 1.0):
            raise ValueError(f"fdr and level must lie between 0 and 1: {self.fdr}, {self.level}")


@dataclass(frozen=True)
class Standing:
    """One node against the fleet. Rates are failures per 1000 node-days.

    ``expected``: failures that the fleet's rate gives for its time. ``luck``: probability that a node of the
    fleet has as many or more. ``rate``: posterior mean, ``low`` and ``high`` its credible interval.
    ``probability``: that its rate is over ``factor`` times the fleet's. ``fdr``: expected share of healthy
    nodes among it and all ranked above. ``score``: its signals that are high for the fleet.
    """

    node: str
    node_days: float
    failures: int
    expected: float
    luck: float
    probability: float
    fdr: float
    lemon: bool
    factor: float
    fleet_rate: float
    level: float
    score: signals.Score
    posterior: Posterior = field(repr=False)

    @property
    def rate(self) -> float:
        return _PER_1000 * self.posterior.mean

    @cached_property
    def low(self) -> float:
        return _PER_1000 * self.posterior.quantile((1.0 - self.level) / 2.0)

    @cached_property
    def high(self) -> float:
        return _PER_1000 * self.posterior.quantile((1.0 + self.level) / 2.0)

    @cached_property
    def evidence(self) -> tuple[str, ...]:
        """Lines for a person, the strongest first; what is not known is said last."""
        times = (
            f", {self.failures / self.expected:.3g} times as many" if self.failures and self.expected else ""
        )
        lines = [
            f"{_counted(self.failures, 'failure')} in {self.node_days:.1f} node-days; a node of this fleet"
            f" ({self.fleet_rate:.3g} per 1000 node-days) has {self.expected:.2g}{times}"
        ]
        if self.failures:
            lines.append(f"as many or more by luck: probability {self.luck:.2g}")
        lines.append(
            f"rate {self.rate:.3g} per 1000 node-days ({self.level:.0%}: {self.low:.3g} to {self.high:.3g});"
            f" over {self.factor:g} times the fleet's with probability {self.probability:.3g}"
        )
        for name, value, bound in self.score.high:
            aside = "" if signals.SIGNALS[name].counts else "; shown only, a weak sign"
            lines.append(
                f"{name} {value:g}, {signals.QUANTILE:.0%} of nodes have at most {bound:g}"
                f" ({signals.SIGNALS[name].meaning}{aside})"
            )
        if self.score.known and self.score.absent:
            lines.append("not known: " + ", ".join(self.score.absent))
        return tuple(lines)


@dataclass(frozen=True)
class Ranking:
    """``standings``: the likeliest lemon first. ``fleet_rate`` with its bounds: of the nodes that are none,
    failures per 1000 node-days. ``notes``: what limits the answer, for a person."""

    standings: tuple[Standing, ...]
    fleet_rate: float
    fleet_low: float
    fleet_high: float
    nodes: int
    failures: int
    node_days: float
    policy: Policy
    notes: tuple[str, ...]

    @property
    def lemons(self) -> tuple[Standing, ...]:
        return tuple(one for one in self.standings if one.lemon)


def rank(records: Iterable[NodeRecord], policy: Policy | None = None) -> Ranking:
    """All nodes, the likeliest lemon first.

    Raises ValueError for a negative count or time, an unknown signal, or a node given twice.
    """
    policy = policy or Policy()
    seen = _checked(records)
    watched = [(one.node_days, one.failures) for one in seen if one.watched]
    fleet = fit(watched, policy.level)
    return Ranking(
        tuple(_standings(seen, fleet, policy, comparable=len(watched) >= policy.least_nodes)),
        _PER_1000 * fleet.rate,
        _PER_1000 * fleet.low,
        _PER_1000 * fleet.high,
        len(seen),
        sum(one.failures for one in seen),
        math.fsum(one.node_days for one in seen),
        policy,
        tuple(_notes(seen, fleet, policy)),
    )


def _standings(seen: list[NodeRecord], fleet: Fleet, policy: Policy, comparable: bool) -> Iterator[Standing]:
    """In order. A node with no time of its own is known by the fleet alone."""
    limits = signals.bounds(one.signals for one in seen)
    bound = policy.factor * max(fleet.rate, fleet.high)
    judged = []
    for one in seen:
        about = posterior(*((one.failures, one.node_days) if one.watched else (0, 0.0)), fleet)
        judged.append((about.exceeds(bound), signals.score(one.signals, limits), one, about))
    judged.sort(key=lambda row: (-row[0], -(row[1].value or 0), -row[2].failures, row[2].node))
    wrong = 0.0
    for at, (probability, score, one, about) in enumerate(judged, 1):
        wrong += 1.0 - probability
        expected = fleet.rate * one.node_days
        yield Standing(
            node=one.node,
            node_days=one.node_days,
            failures=one.failures,
            expected=expected,
            luck=lower(one.failures, expected) if one.failures and one.watched else 1.0,
            probability=probability,
            fdr=wrong / at,
            lemon=comparable and one.failures >= policy.least_failures and wrong / at <= policy.fdr,
            factor=policy.factor,
            fleet_rate=_PER_1000 * fleet.rate,
            level=policy.level,
            score=score,
            posterior=about,
        )


def _notes(seen: list[NodeRecord], fleet: Fleet, policy: Policy) -> Iterator[str]:
    days = sorted(one.node_days for one in seen if one.watched)
    if len(days) < policy.least_nodes:
        yield (
            f"{_counted(len(days), 'node')} watched: too few to tell a lemon from its fleet, nobody is called"
            f" (at least {policy.least_nodes})"
        )
    idle = [one for one in seen if not one.watched]
    if idle:
        failures = sum(one.failures for one in idle)
        yield (
            f"{_counted(len(idle), 'node')} without any node-days cannot be judged"
            f" ({_counted(failures, 'failure')}): {', '.join(one.node for one in idle[:10])}"
            + (" …" if len(idle) > 10 else "")
        )
    if fleet.seen < _FEW:
        yield (
            f"healthy nodes had {fleet.seen:.1f} failures: their rate is drawn towards the published"
            f" {FAILURES_PER_1000_NODE_DAYS:g} per 1000 node-days, its bounds are their own"
        )
    if days:
        middle = days[len(days) // 2]
        chance = power(_PER_1000 * fleet.rate, middle, 10.0, policy)
        yield (
            f"a node that fails 10 times as often as the fleet is called with probability {chance:.2g}"
            f" after {middle:.3g} node-days (the median)"
        )


def power(fleet_rate: float, node_days: float, times: float, policy: Policy | None = None) -> float:
    """Probability that a node which fails ``times`` as often as the fleet is called after ``node_days``.

    ``fleet_rate``: per 1000 node-days. For a large fleet; on the careful side, since it asks of the node
    alone what the policy asks of all called together. Raises ValueError for what is not over 0.
    """
    policy = policy or Policy()
    if not (fleet_rate > 0.0 and node_days > 0.0 and times > 0.0):
        raise ValueError(f"rate, node-days and times must be over 0: {fleet_rate}, {node_days}, {times}")
    rate = fleet_rate / _PER_1000
    fleet = Fleet(rate, rate, rate, 1024.0, 0.01, math.inf)

    def enough(failures: int) -> bool:
        return posterior(failures, node_days, fleet).exceeds(policy.factor * rate) >= 1.0 - policy.fdr

    low, high = max(1, policy.least_failures) - 1, max(1, policy.least_failures)
    while not enough(high):
        low, high = high, 2 * high
        if high > _MOST_FAILURES:  # so many that only the rates themselves matter
            return float(times > policy.factor)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return lower(high, times * rate * node_days)


def _checked(records: Iterable[NodeRecord]) -> list[NodeRecord]:
    seen: dict[str, NodeRecord] = {}
    for one in records:
        if one.node in seen:
            raise ValueError(f"node twice: {one.node}")
        if not (math.isfinite(one.node_days) and one.node_days >= 0.0):
            raise ValueError(f"{one.node}: node-days must not be negative: {one.node_days}")
        if not 0 <= one.failures <= _MOST_FAILURES or one.failures != int(one.failures):
            raise ValueError(
                f"{one.node}: failures must be a whole number from 0 to {_MOST_FAILURES}: {one.failures}"
            )
        signals.check(one.node, one.signals)
        seen[one.node] = one
    return list(seen.values())


def _counted(n: int, word: str) -> str:
    return f"{n} {word}" if n == 1 else f"{n} {word}s"
