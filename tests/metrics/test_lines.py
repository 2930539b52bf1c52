"""Rows of the event table from lines: those of the decoded events, whichever way they are read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from metrics.ledger import lines
from resiliency.events import BadEvent, Event, decode, encode
from tests.resiliency.test_events import events, sealed

GOOD = '{"type":"x","run":"r","writer":"w","seq":1,"ts":1'


def row_of(event: Event, run_id: str) -> tuple[object, ...]:
    return (
        *(run_id, event.writer, event.seq, event.ts, event.mono, event.type, event.stage, event.attempt),
        *(event.cycle, event.node, event.rank, event.v),
        json.dumps(dict(event.data), separators=(",", ":")),
    )


@given(events)
def test_a_line_gives_the_row_of_its_event(event: Event) -> None:
    row, data = lines.read(encode(event).encode(), "here")
    assert row == row_of(event, "here") and data == event.data
    assert repr(lines.event_of(row)) == repr(decode(encode(Event(**{**vars(event), "run": "here"}))))


@pytest.mark.parametrize(
    ("rest", "text"),
    [
        ("", "{}"),
        (',"data":null', "{}"),
        (',"data":{ "b" : 1.50, "a" : "\\u0041\\/" }', '{"b":1.5,"a":"A/"}'),
        (',"data":{"a":1,"a":2}', '{"a":2}'),
        (',"data":{"a":"λ\x7f"}', '{"a":"\\u03bb\\u007f"}'),
        (',"data":{"a":"\\ud800"}', '{"a":"\\ud800"}'),
        (',"data":{"a":1180591620717411303424,"b":1e-05}', '{"a":1180591620717411303424,"b":1e-05}'),
        (',"data":{},"later":1,"rank":0', "{}"),
    ],
)
def test_however_data_is_written_its_text_is_compact_ascii(rest: str, text: str) -> None:
    for mono in ("", ',"mono":1.0'):
        line = sealed(GOOD + mono + rest)
        row, _ = lines.read(line, "r")
        assert row[lines.DATA] == text
        assert row == row_of(decode(line), "r")


def test_what_is_no_event_is_no_row() -> None:
    with pytest.raises(BadEvent, match="no checksum"):
        lines.read(b"", "r")
    with pytest.raises(BadEvent, match="not match"):
        lines.read(sealed(GOOD).replace(b"1", b"2", 1), "r")


def test_of_two_rows_the_same_one_counts_in_any_order() -> None:
    one, other = (lines.read(sealed(GOOD + f',"mono":1.0,"data":{{"a":{n}}}'), "r")[0] for n in (1, 2))
    assert lines.prefer(one, other) is lines.prefer(other, one) is one
    # Equal events whose texts differ: numbers keep the form in which the line has them.
    one, other = (
        lines.read(sealed(GOOD + f',"mono":1.0,"data":{{"a":{n}}}'), "r")[0] for n in ("1e16", "1e+16")
    )
    assert lines.prefer(one, other) is lines.prefer(other, one)
