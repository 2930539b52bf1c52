"""An attempt's own timeline: one kind for each moment from submission to end. Pure.

What each of its nodes did is in :mod:`.tracks`. ``tests/metrics/accounting/test_tiling.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .course import Part, split
from .facts import AttemptFacts, CycleFacts
from .line import Line, Span
from .steps import Bounds
from .training import Training


@dataclass(frozen=True)
class Cycle:
    """A cycle's facts with what follows from the whole stage. ``base``: the step it went on from."""

    facts: CycleFacts
    base: int | None
    bound: Bounds
    training: Training | None

    @property
    def began(self) -> int | None:
        facts = self.facts
        known = (facts.started, facts.run, self.training.begin if self.training else None)
        return next((at for at in known if at is not None), None)


@dataclass(frozen=True)
class Timeline:
    """``begins``: cycle → when its nodes were chosen, on this timeline."""

    spans: tuple[Span, ...]
    begins: Mapping[int, int]


@dataclass(frozen=True)
class Around:
    """What the rest of the stage says of an attempt.

    ``free``: when links before it were over and needed stages complete; ``held``: one is not. ``talks``: the
    stage's program tells its steps, so that silence means that none was done. ``finisher``: its last cycle
    completed the stage.
    """

    free: int | None = None
    held: bool = False
    talks: bool = False
    finisher: bool = False


def timeline(
    attempt: AttemptFacts, cycles: tuple[Cycle, ...], around: Around, now: int | None = None
) -> Timeline:
    """``now``: when an attempt that goes on is looked at; None: its last span stays open."""
    start = attempt.submitted if attempt.submitted is not None else attempt.started
    if start is None:
        start = attempt.ended
    if start is None:
        return Timeline((), {})
    end = attempt.ended
    if attempt.started is not None:
        start = min(start, attempt.started)
        end = None if end is None else max(end, attempt.started)
    if end is None and now is not None:
        end = now if attempt.started is None else max(now, attempt.started)
    line = Line(start, end)
    if attempt.started is None and around.held:
        line.rest("chained")
        return Timeline(tuple(line.spans), {})
    free = around.free
    if attempt.started is not None:
        free = attempt.started if around.held else free if free is None else min(free, attempt.started)
    line.to("chained", free)
    if attempt.started is None:
        line.rest("queued")
        return Timeline(tuple(line.spans), {})
    line.to("queued", attempt.started)
    return _Walk(line, attempt, cycles, around).go()


class _Walk:
    """From the allocation's start to its end."""

    def __init__(self, line: Line, attempt: AttemptFacts, cycles: tuple[Cycle, ...], around: Around) -> None:
        self.line, self.attempt, self.cycles = line, attempt, cycles
        # Another job's log says nothing of how a job that we did not launch went.
        self.talks, self.complete = around.talks and not attempt.foreign, around.finisher
        self.start = line.at  # of the allocation
        self.begins: dict[int, int] = {}
        spoke = attempt.heard and not attempt.foreign
        self.now: tuple[str, int | None] = ("launching" if spoke else "unknown", None)

    def go(self) -> Timeline:
        attempt, line = self.attempt, self.line
        if attempt.preflight is not None:
            line.to("launching", attempt.preflight[0])
            line.to("preflight", attempt.preflight[1])
        begun = [cycle for cycle in self.cycles if cycle.began is not None]
        for cycle in begun:
            self._cycle(cycle, cycle is begun[-1])
        if attempt.drained is not None:
            mark = self._drained(attempt.drained)
            line.back_to(mark)
            line.to(self.now[0], mark, self.now[1])
            line.rest("draining", self.now[1])
        elif attempt.finished is not None:
            line.to(self.now[0], attempt.finished, self.now[1])
            line.rest("draining", self.now[1])
        else:
            line.rest(*self.now)
        return Timeline(tuple(line.spans), self.begins)

    def _drained(self, asked: int) -> int:
        """Until when steps were done although a stop was asked: the last of them is saved after that."""
        ends = [cycle.training.last for cycle in self.cycles if cycle.training is not None]
        return max([self.start, asked, *ends])

    def _cycle(self, cycle: Cycle, last: bool) -> None:
        line, facts, training = self.line, cycle.facts, cycle.training
        kind, of = self.now
        # Where nothing says when ranks were started, the time up to their first sign is all one start.
        self.begins[facts.number] = line.to(kind, facts.started, of)
        line.to(kind, facts.run, of)  # a restart is of the cycle that it gets over
        if facts.run is None and training is None:
            self.now = (kind, of)
        else:
            self.now = ("init" if self.talks else "unknown", facts.number)
        self._start(cycle, kind, of)
        if training is not None:
            self.now = ("unknown", facts.number)
            for part in training.parts:
                self._part(part, cycle)
        if facts.detected is not None and facts.onset is not None:
            self._incident(facts)
        else:
            self._end(cycle, last)

    def _start(self, cycle: Cycle, launching: str, of: int | None) -> None:
        line, facts, training = self.line, cycle.facts, cycle.training
        number = facts.number
        if facts.timing_at is not None:
            mark = facts.timing_at - sum(took for _, took in facts.phases)
            if facts.phases:
                line.to(launching, mark, of)
            for kind, took in facts.phases:
                mark += took
                line.to(kind, mark, number)
            line.to("init", facts.timing_at, number)
        elif facts.resumed_at is not None:
            line.to("init", facts.resumed_at, number)
        elif training is not None:
            known = training.base <= (cycle.base or 0) + 1  # else steps were done, nobody knows when
            line.to("init" if known else "unknown", training.begin, number)

    def _part(self, part: Part, cycle: Cycle) -> None:
        line, number, bound = self.line, cycle.facts.number, cycle.bound
        if part.kind != "steps":
            line.to(part.kind, part.end, number)
            return
        for piece in split(part, bound.cuts()):
            broken = cycle.training is not None and piece.end == cycle.training.broke
            if piece.low == piece.high and broken:
                line.to("lost", piece.end, number)  # the step that was under way
            else:
                line.to(bound.kind(piece.low + 1), piece.end, number)

    def _incident(self, facts: CycleFacts) -> None:
        line, number = self.line, facts.number
        if not facts.slow:
            line.to(self.now[0], facts.onset, number)
        line.to("detecting" if not facts.slow else self.now[0], facts.detected, number)
        decided = facts.decided if facts.decided is not None else facts.ended
        line.to("diagnosing", decided, number)
        if facts.continued:
            self.now = ("waiting_spare" if facts.waits else "restarting", number)
        elif decided is not None:
            self.now = ("draining", number)
        else:
            self.now = ("diagnosing" if self.attempt.ended is None else "unknown", number)

    def _end(self, cycle: Cycle, last: bool) -> None:
        """A cycle that nothing had to be decided on."""
        line, facts, training = self.line, cycle.facts, cycle.training
        if training is None and self.complete and last and facts.clean:
            self.now = ("productive", facts.number)  # it told no steps, but they made the stage complete
        if training is not None:
            for save in facts.stalls:
                if save.saved and save.step >= training.step:
                    # Who leaves in order waits for the last save to be complete.
                    line.to(
                        "checkpoint_stall", save.at if facts.clean else training.last + save.ms, facts.number
                    )
        if facts.ended is None:
            return
        kind = "draining" if facts.clean and training is not None else self.now[0]
        line.to(kind, facts.ended, facts.number)
        self.now = ("restarting", facts.number) if not last or facts.continued else ("draining", facts.number)
