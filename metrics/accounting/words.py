"""Progress words of a cycle, and the few look-ups that the accounting needs of them.

A run has millions of words; what the accounting asks for is the first of a cycle and those next to a step.
Times are integer milliseconds. ``tests/metrics/test_progress.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from resiliency.events import Event
from resiliency.folding import step_of

#: Beyond any clock (the year 33658): garbage in a journal must not overflow anything.
LIMIT_MS: Final = 10**15
#: Sections of a start: no step is being done in them. ``data`` is one until the first step is done.
STARTING: Final[Mapping[str, str]] = {
    "setup": "init",
    "imports": "imports",
    "groups": "init",
    "model": "init",
    "data": "init",
    "load": "load",
    "compile": "warmup",
}
#: Sections that steps wait for.
STALLS: Final[Mapping[str, str]] = {
    "checkpoint": "checkpoint_stall",
    "snapshot": "checkpoint_stall",
    "eval": "evaluation",
    "data": "data_stall",
}


@dataclass(frozen=True)
class Word:
    """``at``: when it was said. ``spent``: milliseconds of the process so far by section; empty: not told."""

    at: int
    step: int
    section: str = "step"
    spent: Mapping[str, int] = field(default_factory=dict)

    @property
    def starting(self) -> bool:
        """Said before the first step, so that it is no sign of steps being done."""
        return self.section in STARTING and "step" not in self.spent


class Words(Protocol):
    """Where words are looked up; of one stage, attempt and cycle, in time order."""

    def first(self, stage: str, attempt: str, cycle: int) -> Word | None:
        """The first that is not :attr:`Word.starting`."""

    def around(
        self, stage: str, attempt: str, cycle: int, step: int, first: Word, last: Word
    ) -> tuple[Word | None, Word | None]:
        """The word before, and the first word at or above a step: from ``first``, which is below it, on.

        ``last``: a word at or above the step.
        """


def ms(seconds: Any) -> int | None:
    """Unix seconds, or a length, in milliseconds; None for what is no number or beyond any clock."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds != seconds:
        return None
    return round(seconds * 1000) if abs(seconds) * 1000 < LIMIT_MS else None


def word_of(ts: float, data: Mapping[str, Any]) -> Word | None:
    """The word in a progress event; None when it makes no sense."""
    at = ms(ts)
    try:
        step = step_of(data)
    except (TypeError, ValueError, OverflowError):
        return None
    if at is None:
        return None
    told = data.get("spent")
    spent = {}
    if isinstance(told, Mapping):
        spent = {str(name): value for name, raw in told.items() if (value := ms(raw)) is not None}
    return Word(at, step, str(data.get("section") or "step"), spent)


class Told:
    """Words in memory."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._words: dict[tuple[str, str, int], list[Word]] = {}
        for event in sorted(events, key=lambda event: event.order):
            if event.type == "progress" and event.stage and event.attempt:
                word = word_of(event.ts, event.data)
                if word is not None:
                    key = (event.stage, event.attempt, event.cycle or 0)
                    self._words.setdefault(key, []).append(word)

    def first(self, stage: str, attempt: str, cycle: int) -> Word | None:
        words = self._words.get((stage, attempt, cycle), ())
        return next((word for word in words if not word.starting), None)

    def around(
        self, stage: str, attempt: str, cycle: int, step: int, first: Word, last: Word
    ) -> tuple[Word | None, Word | None]:
        before = None
        for word in self._words.get((stage, attempt, cycle), ()):
            if word.at >= first.at:
                if word.step >= step:
                    return before, word
                before = word
        return before, None
