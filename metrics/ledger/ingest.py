"""Journals into the ledger: each line once, in portions of any size and order.

Events are kept as they are; everything else is made anew for the touched run from its facts and
the few progress events that can matter (:mod:`.heads`), by the one fold that all programs share. A
journal that was cut or replaced is read again from its start. Runs inside one transaction of
:class:`metrics.ledger.store.Ledger`. ``tests/metrics/test_ingest.py`` (hypothesis) compares with a
rebuild.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from resiliency import journal
from resiliency.contract import HOME_JOURNAL, RunPaths
from resiliency.durable import storage_error
from resiliency.events import Event
from resiliency.state import fold

from . import causes, project, schema
from .heads import Heads

_WINDOW: Final = 4 << 20  # bytes of a journal held in memory at once
_TAIL: Final = 512  # bytes before the offset whose checksum tells whether a file was replaced
_JSON: Final = json.JSONEncoder(separators=(",", ":"))
_COLUMNS: Final = "run_id, writer, seq, ts, mono, type, stage, attempt_id, cycle, node, rank, data, v"


@dataclass
class IngestReport:
    """What one look at a run's journals brought.

    ``events``: new ones; ``duplicates``: lines whose event was known; ``problems``: one line each,
    for a person, of what was met this time; ``torn_tails``: files whose last line is not complete
    yet; ``reread``: a journal was cut or replaced, so the run was read from its start.
    """

    run_id: str
    events: int = 0
    duplicates: int = 0
    files_read: int = 0
    torn_tails: int = 0
    reread: bool = False
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Known:
    """What the ledger remembers of a journal file."""

    offset: int
    size: int
    mtime_ns: int
    tail_crc: int
    lines: int
    torn_tail: bool


def unchanged(connection: sqlite3.Connection, run_dir: Path) -> IngestReport | None:
    """A report when no journal changed since the last look, told from sizes and times; else None."""
    run_id = run_dir.name
    row = connection.execute("SELECT run_dir FROM run WHERE run_id = ?", (run_id,)).fetchone()
    if row is None or row[0] != str(run_dir):
        return None
    return _same(connection, run_id, RunPaths(run_dir).journal)


def _same(connection: sqlite3.Connection, run_id: str, directory: Path) -> IngestReport | None:
    known = _known(connection, run_id)
    for path in journal.files(directory):
        before = known.get(path.name)
        if before is None or _stat(path) != (before.size, before.mtime_ns):
            return None
    torn = sum(entry.torn_tail for entry in known.values())
    return IngestReport(run_id, torn_tails=torn)


def home_unchanged(connection: sqlite3.Connection, directory: Path) -> IngestReport | None:
    """Like :func:`unchanged`, of the journal that belongs to no run."""
    return _same(connection, HOME_JOURNAL, directory)


def ingest_home(connection: sqlite3.Connection, directory: Path) -> IngestReport:
    """Read what is new in the journal that belongs to no run: persons' words on nodes."""
    report = IngestReport(HOME_JOURNAL)
    _Reader(connection, HOME_JOURNAL, directory, report).read()
    tables = causes.orders(HOME_JOURNAL, _events(connection, HOME_JOURNAL, "1"))
    for table in ("exclusion", "readmission"):
        connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (HOME_JOURNAL,))
        for row in tables.get(table, ()):
            _write(connection, table, row)
    return report


def ingest(connection: sqlite3.Connection, run_dir: Path) -> IngestReport:
    """Read what is new in the run's journals and bring the run's rows up to date."""
    report = IngestReport(run_dir.name)
    if _elsewhere(connection, run_dir, report):
        return report
    reader = _Reader(connection, run_dir.name, RunPaths(run_dir).journal, report)
    reader.read()
    events = list(stored_events(connection, run_dir.name, reader.heads))
    _replace(connection, run_dir, events)
    return report


