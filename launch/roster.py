"""Which nodes train in the next cycle, and in which order. Pure.

A node keeps its place, so that what it holds in memory stays its own ranks'; a spare takes a lost one's.
``tests/launch/test_roster.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Roster:
    """``nodes`` in rank order; ``swapped``: (out, in) of each place that changed hands."""

    nodes: tuple[str, ...]
    swapped: tuple[tuple[str, str], ...] = ()


def next_roster(before: Sequence[str], usable: Sequence[str], count: int) -> Roster:
    """``before``: the last cycle's nodes (empty: the first cycle); ``usable``: in the allocation's order.

    Raises ValueError with fewer usable nodes than ``count``.
    """
    if len(usable) < count:
        raise ValueError(f"{len(usable)} usable nodes are fewer than {count}")
    if not before:
        return Roster(tuple(usable[:count]))
    kept = [node for node in before if node in usable]
    spares = [node for node in usable if node not in before]
    if len(kept) >= count and len(before) > count:
        return Roster(tuple(kept[:count]))
    nodes: list[str] = []
    swapped: list[tuple[str, str]] = []
    for node in before:
        if node in usable:
            nodes.append(node)
        elif spares and len(kept) + len(swapped) < count:
            swapped.append((node, spares.pop(0)))
            nodes.append(swapped[-1][1])
    nodes += spares[: max(0, count - len(nodes))]  # the stage had gone on with fewer
    return Roster(tuple(nodes), tuple(swapped))
