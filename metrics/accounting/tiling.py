"""All attempts of a stage, cut into intervals that follow one another without gap or overlap. Pure.

For each attempt and node they sum to the time from submission to end, and within it to the allocation, to the
millisecond; what is not known is ``unknown``. ``tests/metrics/accounting/test_tiling.py`` (hypothesis).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from .facts import AttemptFacts, CycleFacts
from .steps import Bounds, Reach, bounds
from .timeline import Around, Cycle, timeline
from .tracks import Track, tracks
from .training import base_of, training
from .words import Word, Words


@dataclass(frozen=True)
class StageFacts:
    """A stage's attempts in chain order. ``terminal``: it is complete or will not go on by itself.

    ``free``: when the stages it needs were complete (ms); ``held``: one is not.
    """

    attempts: tuple[AttemptFacts, ...]
    complete: bool = False
    terminal: bool = False
    free: int | None = None
    held: bool = False


@dataclass(frozen=True)
class Tiled:
    """One attempt: its tracks (0 first), and its cycles with what became of their steps."""

    attempt: AttemptFacts
    tracks: tuple[Track, ...]
    cycles: tuple[Cycle, ...]

    def lost(self, cycle: Cycle) -> tuple[int, int]:
        """Steps of the cycle that were thrown away, and the milliseconds they took."""
        reach = Reach(cycle.base, cycle.facts.reached, cycle.facts.saved)
        steps = cycle.bound.lost_steps(reach) if cycle.training is not None else 0
        return steps, self._lost_ms.get(cycle.facts.number, 0)

    @cached_property
    def by_number(self) -> dict[int, Cycle]:
        return {cycle.facts.number: cycle for cycle in self.cycles}

    @cached_property
    def _lost_ms(self) -> dict[int | None, int]:
        found: dict[int | None, int] = {}
        for span in self.tracks[0].spans:
            if span.kind == "lost":
                found[span.cycle] = found.get(span.cycle, 0) + span.ms
        return found


def tile(stage: StageFacts, words: Words, now: int | None = None) -> list[Tiled]:
    """Each attempt's intervals. ``now`` (ms): when those that go on are looked at; None: they stay open."""
    firsts = {
        (attempt.id, cycle.number): words.first(attempt.stage, attempt.id, cycle.number)
        for attempt in stage.attempts
        for cycle in attempt.cycles
        if cycle.last is not None
    }
    reaches = _reaches(stage.attempts, firsts)
    limits = bounds(list(reaches.values()), complete=stage.complete, terminal=stage.terminal)
    bound = dict(zip(reaches, limits, strict=True))
    talks = any(word is not None for word in firsts.values())
    worked = [attempt.id for attempt in stage.attempts if attempt.cycles]
    found: list[Tiled] = []
    free, held = stage.free, stage.held
    for attempt in stage.attempts:
        cycles = tuple(_cycle(attempt, facts, reaches, bound, words, firsts) for facts in attempt.cycles)
        finisher = stage.complete and bool(worked) and worked[-1] == attempt.id
        line = timeline(attempt, cycles, Around(free, held, talks, finisher), now)
        found.append(Tiled(attempt, tracks(attempt, line.spans, line.begins), cycles))
        if attempt.started is not None:
            held = held or attempt.ended is None
            free = max((at for at in (free, attempt.ended) if at is not None), default=None)
    return found


_Key = tuple[str, int]


def _reaches(attempts: Sequence[AttemptFacts], firsts: dict[_Key, Word | None]) -> dict[_Key, Reach]:
    found: dict[_Key, Reach] = {}
    reached, saved = 0, None
    for attempt in attempts:
        for cycle in attempt.cycles:
            base = base_of(cycle, firsts.get((attempt.id, cycle.number)), reached, saved)
            mine = cycle.reached if base is not None else None
            found[attempt.id, cycle.number] = Reach(base, mine, cycle.saved)
            reached = max(reached, mine or 0)
            saved = max((s for s in (saved, cycle.saved) if s is not None), default=None)
    return found


def _cycle(
    attempt: AttemptFacts,
    facts: CycleFacts,
    reaches: dict[_Key, Reach],
    bound: dict[_Key, Bounds],
    words: Words,
    firsts: dict[_Key, Word | None],
) -> Cycle:
    key = (attempt.id, facts.number)
    trained = training(attempt, facts, bound[key], words, firsts.get(key), reaches[key].base)
    return Cycle(facts, reaches[key].base, bound[key], trained)