def _elsewhere(connection: sqlite3.Connection, run_dir: Path, report: IngestReport) -> bool:
    """Whether the run of this name lives in another directory (this one is then a copy of it)."""
    row = connection.execute("SELECT run_dir FROM run WHERE run_id = ?", (run_dir.name,)).fetchone()
    if row is None or row[0] == str(run_dir):
        return False
    other = Path(row[0])
    if not other.is_dir() or other.samefile(run_dir):
        return False  # moved, or the same place under another name
    report.problems.append(f"{run_dir}: not read, the ledger has run {run_dir.name} from {other}")
    return True


class _Reader:
    """Reads one run's journals into the event table."""

    def __init__(
        self, connection: sqlite3.Connection, run_id: str, directory: Path, report: IngestReport
    ) -> None:
        self.connection = connection
        self.run_id = run_id
        self.directory = directory
        self.report = report
        self.heads = Heads()
        self.reused_numbers = False

    def read(self) -> None:
        paths = journal.files(self.directory)
        known = _known(self.connection, self.run_id)
        for path in paths:
            if path.name in known and not _continues(path, known[path.name]):
                self.report.reread = True
                self.report.problems.append(f"{path}: was cut or replaced; the run is read again")
        if self.report.reread:
            for table in ("event", "progress_head", "journal_file", "journal_problem"):
                self.connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (self.run_id,))
            known = {}
        self.heads = Heads.load(self.connection, self.run_id)
        for path in paths:
            self._file(path, known.get(path.name))
        if self.reused_numbers:
            self.heads = Heads()
            for event in _events(self.connection, self.run_id, "type = 'progress'"):
                self.heads.see(event)
        self.heads.save(self.connection, self.run_id)

    def _file(self, path: Path, before: _Known | None) -> None:
        size, mtime_ns = _stat(path)
        if before is not None and (size, mtime_ns) == (before.size, before.mtime_ns):
            self.report.torn_tails += before.torn_tail
            return
        self.report.files_read += 1
        offset, lines = (before.offset, before.lines) if before else (0, 0)
        while True:
            chunk = journal.read_file(path, offset, max_bytes=_WINDOW)
            if chunk.next_offset == offset:
                break
            self._insert(chunk.events)
            self._problems(path, chunk.problems)
            lines += len(chunk.events) + len(chunk.problems)
            offset = chunk.next_offset
        torn = offset < size
        self.report.torn_tails += torn
        problems = self.connection.execute(
            "SELECT count(*) FROM journal_problem WHERE run_id = ? AND file = ?",
            (self.run_id, path.name),
        ).fetchone()[0]
        self.connection.execute(
            "INSERT OR REPLACE INTO journal_file VALUES (?,?,?,?,?,?,?,?,?)",
            (
                *(self.run_id, path.name, offset, size, mtime_ns, _tail_crc(path, offset)),
                *(lines, problems, int(torn)),
            ),
        )

    def _insert(self, events: Sequence[Event]) -> None:
        before = self.connection.total_changes
        rows = [_row(self.run_id, event) for event in events]
        self.connection.executemany(f"INSERT OR IGNORE INTO event VALUES ({','.join('?' * 13)})", rows)
        new = self.connection.total_changes - before
        self.report.events += new
        self.report.duplicates += len(events) - new
        if new < len(events):
            for event, row in zip(events, rows, strict=True):
                self._settle(event, row)
        for event in events:
            if event.type == "progress":
                self.heads.see(event)

    def _settle(self, event: Event, row: tuple[Any, ...]) -> None:
        """Keep the event that every reader keeps when a sequence number was used twice."""
        stored = self.connection.execute(
            f"SELECT {_COLUMNS} FROM event WHERE run_id = ? AND writer = ? AND seq = ?", row[:3]
        ).fetchone()
        if stored == row:
            return
        self.report.problems.append(
            f"{self.directory}: writer {event.writer} used number {event.seq} for two events"
        )
        self.reused_numbers = True
        mine, theirs = _event(row), _event(stored)
        if journal.prefer(mine, theirs) is mine:
            self.connection.execute(f"INSERT OR REPLACE INTO event VALUES ({','.join('?' * 13)})", row)

    def _problems(self, path: Path, problems: Iterable[journal.Problem]) -> None:
        for problem in problems:
            self.report.problems.append(f"{path} at byte {problem.offset}: {problem.reason}")
            self.connection.execute(
                "INSERT OR IGNORE INTO journal_problem VALUES (?,?,?,?)",
                (self.run_id, path.name, problem.offset, _text(problem.reason)),
            )


