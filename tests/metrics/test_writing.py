"""Rows into tables: afterwards they are those wanted, and what was there already is not touched."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.ledger import Ledger, project, writing
from metrics.ledger.schema import DERIVED
from resiliency.contract import RunPaths
from resiliency.journal import read_run
from resiliency.state import fold
from tests.metrics.rundirs import RUN, make_run

Tables = dict[str, list[dict[str, Any]]]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.db") as opened:
        yield opened


def wanted(where: Path, kept: int) -> Tables:
    """Rows of a run of which only the first ``kept`` events are known."""
    run_dir = where / "runs" / RUN
    if not run_dir.exists():
        make_run(where, steps=3)
    events = read_run(RunPaths(run_dir).journal)[0][:kept]
    return project.rows(run_dir, events, fold(events))


def held(connection: sqlite3.Connection, tables: Tables) -> dict[str, list[Any]]:
    """What the derived tables hold, in the columns of ``tables``."""
    found: dict[str, list[Any]] = {}
    for table in ("run", *DERIVED):
        names = ", ".join(tables[table][0]) if tables.get(table) else "*"
        found[table] = sorted(map(tuple, connection.execute(f"SELECT {names} FROM {table}")), key=repr)
    return found


def as_values(tables: Tables) -> dict[str, list[Any]]:
    return {
        table: sorted((tuple(row.values()) for row in tables.get(table, ())), key=repr)
        for table in ("run", *DERIVED)
    }


def test_rows_grow_change_and_go_with_what_is_known(tmp_path: Path, ledger: Ledger) -> None:
    for kept in (99, 4, 12, 0, 15, 99):
        tables = wanted(tmp_path, kept)
        with ledger.writing() as connection:
            writing.bring(connection, RUN, tables)
        assert repr(held(ledger.connection, tables)) == repr(as_values(tables)), kept
    assert ledger.rows("PRAGMA foreign_key_check") == []


def test_what_is_there_is_not_written_again(tmp_path: Path, ledger: Ledger) -> None:
    tables = wanted(tmp_path, 99)
    with ledger.writing() as connection:
        writing.bring(connection, RUN, tables)
        before = connection.total_changes
        writing.bring(connection, RUN, tables)
        assert connection.total_changes == before
        tables["attempt"][0]["loss"] = 0.5
        writing.bring(connection, RUN, tables)
        assert connection.total_changes == before + 1


def test_other_runs_keep_their_rows(tmp_path: Path, ledger: Ledger) -> None:
    mine = wanted(tmp_path, 99)
    with ledger.writing() as connection:
        for name in ("other", RUN):
            rows = {t: [{**row, "run_id": name} for row in some] for t, some in mine.items()}
            writing.bring(connection, name, rows)
        writing.bring(connection, RUN, {"run": [{**mine["run"][0]}]})
    for table in ("attempt", "attempt_node", "cycle", "interval", "verdict"):
        (count,) = ledger.rows(f"SELECT count(*), min(run_id) FROM {table}")
        assert tuple(count) == (len(mine[table]), "other"), table


@given(st.integers(0, 130), st.integers(1, 30))
def test_all_rows_arrive_in_order_whatever_their_number_and_width(count: int, width: int) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute(f"CREATE TABLE t ({', '.join(f'c{n}' for n in range(width))})")
    rows = [tuple(range(n, n + width)) for n in range(count)]
    writing.insert(connection, "INSERT INTO t VALUES ", rows)
    assert connection.execute("SELECT * FROM t ORDER BY rowid").fetchall() == rows
    connection.close()


def test_half_a_character_is_written_as_its_escape() -> None:
    assert writing.text("a\ud800λ") == "a\\ud800λ"
