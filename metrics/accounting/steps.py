"""Whether a step was worth its time: productive, recomputed, provisional or lost. Pure.

A step belongs to the cycle that did it. What a later cycle had to do again was lost; what it did again and
kept is recomputed; the rest is productive once something persisted holds it. ``docs/accounting.md``,
``tests/metrics/accounting/test_steps.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Reach:
    """A cycle's steps: ``base`` it went on from (None: not known, or none was done), the highest ``reached``,
    the highest ``saved`` and not set aside."""

    base: int | None
    reached: int | None
    saved: int | None


@dataclass(frozen=True)
class Bounds:
    """What decides on a cycle's steps. ``high``: reached by earlier cycles. ``keep``: a later cycle went on
    from there (None: none did). ``saved``: persisted by it or a later one. ``complete``: the stage is;
    ``frozen``: it will not go on, so that what is not saved by now never will be."""

    high: int = 0
    keep: int | None = None
    saved: int = 0
    complete: bool = False
    frozen: bool = False

    def kind(self, step: int) -> str:
        if self.keep is not None and step > self.keep:
            return "lost"
        if self.frozen and step > self.saved:
            return "lost"
        if step <= self.high:
            return "recomputing"
        return "productive" if self.complete or step <= self.saved else "provisional"

    @property
    def limit(self) -> int | None:
        """The highest step that is not lost; None: none is."""
        limits = [step for step in (self.keep, self.saved if self.frozen else None) if step is not None]
        return min(limits, default=None)

    def cuts(self) -> frozenset[int]:
        """Steps after which the answer is another one."""
        found = {self.high, self.saved, self.saved if self.keep is None else self.keep}
        return frozenset(step for step in found if self.kind(step) != self.kind(step + 1))

    def lost_steps(self, reach: Reach) -> int:
        """How many of a cycle's steps were thrown away."""
        if self.limit is None or reach.reached is None:
            return 0
        return max(0, reach.reached - max(self.limit, reach.base or 0))


def bounds(cycles: Sequence[Reach], *, complete: bool = False, terminal: bool = False) -> list[Bounds]:
    """Of each cycle of a stage, over all its attempts, in order.

    ``terminal``: the stage is complete, stopped or cancelled.
    """
    found: list[Bounds] = []
    highs, high = [], 0
    for cycle in cycles:
        highs.append(high)
        high = max(high, cycle.reached or 0)
    keep: int | None = None
    saved = 0
    for cycle, before in zip(reversed(cycles), reversed(highs), strict=True):
        saved = max(saved, cycle.saved or 0)
        found.append(Bounds(before, keep, saved, complete, terminal and not complete))
        if cycle.base is not None:
            keep = cycle.base if keep is None else min(keep, cycle.base)
    return found[::-1]
