"""Journals into the ledger: each line once, in portions of any size and order.

Events are kept as they are; everything else is made anew for the touched run from its facts and
the few progress events that can matter (:mod:`.heads`), by the one fold that all programs share. A
journal that was cut or replaced is read again from its start. Runs inside one transaction of
:class:`metrics.ledger.store.Ledger`. ``tests/metrics/test_ingest.py`` (hypothesis) compares with a
rebuild.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from resiliency import journal
from resiliency.collector import uncollected
from resiliency.contract import HOME_JOURNAL, RunPaths
from resiliency.durable import storage_error
from resiliency.events import BadEvent, Event
from resiliency.lines import loads
from resiliency.state import fold

from . import causes, lines, project, writing
from .heads import Heads
from .lines import EventRow
from .progress import Progress

_WINDOW: Final = 128 << 10  # bytes of a journal held at once: few enough for the processor's caches
_TAIL: Final = 512  # bytes before the offset whose checksum tells whether a file was replaced
_NEW: Final = f"INSERT OR IGNORE INTO event ({lines.COLUMNS}) VALUES "
_KEEP: Final = f"INSERT OR REPLACE INTO event ({lines.COLUMNS}) VALUES {lines.MARKS}"


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
    problems: int
    torn_tail: bool


_NOTHING: Final = _Known(0, 0, 0, 0, 0, 0, False)


def unchanged(connection: sqlite3.Connection, run_dir: Path) -> IngestReport | None:
    """A report when no journal changed since the last look, told from sizes and times; else None."""
    run_id = run_dir.name
    row = connection.execute("SELECT run_dir FROM run WHERE run_id = ?", (run_id,)).fetchone()
    if row is None or row[0] != str(run_dir):
        return None
    return _same(connection, run_id, RunPaths(run_dir).journal)


def _same(connection: sqlite3.Connection, run_id: str, directory: Path) -> IngestReport | None:
    known: dict[str, tuple[int, int]] = {}
    torn = 0
    for name, size, mtime_ns, tail in connection.execute(
        "SELECT file, size, mtime_ns, torn_tail FROM journal_file WHERE run_id = ?", (run_id,)
    ):
        known[name] = (size, mtime_ns)
        torn += tail
    same = journal.sizes(directory).items() <= known.items()
    return IngestReport(run_id, torn_tails=torn) if same else None


def home_unchanged(connection: sqlite3.Connection, directory: Path) -> IngestReport | None:
    """Like :func:`unchanged`, of the journal that belongs to no run."""
    return _same(connection, HOME_JOURNAL, directory)


def ingest_home(connection: sqlite3.Connection, directory: Path) -> IngestReport:
    """Read what is new in the journal that belongs to no run: persons' words on nodes."""
    report = IngestReport(HOME_JOURNAL)
    _Reader(connection, HOME_JOURNAL, directory, report).read()
    tables = causes.orders(HOME_JOURNAL, map(lines.event_of, _rows(connection, HOME_JOURNAL, "1")))
    for table in ("exclusion", "readmission"):
        writing.replace(connection, HOME_JOURNAL, table, tables.get(table, ()))
    return report


