"""A clock for tests of what depends on time."""

from __future__ import annotations


class StandingClock:
    """Time that goes on only when it is told to: set ``now``, or sleep."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def wall(self) -> float:
        return self.now

    def mono(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
