"""How far another node's clock is from this one's, from a few round trips.

The fastest round trip tells the most (the formula of NTP). A wrong clock spoils times in logs and tokens
of services, not the work: WARN, never CRITICAL. ``tests/launch/preflight/test_clock.py``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from resiliency.health import Check, Status

WARN_S: Final = 1.0
#: Clocks are read to about this: a trip may seem to have taken so much less than nothing.
_GRAIN_S: Final = 1e-5


@dataclass(frozen=True)
class Offset:
    """``seconds``: how much the other clock is ahead; ``error``: it may be wrong by that much."""

    seconds: float
    error: float


@dataclass(frozen=True)
class Trip:
    """Own clock when asked, other clock when it came and went, own clock when answered."""

    asked: float
    came: float
    went: float
    answered: float

    @property
    def duration(self) -> float:
        return (self.answered - self.asked) - (self.went - self.came)


def offset(trips: Sequence[Trip]) -> Offset | None:
    """From the fastest trip; None when none makes sense."""
    good = [t for t in trips if math.isfinite(t.duration) and t.duration >= -_GRAIN_S and t.came <= t.went]
    if not good:
        return None
    best = min(good, key=lambda trip: trip.duration)
    seconds = ((best.came - best.asked) + (best.went - best.answered)) / 2
    return Offset(seconds, max(best.duration, 0.0) / 2)


def measure(
    ask: Callable[[], tuple[float, float]], times: int = 5, now: Callable[[], float] = time.time
) -> Offset | None:
    """``ask`` goes to the other node and brings back when it came there and when it left, by its clock."""
    trips: list[Trip] = []
    for _ in range(times):
        asked = now()
        try:
            came, went = ask()
        except (OSError, ValueError):
            continue
        trips.append(Trip(asked, came, went, now()))
    return offset(trips)


def judge(node: str, found: Offset | None) -> Check:
    """Only what exceeds the measurement's own error counts."""
    if found is None:
        return Check("clock_offset", Status.UNKNOWN, f"the clock of {node} could not be compared")
    ahead = "ahead" if found.seconds > 0 else "behind"
    said = f"{node} is {abs(found.seconds):.3f} s {ahead} (± {found.error:.3f} s)"
    late = abs(found.seconds) - found.error > WARN_S
    return Check("clock_offset", Status.WARN if late else Status.OK, said)