def ingest(connection: sqlite3.Connection, run_dir: Path) -> IngestReport:
    """Read what is new in the run's journals and bring the run's rows up to date."""
    report = IngestReport(run_dir.name)
    if _elsewhere(connection, run_dir, report):
        return report
    with uncollected():
        reader = _Reader(connection, run_dir.name, RunPaths(run_dir).journal, report)
        reader.read()
        events = list(stored_events(connection, run_dir.name))
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
        self.heads = Heads(connection, run_id)
        self.read_files: list[tuple[Any, ...]] = []
        self.reused_numbers = False

    def read(self) -> None:
        sizes = journal.sizes(self.directory)
        known = _known(self.connection, self.run_id)
        for name, seen in sizes.items():
            path = self.directory / name
            if name in known and not _continues(path, seen, known[name]):
                self.report.reread = True
                self.report.problems.append(f"{path}: was cut or replaced; the run is read again")
        if self.report.reread:
            for table in ("event", "progress_head", "journal_file", "journal_problem"):
                self.connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (self.run_id,))
            known = {}
        for name, seen in sizes.items():
            self._file(self.directory / name, seen, known.get(name))
        if self.reused_numbers:
            self.heads.forget()
            for row in _rows(self.connection, self.run_id, "type = 'progress'"):
                self.heads.see(row, loads(row[lines.DATA]))
        self.heads.save()
        self.connection.executemany(
            "INSERT OR REPLACE INTO journal_file VALUES (?,?,?,?,?,?,?,?,?)", self.read_files
        )

    def _file(self, path: Path, seen: tuple[int, int], before: _Known | None) -> None:
        size, mtime_ns = seen
        if before is not None and (size, mtime_ns) == (before.size, before.mtime_ns):
            self.report.torn_tails += before.torn_tail
            return
        self.report.files_read += 1
        before = before or _NOTHING
        offset, count, problems, tail = before.offset, before.lines, before.problems, b""
        while offset < size:
            raw, _ = journal.read_raw(path, offset, max_bytes=_WINDOW)
            if not raw:
                break
            good, bad = self._lines(path, offset, raw)
            count, problems = count + good + bad, problems + bad
            offset, tail = offset + len(raw), (tail + raw[-_TAIL:])[-_TAIL:]
        torn = offset < size
        self.report.torn_tails += torn
        known = len(tail) == min(_TAIL, offset)
        crc = zlib.crc32(tail) if known else _tail_crc(path, offset)
        self.read_files.append(
            (self.run_id, path.name, offset, size, mtime_ns, crc, count, problems, int(torn))
        )

    def _lines(self, path: Path, offset: int, raw: bytes) -> tuple[int, int]:
        """Take whole lines that begin at ``offset``; how many were events, and how many were not."""
        rows: list[EventRow] = []
        problems: list[tuple[str, str, int, str | None]] = []
        see, run_id = self.heads.see, self.run_id
        for line in raw.split(b"\n"):
            try:
                row, data = lines.read(line, run_id)
            except BadEvent as bad:
                if line.strip():
                    self.report.problems.append(f"{path} at byte {offset}: {bad}")
                    problems.append((run_id, path.name, offset, writing.text(str(bad))))
            else:
                rows.append(row)
                if row[lines.TYPE] == "progress":
                    see(row, data)
            offset += len(line) + 1
        self._insert(rows)
        self.connection.executemany("INSERT OR IGNORE INTO journal_problem VALUES (?,?,?,?)", problems)
        return len(rows), len(problems)

    def _insert(self, rows: Sequence[EventRow]) -> None:
        before = self.connection.total_changes
        writing.insert(self.connection, _NEW, rows)
        new = self.connection.total_changes - before
        self.report.events += new
        self.report.duplicates += len(rows) - new
        if new < len(rows):
            for row in rows:
                self._settle(row)

    def _settle(self, row: EventRow) -> None:
        """Keep the event that every reader keeps when a sequence number was used twice."""
        _, writer, seq = key = row[: lines.SEQ + 1]
        stored = self.connection.execute(
            f"SELECT {lines.COLUMNS} FROM event WHERE run_id = ? AND writer = ? AND seq = ?", key
        ).fetchone()
        if stored == row:
            return
        self.report.problems.append(f"{self.directory}: writer {writer} used number {seq} for two events")
        self.reused_numbers = True
        if lines.prefer(row, stored) is row:
            self.connection.execute(_KEEP, row)


def _known(connection: sqlite3.Connection, run_id: str) -> dict[str, _Known]:
    rows = connection.execute(
        'SELECT file, "offset", size, mtime_ns, tail_crc, lines, problems, torn_tail FROM journal_file'
        " WHERE run_id = ?",
        (run_id,),
    )
    return {row[0]: _Known(row[1], row[2], row[3], row[4], row[5], row[6], bool(row[7])) for row in rows}


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


def _continues(path: Path, seen: tuple[int, int], known: _Known) -> bool:
    """Whether the file still begins with what was read of it, as far as size and last bytes tell."""
    if seen == (known.size, known.mtime_ns):
        return True
    return _tail_crc(path, known.offset) == known.tail_crc


def _rows(connection: sqlite3.Connection, run_id: str, where: str) -> Iterator[EventRow]:
    return connection.execute(f"SELECT {lines.COLUMNS} FROM event WHERE run_id = ? AND {where}", (run_id,))


def stored_events(connection: sqlite3.Connection, run_id: str) -> Iterator[Event]:
    """The events that a fold of the run needs: all facts, and the progress that can matter."""
    yield from map(lines.event_of, _rows(connection, run_id, "type <> 'progress'"))
    heads = "SELECT DISTINCT writer, seq FROM progress_head WHERE run_id = event.run_id"
    yield from map(lines.event_of, _rows(connection, run_id, f"(writer, seq) IN ({heads})"))


def _replace(connection: sqlite3.Connection, run_dir: Path, events: Sequence[Event]) -> None:
    """Make the run's rows anew from its events."""
    words = Progress(connection, run_dir.name)
    tables = project.rows(run_dir, events, fold(events), words)
    writing.bring(connection, run_dir.name, tables)
