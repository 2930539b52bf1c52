"""The ledger's rows for other programs: CSV, JSON, JSON lines, or a copy of the SQLite file.

Reads only. ``tests/metrics/test_export.py`` reads each format back and compares.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import json
import os
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from resiliency.durable import storage_error
from resiliency.errors import NotFound, UsageError

from .store import Ledger, explained

FORMATS: Final = ("csv", "json", "jsonl", "sqlite")
#: What ``export`` leaves out unless asked for: bookkeeping, and the bulk.
_UNASKED: Final = frozenset({"event", "progress_head", "journal_file", "journal_problem"})


def table_names(ledger: Ledger) -> list[str]:
    """Tables and views that can be exported."""
    rows = ledger.rows(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
        " AND name NOT LIKE 'sqlite_%' ORDER BY type, name"
    )
    return [row["name"] for row in rows]


def _tables(ledger: Ledger, asked: Sequence[str]) -> list[str]:
    known = table_names(ledger)
    for name in asked:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise NotFound(f"the ledger has no table {name!r}", hint=f"{hint}there are: {', '.join(known)}")
    if asked:
        return list(asked)
    tables = ledger.rows("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return [row["name"] for row in tables if row["name"] not in _UNASKED]


def export(ledger: Ledger, format: str, out: Path | None = None, *, tables: Sequence[str] = ()) -> list[Path]:
    """Write ``tables`` (default: all but events and bookkeeping) and return the files made.

    ``out`` None: standard output. For several tables, ``csv`` and ``jsonl`` make a directory
    ``out`` with one file each; ``json`` is one object of lists, or a list for one table;
    ``sqlite`` copies the whole ledger. Raises UsageError, NotFound (with the nearest name),
    StorageError, LedgerError.
    """
    if format not in FORMATS:
        raise UsageError(f"unknown format {format!r}", hint=f"one of: {', '.join(FORMATS)}")
    if format == "sqlite":
        if out is None:
            raise UsageError("a copy of the SQLite file needs a file name", hint="add: --out FILE")
        return [_copy(ledger, out)]
    names = _tables(ledger, tables)
    if format == "json" or len(names) == 1:
        with _open(out) as stream, explained(ledger.path):
            if format == "json":
                _json(ledger, names, stream)
            else:
                _WRITERS[format](ledger, names[0], stream)
        return [out] if out else []
    if out is None:
        raise UsageError(
            f"{format} of several tables needs a directory",
            hint=f"add --out DIRECTORY, or name one table of: {', '.join(names)}",
        )
    made: list[Path] = []
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, out, "create") from error
    for name in names:
        path = out / f"{name}.{format}"
        with _open(path) as stream, explained(ledger.path):
            _WRITERS[format](ledger, name, stream)
        made.append(path)
    return made


@contextlib.contextmanager
def _open(out: Path | None) -> Iterator[IO[str]]:
    if out is None:
        yield sys.stdout
        return
    try:
        # newline="": the csv module writes its own line ends
        with out.open("w", encoding="utf-8", newline="") as stream:
            yield stream
    except OSError as error:
        raise storage_error(error, out, "write") from error


def _rows(ledger: Ledger, table: str) -> Iterator[dict[str, object]]:
    import sqlite_utils  # imported here: `status` must not pay for it

    yield from sqlite_utils.Database(ledger.connection)[table].rows


def _json(ledger: Ledger, names: Sequence[str], stream: IO[str]) -> None:
    found = {name: list(_rows(ledger, name)) for name in names}
    json.dump(found if len(names) > 1 else found[names[0]], stream, indent=1)
    stream.write("\n")


def _jsonl(ledger: Ledger, table: str, stream: IO[str]) -> None:
    for row in _rows(ledger, table):
        stream.write(json.dumps(row) + "\n")


def _csv(ledger: Ledger, table: str, stream: IO[str]) -> None:
    cursor = ledger.connection.execute(f'SELECT * FROM "{table}"')
    writer = csv.writer(stream)
    writer.writerow(column[0] for column in cursor.description)
    writer.writerows(cursor)


_WRITERS: Final = {"csv": _csv, "jsonl": _jsonl}


def _copy(ledger: Ledger, out: Path) -> Path:
    """A consistent copy, even while another process writes."""
    if out.exists() and out.samefile(ledger.path):
        raise UsageError(f"{out} is the ledger itself", hint="choose another file name")
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        with explained(ledger.path):
            target = sqlite3.connect(temporary)
            try:
                ledger.connection.backup(target)
            finally:
                target.close()
        os.replace(temporary, out)
    except OSError as error:
        raise storage_error(error, out, "write") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return out
