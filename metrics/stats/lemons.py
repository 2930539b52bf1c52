"""Which nodes fail more than their fleet, by more than luck explains. Pure functions.

``tests/metrics/stats/test_lemons.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


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


@dataclass(frozen=True)
class Policy:
    """When a node is called a lemon. ``factor``: times the fleet's rate. ``fdr``: wrongly called of those
    called, at most, as the model expects it. ``least_failures`` and ``least_nodes``: below, nobody is called.
    """

    factor: float = 4.0
    fdr: float = 0.05
    least_failures: int = 2
    least_nodes: int = 4
    level: float = 0.95


@dataclass(frozen=True)
class Standing:
    """One node against the fleet. Rates are failures per 1000 node-days.

    ``expected``: failures that the fleet's rate gives for its time. ``rate``: posterior mean, ``low`` and
    ``high`` its credible interval. ``probability``: that its rate is over ``factor`` times the fleet's.
    ``fdr``: expected share of healthy nodes among it and all ranked above. ``score``: of its ``signals``,
    how many are among the fleet's worst (None: none known). ``evidence``: lines for a person.
    """

    node: str
    node_days: float
    failures: int
    expected: float
    rate: float
    low: float
    high: float
    probability: float
    fdr: float
    lemon: bool
    score: float | None
    evidence: tuple[str, ...]


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
    factor: float
    notes: tuple[str, ...]

    @property
    def lemons(self) -> tuple[Standing, ...]:
        return tuple(one for one in self.standings if one.lemon)


def rank(records: Iterable[NodeRecord], policy: Policy | None = None) -> Ranking:
    """All nodes, the likeliest lemon first. Raises ValueError for a negative count or time, or a node twice."""
    raise NotImplementedError
