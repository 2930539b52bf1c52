"""What each failure cost in time: onset, detection, decision, running again, first new step. Pure.

``tests/metrics/test_accounts.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .course import time_of
from .tiling import Tiled
from .timeline import Cycle

#: Ends that are no failure of anything: done, planned, or somebody's wish.
PLANNED: Final = frozenset(
    {"healthy", "planned_rollover", "time_limit", "user_cancelled", "submit_uncertain"}
)
#: Ends that only the scheduler wanted: interruptions, no failures.
INTERRUPTED: Final = frozenset({"preempted", "requeued"})


@dataclass(frozen=True)
class Outage:
    """Times in milliseconds; None: not known, or not yet. ``lost_ms``: wall-clock of the lost steps.

    ``tried``: another cycle ran, or was to: the attempt or the stage went on.
    """

    step: int | None
    resumed_from: int | None
    onset: int | None
    detected: int | None
    decided: int | None
    running: int | None
    progress: int | None
    lost_steps: int
    lost_ms: int
    tried: bool


class Outages:
    """Of a stage: what follows from all its cycles, found once, so that a long chain takes linear time."""

    def __init__(self, tiled: Sequence[Tiled]) -> None:
        self._attempts = {one.attempt.id: one for one in tiled}
        self._order = [(one, cycle) for one in tiled for cycle in one.cycles]
        self._places = {(one.attempt.id, c.facts.number): n for n, (one, c) in enumerate(self._order)}
        self._ends: dict[str, int] = {}  # attempt → place after its last cycle
        place = 0
        for one in tiled:
            place += len(one.cycles)
            self._ends[one.attempt.id] = place
        self._highs: list[int] = []  # reached up to and with each cycle
        high = 0
        for _, cycle in self._order:
            high = max(high, (cycle.facts.reached or 0) if cycle.base is not None else 0)
            self._highs.append(high)
        self._following()

    def _following(self) -> None:
        """At or after each place: ranks that ran, a step gone on from, a cycle with new steps."""
        run: int | None = None
        base: int | None = None
        further: int | None = None
        self._runs: list[int | None] = [None]
        self._bases: list[int | None] = [None]
        self._further: list[int | None] = [None]
        for place in range(len(self._order) - 1, -1, -1):
            _, cycle = self._order[place]
            run = cycle.facts.run if cycle.facts.run is not None else run
            base = cycle.base if cycle.base is not None else base
            before = self._highs[place - 1] if place else 0
            if cycle.training is not None and cycle.training.step > before:
                further = place
            self._runs.append(run)
            self._bases.append(base)
            self._further.append(further)
        for found in (self._runs, self._bases, self._further):
            found.reverse()

    def of(self, attempt: str, cycle: int) -> Outage:
        """Of the end of a cycle; one that never was stands for the end of the attempt."""
        mine = self._attempts[attempt]
        place = self._places.get((attempt, cycle))
        own = self._order[place][1] if place is not None else None
        after = self._ends[attempt] if place is None else place + 1
        onset, detected, decided = _noticed(mine, own)
        steps, took = mine.lost(own) if own is not None else (0, 0)
        return Outage(
            own.facts.reached if own is not None else None,
            self._bases[after],
            onset,
            detected,
            decided,
            self._runs[after],
            self._progress(after),
            steps,
            took,
            after < len(self._order),
        )

    def _progress(self, after: int) -> int | None:
        """When the first step was done, from a place on, that had not been done before it."""
        place = self._further[after]
        training = self._order[place][1].training if place is not None else None
        if training is None:
            return None
        step = (self._highs[after - 1] if after else 0) + 1
        return training.begin if step <= training.base else time_of(training.parts, step)


def _noticed(mine: Tiled, own: Cycle | None) -> tuple[int | None, int | None, int | None]:
    """Onset (last progress, where nobody said), detection, decision."""
    attempt = mine.attempt
    if own is None:
        return None, attempt.ended, attempt.decided
    facts = own.facts
    onset, detected, decided = facts.onset, facts.detected, facts.decided
    if onset is None and own.training is not None:
        onset = own.training.last
    if detected is None:
        detected = facts.ended if facts.ended is not None else attempt.ended
    if onset is not None and detected is not None:
        onset = min(onset, detected)
    return onset, detected, attempt.decided if decided is None else decided
