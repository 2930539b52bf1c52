"""The training of one cycle: when its steps were done, what interrupted them, where they end. Pure.

``tests/metrics/accounting/test_steps.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .course import Part, Point, lay, points
from .facts import AttemptFacts, CycleFacts
from .steps import Bounds
from .words import STARTING, Word, Words


@dataclass(frozen=True)
class Training:
    """``begin``: when steps could begin, with ``base`` of them done. ``last``: when the last known step,
    ``step``, was done.

    ``broke``: when what ended it began; None: nothing did, or it is not known. ``parts`` go from ``begin`` to
    ``broke``, or to ``last``.
    """

    begin: int
    base: int
    last: int
    step: int
    broke: int | None
    parts: tuple[Part, ...]


def base_of(cycle: CycleFacts, first: Word | None, reached: int, saved: int | None) -> int | None:
    """The step that a cycle went on from; None: it did no step.

    ``reached`` and ``saved``: the highest of earlier cycles. Where the program does not say, it is the newest
    save below its first word; with no save ever, it went on no further back than that word tells.
    """
    if cycle.resumed is not None:
        return cycle.resumed
    if first is None:
        return None
    if not reached or first.step <= 1:
        return 0
    if saved is None:
        return min(first.step - 1, reached)
    return saved if saved < first.step else 0


def training(
    attempt: AttemptFacts,
    cycle: CycleFacts,
    bound: Bounds,
    words: Words,
    first: Word | None,
    base: int | None,
) -> Training | None:
    """None: no word of a step, and none of a resume. ``first``: the cycle's first word of a step; ``base``:
    the step it went on from.
    """
    last = cycle.last if first is not None else None
    if last is not None and last.starting:
        last = None
    start = _start(cycle, first, base or 0)
    if start is None:
        return None
    broke = _broke(cycle)
    wanted: list[Word | None] = [last]
    end = start
    if last is not None and first is not None:
        # The furthest word may have been said long after its step was done: the first of that step counts.
        for step in sorted({*bound.cuts(), bound.high + 1, last.step}):
            if max(start.step, first.step) < step <= last.step:  # below, the first word is the next to it
                wanted += words.around(attempt.stage, attempt.id, cycle.number, step, first, last)
    spots = points([word for word in (first, *wanted) if word and word.at >= start.at], start, broke)
    if last is not None:
        end = next((point for point in spots if point.step >= last.step), spots[-1])
    tail = [point for point in spots if point.at > end.at]
    if broke is not None and broke > end.at:
        reached = max(end.step, cycle.reached or 0)
        tail = [*tail, Point(broke, reached)] if reached > end.step or not tail else tail
        if tail[-1].at < broke:
            tail.append(Point(broke, reached))
    spots = [point for point in spots if point.at <= end.at]
    parts = lay([*spots, *_upto(tail, broke)], cycle.stalls)
    return Training(start.at, start.step, end.at, max(end.step, start.step), broke, tuple(parts))


def _upto(tail: Iterable[Point], broke: int | None) -> list[Point]:
    return [] if broke is None else [point for point in tail if point.at <= broke]


def _start(cycle: CycleFacts, first: Word | None, base: int) -> Point | None:
    """From where steps can be told: the first step done, a resume, or the first word."""
    spent = {} if first is None else first.spent
    if cycle.timing_at is not None:
        step = cycle.timing_step
        if step is None:
            step = first.step if first is not None else (cycle.resumed or 0)
        near = first is not None and first.step <= step
        return Point(cycle.timing_at, step, spent if near else {})
    if cycle.resumed_at is not None and cycle.resumed is not None:
        return Point(cycle.resumed_at, cycle.resumed)
    if first is None:
        return None
    worked = sum(took for section, took in spent.items() if section not in STARTING)
    if worked:
        before = {section: took for section, took in spent.items() if section in STARTING}
        return Point(first.at - worked, base, {**before, **({"step": 0} if "step" in spent else {})})
    return Point(first.at, first.step, spent)


def _broke(cycle: CycleFacts) -> int | None:
    """When training stopped for what then had to be decided on."""
    if cycle.onset is None or cycle.detected is None:
        return None
    # Next to a slow rank the others went on until it was noticed.
    return cycle.detected if cycle.slow else min(cycle.onset, cycle.detected)
