"""What a whole log tells, in order: cycles of training with steps, saves and loads, each with a time. Pure.

Lines without a time get one from the line before and the length of a step; a log without any is laid out
backwards from the time its file was last written. ``tests/orchestrator/importing/test_story.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import tzinfo

from . import loglines
from .loglines import Line


@dataclass
class Fact:
    """One thing told. ``cycle``: how many times training had begun again in this log."""

    at: float
    cycle: int
    line: Line
    step: int


@dataclass
class Story:
    """``timed``: lines with a time of their own; ``job``: the job it names; ``done``: the last step was."""

    facts: list[Fact] = field(default_factory=list)
    lines: int = 0
    timed: int = 0
    job: str | None = None
    programs: Counter[str] = field(default_factory=Counter)
    done: bool = False
    unplaced: int = 0


def tell(lines: Iterable[str], zone: tzinfo | None, written_at: float) -> Story:
    """Read a log; ``written_at``: Unix seconds when its file was last written."""
    story = Story()
    cycle, high, begun = 0, -1, False
    at: float | None = None
    stamped = False
    seen: set[tuple[int, str, int]] = set()
    waiting: list[Fact] = []  # begins of training without a time: they have that of the next line
    for text in lines:
        story.lines += 1
        if story.job is None and "SLURM" in text.upper():
            story.job = loglines.job_of(text)
        stamp = loglines.stamp_of(text, zone)
        if stamp is not None:
            at, stamped = stamp, True
            for fact in waiting:
                fact.at = stamp
            waiting.clear()
        line = loglines.read(text)
        if line is None:
            continue
        story.timed += stamp is not None
        story.programs[line.program] += 1
        step = line.step if line.step is not None else max(high, 0)
        restarted = line.kind == "step" and begun and step < high
        if (line.kind in ("loaded", "start") and begun) or restarted:
            cycle, high, begun = cycle + 1, -1, False
        if line.kind == "step":
            high, begun = max(high, step), True
            story.done = line.total is not None and step >= line.total
        elif line.kind == "saved" and line.step is None and not begun:
            story.unplaced += 1  # it does not say of which step, and none was told before it
            continue
        if line.kind in ("saving", "start"):
            if line.kind == "start" and line.step:
                line = Line("loaded", line.program, line.step)
            else:
                continue
        key = (cycle, line.kind, step)
        if key in seen:
            continue  # every rank may print the same
        seen.add(key)
        if stamp is None and at is not None and line.kind == "step" and not stamped:
            at += line.each_s or 0.0
        story.facts.append(Fact(at if at is not None else 0.0, cycle, line, step))
        if stamp is None and line.kind == "loaded":
            waiting.append(story.facts[-1])
        if at is None and line.kind == "step":
            at = 0.0
    _place(story, stamped, written_at)
    return story


def _place(story: Story, stamped: bool, written_at: float) -> None:
    """Times of a log without any, and of what comes before the first one."""
    if not story.facts:
        return
    if not stamped:
        shift = written_at - story.facts[-1].at
        for fact in story.facts:
            fact.at += shift
        return
    first = next((fact.at for fact in story.facts if fact.at > 0), written_at)
    for fact in story.facts:
        if fact.at > 0:
            break
        fact.at = first
