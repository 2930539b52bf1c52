"""Fleets with a known truth: nodes that fail at random, and some that fail more often."""

from __future__ import annotations

import random
from dataclasses import dataclass

from metrics.stats.lemons import NodeRecord, Policy, Ranking, rank

BASE = 6.5 / 1000  # failures a node-day: RSC-1, arXiv 2410.21680
LEMONS = 24  # of 2,000: 1.2 %, the lower end of the paper's 1.2 to 1.7 %


def poisson(dice: random.Random, mean: float) -> int:
    n, at = 0, dice.expovariate(1.0)
    while at < mean:
        n, at = n + 1, at + dice.expovariate(1.0)
    return n


@dataclass(frozen=True)
class Found:
    """What ``rank`` made of a fleet whose lemons are known."""

    ranking: Ranking
    truth: frozenset[str]

    @property
    def called(self) -> frozenset[str]:
        return frozenset(one.node for one in self.ranking.lemons)

    @property
    def hits(self) -> int:
        return len(self.called & self.truth)

    @property
    def wrong(self) -> int:
        return len(self.called - self.truth)


def records(
    seed: int,
    *,
    nodes: int = 2000,
    lemons: int = LEMONS,
    days: float = 90.0,
    times: tuple[float, float] = (10.0, 20.0),
    spread: float | None = None,
    busy: tuple[float, float] = (1.0, 1.0),
) -> tuple[list[NodeRecord], frozenset[str]]:
    """``times``: the lemons' rates over the base, uniform between. ``spread``: shape of a gamma distribution
    of the healthy nodes' rates (None: all the same). ``busy``: share of the days that a node was allocated.
    """
    dice = random.Random(seed)
    out = []
    for at in range(nodes):
        rate = BASE * (dice.gammavariate(spread, 1.0 / spread) if spread else 1.0)
        if at < lemons:
            rate = BASE * dice.uniform(*times)
        watched = days * dice.uniform(*busy)
        out.append(NodeRecord(f"n{at:04}", watched, poisson(dice, rate * watched)))
    dice.shuffle(out)
    return out, frozenset(f"n{at:04}" for at in range(lemons))


def looked_at(seed: int, policy: Policy | None = None, **how) -> Found:
    fleet, truth = records(seed, **how)
    return Found(rank(fleet, policy), truth)
