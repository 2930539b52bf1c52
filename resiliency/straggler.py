"""Which rank is slow against its peers, by what it does itself in a step.

Pure. The time of a whole step is the same for ranks that wait for each other; what counts is the compute
time, the step's without its waits. Medians of a window, so that single slow steps are no matter; a rank is
named only when it is slow by the ratio, and by more than ranks and steps differ anyway.
``tests/resiliency/test_straggler.py``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from .steprecord import RING

PEERS: Final = 2  # least number to compare with
STEPS: Final = 10  # least number of steps, whatever the window
_SIGMA: Final = 1.4826  # of a normal distribution, from its median absolute deviation
_MEDIAN: Final = 1.2533  # standard error of a median, over that of a mean
_APART: Final = 5.0  # standard deviations


@dataclass(frozen=True)
class Settings:
    """``action``: report, swap or off; ``ratio``: over the peers' median; ``window``: steps."""

    action: str = "report"
    ratio: float = 1.5
    window: int = 50

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Settings:
        """Of ``recovery.straggler`` in stage.json; what is missing or null has its default."""
        action, ratio, window = (data.get(name) for name in ("action", "ratio", "window"))
        return cls(
            action=cls.action if action is None else str(action),
            ratio=cls.ratio if ratio is None else float(ratio),
            window=cls.window if window is None else int(window),
        )

    @property
    def needed(self) -> int:
        """Steps a rank must have made; a record keeps no more than ``RING``."""
        return max(STEPS, min(self.window, RING))


@dataclass(frozen=True)
class Digest:
    """A window of times, as it travels: how many, their median, its median absolute deviation."""

    count: int
    median_s: float
    mad_s: float


@dataclass(frozen=True)
class Slow:
    """``ratio`` of its median to that of all; ``peers``: how many it was compared with."""

    rank: int
    ratio: float
    median_s: float
    peers: int


def digest(times: Sequence[float]) -> Digest:
    if not times:
        return Digest(0, 0.0, 0.0)
    middle = median(times)
    return Digest(len(times), middle, median([abs(one - middle) for one in times]))


def slow(
    times: Mapping[int, Sequence[float] | Digest],
    settings: Settings,
    groups: Mapping[int, Hashable] | None = None,
) -> list[Slow]:
    """The slow ranks, the slowest first.

    ``groups``: rank → those with an equal value do equal work (a pipeline's stages do not); None: all do.
    """
    together: dict[Hashable, dict[int, Digest]] = {}
    for rank, given in times.items():
        one = given if isinstance(given, Digest) else digest(given[-settings.window :])
        if one.count >= settings.needed:
            together.setdefault(groups.get(rank) if groups else None, {})[rank] = one
    found = [one for members in together.values() for one in _slow(members, settings.ratio)]
    return sorted(found, key=lambda one: -one.ratio)


def _slow(members: Mapping[int, Digest], ratio: float) -> list[Slow]:
    if len(members) <= PEERS:
        return []
    across = digest([one.median_s for one in members.values()])
    if across.median_s <= 0:
        return []
    found = []
    for rank, one in members.items():
        excess = one.median_s - across.median_s
        error = _MEDIAN * _SIGMA * one.mad_s / math.sqrt(one.count)
        spread = max(_SIGMA * across.mad_s, error)
        if one.median_s >= ratio * across.median_s and excess > _APART * spread:
            found.append(Slow(rank, one.median_s / across.median_s, one.median_s, len(members) - 1))
    return found
