"""Which copies in the nodes' memory make up a whole state, and who gets what from whom. Pure functions.

May not import torch. ``tests/models/test_copies.py`` holds it to choosing the newest complete one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Found:
    """A copy that lies on a node. ``lineage``: of the processes that made it: copies of two never mix."""

    node: str
    name: str  # of the file
    step: int
    lineage: str
    owner: int  # rank whose state it is
    digest: str  # of model, layout and data


@dataclass(frozen=True)
class Seat:
    """A rank of this cycle and its node."""

    rank: int
    node: str


@dataclass(frozen=True)
class Source:
    """Where a rank's copy comes from. ``holder``: the rank that reads the file, maybe itself."""

    owner: int
    holder: int
    copy: Found


@dataclass(frozen=True)
class Choice:
    step: int
    lineage: str
    sources: tuple[Source, ...]  # one a rank, in order


def choose(found: Iterable[Found], seats: Sequence[Seat], digest: str, after: int) -> Choice | None:
    """The newest step after ``after`` of which every rank's copy is on some node; None: there is none."""
    by_node: dict[str, list[int]] = {}
    node_of = {seat.rank: seat.node for seat in seats}
    for seat in seats:
        by_node.setdefault(seat.node, []).append(seat.rank)
    groups: dict[tuple[int, str], dict[int, list[Found]]] = {}
    for copy in found:
        if copy.digest == digest and copy.step > after and copy.node in by_node:
            groups.setdefault((copy.step, copy.lineage), {}).setdefault(copy.owner, []).append(copy)
    for (step, lineage), owners in sorted(groups.items(), reverse=True):
        if not set(node_of) <= set(owners):
            continue
        sources = []
        for rank in sorted(node_of):
            here = [copy for copy in owners[rank] if copy.node == node_of[rank]]
            copy = min(here or owners[rank], key=lambda copy: (copy.node, copy.name))
            ranks = by_node[copy.node]
            # Others' copies are dealt out over the ranks of the node that holds them.
            holder = rank if here else ranks[rank % len(ranks)]
            sources.append(Source(rank, holder, copy))
        return Choice(step, lineage, tuple(sources))
    return None


def partner(seats: Sequence[Seat], rank: int) -> int | None:
    """The rank that keeps this rank's replica: on the next node of a ring; None: there is one node only."""
    nodes = sorted({seat.node for seat in seats})
    if len(nodes) < 2:
        return None
    ranks = {node: sorted(seat.rank for seat in seats if seat.node == node) for node in nodes}
    # In the order of ranks, so that the ring follows the launcher's and not the names.
    nodes.sort(key=lambda node: ranks[node][0])
    mine = next(seat.node for seat in seats if seat.rank == rank)
    following = nodes[(nodes.index(mine) + 1) % len(nodes)]
    place = ranks[mine].index(rank)
    return ranks[following][place % len(ranks[following])]
