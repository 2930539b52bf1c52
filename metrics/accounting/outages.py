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


def outage(tiled: Sequence[Tiled], attempt: str, cycle: int) -> Outage:
    """Of the end of a cycle of an attempt among a stage's, in chain order."""
    place = next(n for n, one in enumerate(tiled) if one.attempt.id == attempt)
    mine = tiled[place]
    own = next((c for c in mine.cycles if c.facts.number == cycle), None)
    later = [(mine, c) for c in mine.cycles if c.facts.number > cycle]
    later += [(one, c) for one in tiled[place + 1 :] for c in one.cycles]
    before = [c for one in tiled[:place] for c in one.cycles]
    before += [c for c in mine.cycles if c.facts.number <= cycle]
    high = max((c.facts.reached or 0 for c in before if c.base is not None), default=0)
    onset, detected, decided = _noticed(mine, own)
    runs = [c.facts.run for _, c in later if c.facts.run is not None]
    bases = [c.base for _, c in later if c.base is not None]
    steps, took = mine.lost(own) if own is not None else (0, 0)
    return Outage(
        own.facts.reached if own is not None else None,
        next(iter(bases), None),
        onset,
        detected,
        decided,
        next(iter(runs), None),
        _past(later, high + 1) if own is not None else None,
        steps,
        took,
        bool(later),
    )


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


def _past(later: Sequence[tuple[Tiled, Cycle]], step: int) -> int | None:
    """When a step was first done in these cycles."""
    for _, cycle in later:
        training = cycle.training
        if training is None or training.step < step:
            continue
        return training.begin if step <= training.base else time_of(training.parts, step)
    return None
