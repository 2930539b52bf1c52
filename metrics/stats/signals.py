"""What else speaks against a node: the seven signals of Meta's paper, each against the fleet. Pure.

Source: arXiv 2410.21680, section on lemon nodes; there too they are taken over 28 days and each has a bound
drawn from the fleet's distribution. They overlap with the failures and with each other, so they make a score
beside the probability and do not enter it. ``tests/metrics/stats/test_signals.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

WINDOW_DAYS: Final = 28.0
#: A value is high where at least this share of the nodes that have the signal lie below it: lemons are 1.2 to
#: 1.7 % of nodes in the paper.
QUANTILE: Final = 0.98
#: Nodes with a known value, below which a quantile says nothing.
LEAST_NODES: Final = 50


@dataclass(frozen=True)
class Signal:
    """``counts``: whether it enters the score. The paper found no strong tie between exclusions by users and
    failures, so that one is shown and does not count."""

    name: str
    meaning: str
    counts: bool = True


_TABLE: Final = (
    Signal("excl_jobid_count", "jobs whose users excluded the node", counts=False),
    Signal("xid_cnt", "different Xid errors of its GPUs"),
    Signal("tickets", "repair tickets"),
    Signal("out_count", "times it was taken out of the scheduler"),
    Signal("multi_node_node_fails", "multi-node jobs that failed by it"),
    Signal("single_node_node_fails", "single-node jobs that failed by it"),
    Signal("single_node_node_failure_rate", "share of its single-node jobs that failed by it"),
)
SIGNALS: Final[dict[str, Signal]] = {signal.name: signal for signal in _TABLE}


@dataclass(frozen=True)
class Score:
    """``high``: the signals that are, with value and bound. ``known`` and ``absent``: names of the others.

    ``value``: how many of those that count are high; None where no bound could be drawn.
    """

    high: tuple[tuple[str, float, float], ...]
    known: tuple[str, ...]
    absent: tuple[str, ...]
    value: int | None


def check(node: str, values: Mapping[str, float]) -> None:
    """Raises ValueError for a signal that is not in the table or not a number from 0 on."""
    for name, value in values.items():
        if name not in SIGNALS:
            raise ValueError(f"{node}: no such signal: {name!r} (known: {', '.join(SIGNALS)})")
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{node}: {name} must not be negative: {value}")


def bounds(fleet: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Signal -> the value that :data:`QUANTILE` of the nodes do not exceed; only where enough know it."""
    seen: dict[str, list[float]] = {}
    for values in fleet:
        for name, value in values.items():
            seen.setdefault(name, []).append(value)
    return {
        name: sorted(found)[math.ceil(QUANTILE * len(found)) - 1]
        for name, found in seen.items()
        if len(found) >= LEAST_NODES
    }


def score(values: Mapping[str, float], limits: Mapping[str, float]) -> Score:
    """One node's signals against the ``limits`` of its fleet: high is what lies over them."""
    known = tuple(name for name in SIGNALS if name in values and name in limits)
    high = tuple((name, values[name], limits[name]) for name in known if values[name] > limits[name])
    counting = [name for name in known if SIGNALS[name].counts]
    return Score(
        high,
        tuple(name for name in SIGNALS if name in values),
        tuple(name for name in SIGNALS if name not in values),
        sum(SIGNALS[name].counts for name, _, _ in high) if counting else None,
    )
