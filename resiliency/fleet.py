"""All ranks of a cycle, from what their nodes report: one row a rank, the newest counts.

Rows are short lists, because ten thousand ranks send one every ten seconds. A row that makes no sense is left
out, never an error: a supervisor must not fall over an agent's word.
``tests/resiliency/test_fleet.py``, cost: ``scripts/bench/bench_heartbeat.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from .hang import RankView
from .steprecord import Snapshot
from .straggler import Digest, digest


def row(snapshot: Snapshot, now: float, state: str = "?") -> list[Any]:
    """A record as it is sent; ``now`` is CLOCK_MONOTONIC of the rank's node. Columns are only ever added:

    rank, step, section, beats, age_s, in_collective, compute_median_s, compute_count, compute_mad_s, pid,
    state, collectives, slowest.
    """
    compute = digest(snapshot.compute_times)
    return [
        snapshot.rank,
        snapshot.step,
        snapshot.section,
        snapshot.beats,
        round(max(0.0, now - snapshot.beat), 3),
        int(snapshot.in_collective),
        float(f"{compute.median_s:.4g}"),
        compute.count,
        float(f"{compute.mad_s:.3g}"),
        snapshot.pid,
        state,
        snapshot.collectives,
        # Up, not off: a limit must not become tighter than what was seen.
        {name: float(f"{seconds * 1.001:.4g}") for name, seconds in snapshot.slowest.items()},
    ]


#: Of the columns after the seventh.
_ABSENT: Final[list[Any]] = [0, 0.0, 0, "?", 0, {}]


def _read(node: str, given: Sequence[Any]) -> tuple[RankView, Digest]:
    rank, step, section, beats, age_s, in_collective, median_s, *more = given
    more = more[: len(_ABSENT)]
    count, mad_s, pid, state, collectives, slowest = [*more, *_ABSENT[len(more) :]]
    seen = RankView(
        rank=int(rank),
        node=node,
        section=str(section),
        step=None if step is None else int(step),
        beats=int(beats),
        age_s=float(age_s),
        in_collective=bool(in_collective),
        pid=int(pid),
        state=str(state),
        slowest={str(name): float(seconds) for name, seconds in slowest.items()},
        collectives=int(collectives),
    )
    return seen, Digest(int(count), float(median_s or 0.0), float(mad_s))


class Fleet:
    """One cycle's ranks. ``now`` is the supervisor's monotonic clock throughout."""

    def __init__(self) -> None:
        self._ranks: dict[int, tuple[RankView, Digest, float]] = {}
        self._max: int | None = None

    def update(self, node: str, rows: Iterable[Sequence[Any]], now: float) -> list[RankView]:
        """Take a node's report; what it says, to learn from."""
        news = []
        for given in rows:
            try:
                seen, compute = _read(node, given)
            except (TypeError, ValueError, AttributeError):
                continue
            self._ranks[seen.rank] = seen, compute, now
            if seen.step is not None and (self._max is None or seen.step > self._max):
                self._max = seen.step
            news.append(seen)
        return news

    def views(self, now: float) -> list[RankView]:
        """Every rank as of ``now``, in their order: what was not heard since is taken as no progress."""
        found = []
        for rank in sorted(self._ranks):
            seen, _, at = self._ranks[rank]
            since = max(0.0, now - at)
            found.append(replace(seen, age_s=seen.age_s + since, stale_s=since))
        return found

    def compute_times(self) -> Mapping[int, Digest]:
        """Rank → its compute times, for :func:`resiliency.straggler.slow`."""
        return {rank: compute for rank, (_, compute, _) in self._ranks.items()}

    def node_of(self, rank: int) -> str | None:
        known = self._ranks.get(rank)
        return known[0].node if known else None

    @property
    def max_step(self) -> int | None:
        """The furthest step of any rank."""
        return self._max

    @property
    def min_step(self) -> int | None:
        """The step of the rank that is furthest behind; None while one has none."""
        steps = [seen.step for seen, _, _ in self._ranks.values()]
        known = [step for step in steps if step is not None]
        return min(known) if known and len(known) == len(steps) else None

    @property
    def slowest(self) -> dict[str, float]:
        """Section → its slowest honest pass by any rank."""
        found: dict[str, float] = {}
        for seen, _, _ in self._ranks.values():
            for section, seconds in seen.slowest.items():
                found[section] = max(seconds, found.get(section, 0.0))
        return found