def _known(connection: sqlite3.Connection, run_id: str) -> dict[str, _Known]:
    rows = connection.execute(
        'SELECT file, "offset", size, mtime_ns, tail_crc, lines, torn_tail FROM journal_file'
        " WHERE run_id = ?",
        (run_id,),
    )
    return {row[0]: _Known(row[1], row[2], row[3], row[4], row[5], bool(row[6])) for row in rows}


def _stat(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError as error:
        raise storage_error(error, path, "read journal") from error
    return stat.st_size, stat.st_mtime_ns


def _tail_crc(path: Path, offset: int) -> int:
    """Checksum of the last bytes before ``offset``; -1 when the file is shorter."""
    start = max(0, offset - _TAIL)
    try:
        with path.open("rb") as stream:
            stream.seek(start)
            raw = stream.read(offset - start)
    except OSError as error:
        raise storage_error(error, path, "read journal") from error
    return zlib.crc32(raw) if len(raw) == offset - start else -1


def _continues(path: Path, known: _Known) -> bool:
    """Whether the file still begins with what was read of it, as far as size and last bytes tell."""
    if _stat(path) == (known.size, known.mtime_ns):
        return True
    return _tail_crc(path, known.offset) == known.tail_crc


def _text(value: str | None) -> str | None:
    """Text that SQLite can hold: a lone surrogate, legal in JSON, is written as its escape."""
    if value is None or value.isascii():
        return value
    return value.encode("utf-8", "backslashreplace").decode()


def _row(run_id: str, event: Event) -> tuple[Any, ...]:
    return (
        *(run_id, event.writer, event.seq, event.ts, event.mono, event.type, event.stage),
        *(event.attempt, event.cycle, event.node, event.rank, _JSON.encode(event.data), event.v),
    )


def _event(row: Sequence[Any]) -> Event:
    run, writer, seq, ts, mono, type_, stage, attempt, cycle, node, rank, data, v = row
    payload = json.loads(data)
    return Event(type_, run, writer, seq, ts, mono, stage, attempt, cycle, node, rank, payload, v)


def _events(
    connection: sqlite3.Connection, run_id: str, where: str, values: Sequence[Any] = ()
) -> Iterator[Event]:
    for row in connection.execute(
        f"SELECT {_COLUMNS} FROM event WHERE run_id = ? AND {where}", (run_id, *values)
    ):
        yield _event(row)


def stored_events(connection: sqlite3.Connection, run_id: str, heads: Heads) -> Iterator[Event]:
    """The events that a fold of the run needs: all facts, and the progress that can matter."""
    yield from _events(connection, run_id, "type <> 'progress'")
    for writer, seq in sorted(heads.keys()):
        yield from _events(connection, run_id, "writer = ? AND seq = ?", (writer, seq))


def _replace(connection: sqlite3.Connection, run_dir: Path, events: Sequence[Event]) -> None:
    """Make the run's rows anew from its events."""
    tables = project.rows(run_dir, events, fold(events))
    run_id = run_dir.name
    for table in schema.DERIVED:
        connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))
    for table in ("run", *reversed(schema.DERIVED)):
        for row in tables.get(table, ()):
            update = ""
            if table == "run":
                update = " ON CONFLICT (run_id) DO UPDATE SET " + ", ".join(
                    f"{name} = excluded.{name}" for name in row
                )
            _write(connection, table, row, update)


def _write(connection: sqlite3.Connection, table: str, row: Mapping[str, Any], update: str = "") -> None:
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    connection.execute(
        f"INSERT INTO {table} ({names}) VALUES ({marks}){update}",
        [_text(v) if isinstance(v, str) else v for v in row.values()],
    )
