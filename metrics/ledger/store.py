"""Opening the ledger: versions, the single writer, and what can be wrong with the file, in
sentences.

Rollback journal, never WAL: home directories are network file systems, where WAL's shared memory
does not work. Writers take ``<ledger>.lock`` first, since SQLite's own locks are weak there;
readers need none. Nothing here interprets events. ``tests/metrics/test_store.py``.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from resiliency.contract import HOME_JOURNAL
from resiliency.durable import locked
from resiliency.errors import LedgerError, LockBusy, StorageError

from .migrations import VERSION, migrate, refuse_foreign

if TYPE_CHECKING:
    from .ingest import IngestReport

REBUILD = "run: python -m orchestrator ledger rebuild"
KEPT = "nothing is lost: the journals hold it"

#: Words in SQLite's messages → what to say and what to do. First match counts.
_FAULTS: tuple[tuple[str, str, str], ...] = (
    ("disk is full", "the disk is full", f"free space, then run the same command again; {KEPT}"),
    ("locked", "another process is using it", f"run the same command again in a minute; {KEPT}"),
    ("readonly", "it is read-only", f"check owner and mode of the file and its directory; {KEPT}"),
    ("not a database", "it is not a SQLite file, or is damaged", REBUILD),
    ("malformed", "it is damaged", REBUILD),
    ("corrupt", "it is damaged", REBUILD),
    ("no such table", "a table is missing", REBUILD),
    ("no such column", "a column is missing", REBUILD),
    ("unable to open", "it cannot be opened", "check that directory and file exist and are yours"),
    ("disk I/O", "the disk or file system failed", f"check disk space and quota; {KEPT}"),
)


def ledger_error(error: sqlite3.Error, path: Path) -> LedgerError:
    """A sentence for what SQLite said about the file."""
    text = str(error)
    for word, says, hint in _FAULTS:
        if word in text:
            return LedgerError(f"ledger {path}: {says} ({text})", hint=hint)
    return LedgerError(f"ledger {path}: {text}", hint="run: python -m orchestrator ledger check")


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """SQLite's errors as :class:`LedgerError`."""
    try:
        yield
    except sqlite3.Error as error:
        raise ledger_error(error, path) from error


def lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


@contextlib.contextmanager
def writer_lock(path: Path, wait_s: float) -> Iterator[None]:
    """The right to write the ledger at ``path``. Raises LedgerError while another process has it."""
    try:
        with locked(lock_path(path), wait_s=wait_s, what=f"ledger {path}"):
            yield
    except LockBusy as error:
        raise LedgerError(error.message, hint=f"{error.hint}; {KEPT}") from error


