"""A run's rows into their tables: only what differs from what is there is written.

``tests/metrics/test_writing.py``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from . import schema

#: Parameters of one statement: the most that old SQLite takes.
PARAMETERS: Final = 999

Values = tuple[Any, ...]


def text(value: str) -> str:
    """Text that SQLite can hold: a lone surrogate, legal in JSON, is written as its escape."""
    return value.encode("utf-8", "backslashreplace").decode()


def insert(
    connection: sqlite3.Connection, start: str, rows: Sequence[Sequence[Any]], *, end: str = ""
) -> None:
    """Run ``start`` (up to VALUES) with all rows, many in one statement: half of what a row costs is to
    begin and end its statement."""
    if not rows:
        return
    width = len(rows[0])
    marks = f"({','.join('?' * width)})"
    at_once = min(PARAMETERS // width, 40)
    whole = len(rows) - len(rows) % at_once
    if whole:
        groups = (chain.from_iterable(rows[n : n + at_once]) for n in range(0, whole, at_once))
        connection.executemany(start + ",".join([marks] * at_once) + end, map(tuple, groups))
    connection.executemany(start + marks + end, rows[whole:])


def bring(
    connection: sqlite3.Connection, run_id: str, tables: Mapping[str, Sequence[Mapping[str, Any]]]
) -> None:
    """Make the derived rows of the run those of ``tables``; within a table all have the same columns."""
    found = {table: _Difference(connection, run_id, table, tables.get(table, ())) for table in schema.DERIVED}
    for difference in found.values():  # children before parents
        difference.remove()
    for difference in (_Difference(connection, run_id, "run", tables["run"]), *reversed(found.values())):
        difference.write()


class _Difference:
    """What is to be done to the rows of one run in one table."""

    def __init__(
        self, connection: sqlite3.Connection, run_id: str, table: str, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        self._connection, self._run_id, self._table = connection, run_id, table
        self._names = list(rows[0]) if rows else []
        self._key = _key(connection, table)
        wanted = [
            tuple([v if type(v) is not str or v.isascii() else text(v) for v in row.values()]) for row in rows
        ]
        self._stored = self._all(self._names or self._key)
        self._gone: list[Values] = []
        self._rows = wanted
        if self._stored:
            self._compare(wanted)

    def _all(self, names: Sequence[str]) -> set[Values]:
        return set(
            self._connection.execute(
                f"SELECT {', '.join(names)} FROM {self._table} WHERE run_id = ?", (self._run_id,)
            )
        )

    def _compare(self, wanted: Sequence[Values]) -> None:
        self._rows = [row for row in wanted if row not in self._stored]
        gone = self._stored.difference(wanted)
        if not gone:
            return
        names = self._names or self._key
        places = [names.index(name) for name in self._key]

        def key(row: Values) -> Values:
            return tuple([row[place] for place in places])

        kept = set(map(key, wanted))
        self._gone = [k for k in map(key, gone) if k not in kept]

    def remove(self) -> None:
        where = " AND ".join(f"{name} = ?" for name in self._key)
        self._connection.executemany(f"DELETE FROM {self._table} WHERE {where}", self._gone)

    def write(self) -> None:
        update = ""
        if self._stored:
            changes = ", ".join(f"{name} = excluded.{name}" for name in self._names)
            update = f" ON CONFLICT ({', '.join(self._key)}) DO UPDATE SET {changes}"
        start = f"INSERT INTO {self._table} ({', '.join(self._names)}) VALUES "
        insert(self._connection, start, self._rows, end=update)


def _key(connection: sqlite3.Connection, table: str) -> list[str]:
    """Columns of the primary key."""
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[5]]


def replace(
    connection: sqlite3.Connection, run_id: str, table: str, rows: Iterable[Mapping[str, Any]]
) -> None:
    """Make the rows of one table, that no other refers to, those given."""
    difference = _Difference(connection, run_id, table, list(rows))
    difference.remove()
    difference.write()
