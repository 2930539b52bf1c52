"""How a cycle's training went: stretches of steps and what interrupted them, between progress words. Pure.

Within a stretch steps are taken to be equally long; a stall stands where a fact places it, else at the
stretch's end. ``tests/metrics/accounting/test_steps.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from .facts import Stall
from .words import STALLS, STARTING, Word


@dataclass(frozen=True)
class Point:
    """``step`` steps were done at ``at``; by then ``spent`` had gone into each section (empty: not told)."""

    at: int
    step: int
    spent: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """A span of one kind; of ``steps``: those above ``low`` up to ``high`` (equal: one was under way)."""

    kind: str
    start: int
    end: int
    low: int = 0
    high: int = 0


def points(words: Iterable[Word | None], start: Point | None, until: int | None) -> list[Point]:
    """Words as points in order, none before ``start`` or after ``until``, steps never falling."""
    found: list[Point] = [] if start is None else [start]
    told = {(word.at, word.step): word for word in words if word is not None}
    for (at, step), word in sorted(told.items()):
        at = at if until is None else min(at, until)
        if found:
            before = found[-1]
            at, step = max(at, before.at), max(step, before.step)
            if (at, step) == (before.at, before.step):
                found[-1] = replace(before, spent=before.spent or word.spent)
                continue
        found.append(Point(at, step, word.spent))
    return found


def lay(course: Sequence[Point], stalls: Sequence[Stall]) -> list[Part]:
    """The parts between the first and the last point: they follow one another without gap."""
    parts: list[Part] = []
    own = any("step" in point.spent for point in course)
    for p, q in pairwise(course):
        parts += _stretch(p, q, list(_interruptions(p, q, stalls, own)))
    return parts


def _interruptions(p: Point, q: Point, stalls: Sequence[Stall], own: bool) -> Iterator[tuple[int, str, int]]:
    """(after which step, kind, ms) of what steps waited for, in the stretch's order."""
    here = [stall for stall in stalls if p.step <= stall.step < q.step and stall.ms]
    if not (p.spent and q.spent):
        yield from ((stall.step, "checkpoint_stall", stall.ms) for stall in here)
        return
    if not own:
        return  # it never reports a step: its sections are its work
    totals: dict[str, int] = {}
    begun = "step" in p.spent
    for section, spent in q.spent.items():
        kind = STALLS.get(section)
        if section in STARTING and (section not in STALLS or not begun):
            kind = STARTING[section]
        took = spent - p.spent.get(section, 0)
        if kind is not None and took > 0:
            totals[kind] = totals.get(kind, 0) + took
    left = totals.pop("checkpoint_stall", 0)
    for stall in here:
        took = min(stall.ms, left)
        left -= took
        if took:
            yield stall.step, "checkpoint_stall", took
    totals["checkpoint_stall"] = left
    yield from ((q.step, kind, took) for kind, took in sorted(totals.items()) if took)


def _stretch(p: Point, q: Point, waits: Sequence[tuple[int, str, int]]) -> Iterator[Part]:
    room = q.at - p.at
    kept: list[tuple[int, str, int]] = []
    for after, kind, took in waits:
        took = min(took, room)
        room -= took
        kept.append((after, kind, took))
    span, at, step, worked = q.step - p.step, p.at, p.step, 0
    for after, kind, took in kept:
        done = room if span == 0 else room * (after - p.step) // span
        if done > worked:
            yield Part("steps", at, at + done - worked, step, after)
            at, step, worked = at + done - worked, after, done
        if took:
            yield Part(kind, at, at + took)
            at += took
    if at < q.at:
        yield Part("steps", at, q.at, step, q.step)


def split(part: Part, cuts: Iterable[int]) -> Iterator[Part]:
    """A part of steps, cut where it passes a step of ``cuts``."""
    inner = sorted(cut for cut in set(cuts) if part.low < cut < part.high)
    at, low = part.start, part.low
    for cut in inner:
        end = _at(part, cut)
        yield Part(part.kind, at, end, low, cut)
        at, low = end, cut
    yield Part(part.kind, at, part.end, low, part.high)


def _at(part: Part, step: int) -> int:
    if part.high == part.low:
        return part.end
    return part.start + (part.end - part.start) * (step - part.low) // (part.high - part.low)


def time_of(parts: Iterable[Part], step: int) -> int | None:
    """When a step was done; None: not in these parts."""
    for part in parts:
        if part.kind == "steps" and part.low < step <= part.high:
            return _at(part, step)
    return None