class Ledger:
    """An open ledger. Use :meth:`open`; close it, or use it as a context manager.

    ``readonly_reason``: why writing is not possible, or None. Not for use by several threads at
    once.
    """

    def __init__(self, path: Path, *, readonly_reason: str | None, wait_s: float, sync: bool = True) -> None:
        self.path = path
        self.readonly_reason = readonly_reason
        self._wait_s = wait_s
        self._sync = sync
        self._inode = -1
        self._connection: sqlite3.Connection | None = None

    @classmethod
    def open(cls, path: Path, *, readonly: bool = False, wait_s: float = 10.0) -> Ledger:
        """Open, and create or migrate where needed; falls back to reading where writing is not
        possible.

        ``wait_s``: how long to wait for another writer. Raises LedgerError: no such file (when only
        reading), damaged, of a newer version, locked, or no ledger at all.
        """
        path = Path(path).absolute()
        reason = "it was opened for reading only" if readonly else _not_writable(path)
        ledger = cls(path, readonly_reason=reason, wait_s=wait_s)
        try:
            if reason is not None and not path.exists():
                raise LedgerError(
                    f"there is no ledger at {path}"
                    + ("" if readonly else f", and it cannot be made: {reason}"),
                    hint="python -m orchestrator tick makes it; with --home it lies elsewhere",
                )
            with explained(path):
                ledger._prepare()
        except BaseException:
            ledger.close()
            raise
        return ledger

    def _prepare(self) -> None:
        if self.readonly_reason is None and not self.path.exists():
            with writer_lock(self.path, self._wait_s):
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = self._connect()
        version = refuse_foreign(connection, str(self.path))
        if version == VERSION:
            return
        why = _not_writable(self.path) if self.readonly_reason is not None else None
        if self.readonly_reason is not None and why is None:
            # Who only wants to read may write: an upgrade must not make reading wait for a writer's command.
            Ledger.open(self.path, wait_s=self._wait_s).close()
            return
        if self.readonly_reason is not None:
            raise LedgerError(
                f"ledger {self.path} has the older schema {version} and cannot be brought to"
                f" {VERSION}: {why}",
                hint="run the command as the owner of the file, or use another --home",
            )
        with writer_lock(self.path, self._wait_s):
            migrate(connection, str(self.path))

    def _connect(self) -> sqlite3.Connection:
        mode = "ro" if self.readonly_reason else "rw"
        connection = sqlite3.connect(
            f"file:{quote(os.fspath(self.path))}?mode={mode}",
            uri=True,
            isolation_level=None,
            timeout=self._wait_s,
        )
        self._connection = connection
        self._inode = self.path.stat().st_ino
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA cache_size = -16000")
        connection.execute("PRAGMA temp_store = MEMORY")
        if not self._sync:
            connection.execute("PRAGMA synchronous = OFF")
        if not self.readonly_reason:
            # Somebody's viewer may have switched the file to WAL.
            connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        return connection

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection to the file that is at ``path`` now: a rebuild may have replaced it."""
        if self._connection is None:
            return self._connect()
        if not self._connection.in_transaction:
            try:
                moved = self.path.stat().st_ino != self._inode
            except FileNotFoundError:
                moved = False  # gone: what we have open is all there is to read
            if moved:
                self._connection.close()
                return self._connect()
        return self._connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction with the writer's lock held. Raises LedgerError; then nothing has
        changed.
        """
        if self.readonly_reason is not None:
            raise LedgerError(
                f"ledger {self.path} cannot be written: {self.readonly_reason}",
                hint=f"what it holds can still be read; {KEPT}",
            )
        with explained(self.path), writer_lock(self.path, self._wait_s):
            connection = self.connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # SQLite may have rolled back itself (disk full)
                    connection.execute("ROLLBACK")
                raise

    def rows(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[sqlite3.Row]:
        """All rows of a query, by column name. Raises LedgerError."""
        with explained(self.path):
            cursor = self.connection.cursor()
            cursor.row_factory = sqlite3.Row
            return cursor.execute(sql, parameters).fetchall()

    def ingest_run(self, run_dir: Path) -> IngestReport:
        """Bring the ledger up to date with the journals of one run, in one transaction.

        Each line is read once; what is read, in whatever portions, gives the rows of a full
        rebuild. Raises LedgerError (nothing has changed then) or StorageError (the run cannot be
        read).
        """
        from .ingest import ingest, unchanged  # reading the ledger needs no fold

        run_dir = Path(run_dir).absolute()
        if not run_dir.is_dir():
            raise StorageError(
                f"cannot read run {run_dir}: no such directory",
                hint="check that its file system is mounted; the ledger keeps what it knows of it",
            )
        with explained(self.path):
            report = unchanged(self.connection, run_dir)
        if report is not None:
            return report
        with self.writing() as connection:
            return ingest(connection, run_dir)

    def ingest_home(self, home: Path) -> IngestReport:
        """The same of the journal in ``home`` that belongs to no run (what persons said of nodes)."""
        from .ingest import home_unchanged, ingest_home

        directory = Path(home).absolute() / HOME_JOURNAL
        with explained(self.path):
            report = home_unchanged(self.connection, directory)
        if report is not None:
            return report
        with self.writing() as connection:
            return ingest_home(connection, directory)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _not_writable(path: Path) -> str | None:
    """Why the ledger at ``path`` cannot be written, or None. Makes the directory."""
    directory = path.parent
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        return f"directory {directory} cannot be made: {error.strerror}"
    if not os.access(directory, os.W_OK):
        # SQLite writes its rollback journal beside the file.
        return f"directory {directory} is read-only for you"
    for file in (path, lock_path(path)):
        if file.exists() and not os.access(file, os.W_OK):
            return f"{file} is read-only for you"
    return None
