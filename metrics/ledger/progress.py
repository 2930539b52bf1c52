"""Single progress words of a cycle, found by bisection in the event table, as the accounting asks for.

A cycle may have millions of words, a look-up reads some dozens. Steps of a cycle do not fall; where they do,
in a journal that makes no sense, the answer is still the same for the same events.
``tests/metrics/test_progress.py`` compares with a scan.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from metrics.accounting.words import Word, word_of
from resiliency.lines import loads

_FROM: Final = (
    "SELECT ts, data FROM event WHERE run_id = ? AND attempt_id = ? AND coalesce(cycle, 0) = ?"
    " AND type = 'progress' AND stage = ?"
)
_IN_ORDER: Final = " ORDER BY ts, writer, seq"
_BACKWARDS: Final = " ORDER BY ts DESC, writer DESC, seq DESC"
_NEAR: Final = 4  # words read on from each place
_TRIES: Final = 80  # halving any span of time more often than this changes nothing


class Progress:
    """Implements :class:`metrics.accounting.words.Words` over one run's events."""

    def __init__(self, connection: sqlite3.Connection, run_id: str) -> None:
        self._connection, self._run = connection, run_id

    def first(self, stage: str, attempt: str, cycle: int) -> Word | None:
        for _, word in self._words((self._run, attempt, cycle, stage), "", ()):
            if not word.starting:
                return word
        return None

    def around(
        self, stage: str, attempt: str, cycle: int, step: int, first: Word, last: Word
    ) -> tuple[Word | None, Word | None]:
        where = (self._run, attempt, cycle, stage)
        # Times in the table may differ from a word's by the rounding to milliseconds.
        low, until, most = (first.at / 1000 - 0.001, first), last.at / 1000 + 0.001, last.step
        if step == most:
            recent = list(islice(self._words(where, " AND ts <= ?", (until,), _BACKWARDS), 2))
            if len(recent) == 2 and recent[0][1] == last and recent[1][1].step < step:
                return recent[1][1], last
        for turn in range(_TRIES):
            for one in islice(self._words(where, " AND ts >= ?", (low[0],)), _NEAR):
                if one[1].step >= step:
                    return low[1], one[1]
                low = one
            if until <= low[0]:
                break
            share = (step - low[1].step) / max(1, most - low[1].step)
            # Where steps go on evenly the guess falls a little short; every third one halves what is left.
            share = 0.5 if turn % 3 == 2 else 0.98 * min(share, 1.0)
            guess = low[0] + (until - low[0]) * share
            found = next(self._words(where, " AND ts >= ? AND ts < ?", (guess, until)), None)
            if found is None:
                until = guess
            elif found[1].step >= step:
                until, most = found[0], found[1].step
            else:
                low = found
        for one in self._words(where, " AND ts > ?", (low[0],)):
            if one[1].step >= step:
                return low[1], one[1]
            low = one
        return low[1], None

    def _words(
        self, where: Sequence[Any], more: str, values: Sequence[Any], order: str = _IN_ORDER
    ) -> Iterator[tuple[float, Word]]:
        for ts, data in self._connection.execute(_FROM + more + order, (*where, *values)):
            word = word_of(ts, loads(data))
            if word is not None:
                yield ts, word
