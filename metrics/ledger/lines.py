"""A journal's line as a row of the event table, without an event in between where that can be.

``tests/metrics/test_lines.py`` holds the rows to those that the decoded events give.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from resiliency.events import Event, decode_slowly, made
from resiliency.lines import loads, parts_as_text

EventRow = tuple[Any, ...]

#: Columns in the order of a row's values.
COLUMNS: Final = "run_id, writer, seq, ts, mono, type, stage, attempt_id, cycle, node, rank, v, data"
MARKS: Final = f"({','.join('?' * 13)})"

#: Places in a row.
WRITER, SEQ, TS, TYPE, STAGE, ATTEMPT, CYCLE, DATA = 1, 2, 3, 5, 6, 7, 8, 12

_JSON: Final = json.JSONEncoder(separators=(",", ":"))


def read(line: bytes, run_id: str) -> tuple[EventRow, Mapping[str, Any]]:
    """The line's row in run ``run_id``, whatever run it names, and its ``data``. Raises BadEvent."""
    found = parts_as_text(line)
    if found is None:
        event = decode_slowly(line)
        return _row(run_id, event), event.data
    row, data = found
    return (row if row[0] == run_id else (run_id, *row[1:])), data


def _row(run_id: str, event: Event) -> EventRow:
    return (
        *(run_id, event.writer, event.seq, event.ts, event.mono, event.type, event.stage, event.attempt),
        *(event.cycle, event.node, event.rank, event.v, _JSON.encode(event.data)),
    )


def event_of(row: Sequence[Any]) -> Event:
    """The event of a stored row."""
    return made(row[:DATA], loads(row[DATA]))


def prefer(one: EventRow, other: EventRow) -> EventRow:
    """Which of two rows with the same writer and number counts; the answer of every reader
    (:func:`resiliency.journal.prefer`), and the same in any order.
    """
    return min(one, other, key=lambda row: (repr(event_of(row)), row[DATA]))
