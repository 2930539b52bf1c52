"""Single words found in the event table are those that a scan finds, and few rows are read for it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.accounting.words import Told
from metrics.ledger.migrations import migrate
from metrics.ledger.progress import Progress
from resiliency.events import Event

RUN, WHERE = "r-20260101-000000-abcd", ("train", "c1/7.0", 1)


@pytest.fixture(scope="module")
def table() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection, "memory")
    yield connection
    connection.close()


def word(n: int, ts: float, step: object, section: str = "step", cycle: int | None = 1) -> Event:
    data = {"step": step, "section": section}
    return Event("progress", RUN, "w", n, ts, 0.0, "train", "c1/7.0", cycle, data=data)


def store(table: sqlite3.Connection, events: list[Event]) -> Progress:
    table.execute("DELETE FROM event")
    table.executemany(
        "INSERT INTO event VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",
        [
            (e.run, e.writer, e.seq, e.ts, e.mono, e.type, e.stage, e.attempt, e.cycle, e.node, e.rank,
             json.dumps(e.data), e.v)
            for e in events
        ],
    )  # fmt: skip
    return Progress(table, RUN)


_gaps = st.lists(st.tuples(st.sampled_from([0.05, 1.0, 10.0, 10.0, 600.0]), st.integers(0, 30)), min_size=1)


@settings(max_examples=150, deadline=None)
@given(_gaps, st.integers(0, 400))
def test_the_words_beside_a_step_are_those_of_a_scan(
    table: sqlite3.Connection, gaps: list[tuple[float, int]], step: int
) -> None:
    ts, at, events = 1_700_000_000.0, 0, []
    for n, (gap, steps) in enumerate(gaps):
        ts, at = ts + gap, at + steps
        events.append(word(n, ts, at, "load" if n == 0 else "step"))
    events.append(word(9000, ts, "x"))  # no step: as if it were not there
    told, asked = Told(events), store(table, [*events, word(9001, ts, 9999, cycle=None)])
    first = told.first(*WHERE)
    assert asked.first(*WHERE) == first
    if first is not None and first.step < step <= at:
        last = told.around(*WHERE, at, first, first)[1]
        assert last is not None and last.step == at
        assert asked.around(*WHERE, step, first, last) == told.around(*WHERE, step, first, last)


def test_a_word_without_a_cycle_is_of_the_first(table: sqlite3.Connection) -> None:
    asked = store(table, [word(1, 5.0, 3, cycle=None), word(2, 6.0, 4, cycle=0)])
    found = asked.first("train", "c1/7.0", 0)
    assert found is not None and (found.at, found.step) == (5000, 3)
    assert asked.first(*WHERE) is None


def test_a_look_up_reads_few_of_many_words(table: sqlite3.Connection) -> None:
    events = [word(n, 1000.0 + 10 * n, 7 * n) for n in range(20_000)]
    asked, told = store(table, events), Told(events)
    first = told.first(*WHERE)
    assert first is not None
    last = told.around(*WHERE, 7 * 19_999, first, first)[1]
    assert last is not None
    queries: list[str] = []
    table.set_trace_callback(queries.append)
    try:
        for step in (1, 7_001, 70_000, 139_990, last.step):
            before, at = asked.around(*WHERE, step, first, last)
            assert before is not None and at is not None
            assert before.step < step <= at.step and at.at - before.at == 10_000
    finally:
        table.set_trace_callback(None)
    assert len(queries) < 5 * 10
    plan = table.execute("EXPLAIN QUERY PLAN " + queries[0]).fetchall()
    assert all("event_progress" in row[3] and "TEMP B-TREE" not in row[3] for row in plan)
