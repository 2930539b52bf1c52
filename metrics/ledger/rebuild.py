"""The whole ledger anew from the journals, beside the old one, then put in its place.

Needs nothing of the old file, so it also repairs a damaged one; until the last moment that stays
as it is. Refuses while another process writes. ``tests/metrics/test_rebuild.py``: same rows as the
live ledger.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from resiliency.contract import HOME_JOURNAL, RUN_ID, RunPaths
from resiliency.crashpoint import point
from resiliency.durable import fsync_dir, storage_error
from resiliency.errors import LedgerError, TrainmasterError

from .ingest import ingest, ingest_home
from .migrations import migrate, refuse_foreign
from .store import Ledger, explained, writer_lock


@dataclass
class RebuildReport:
    """What a rebuild found. ``problems``: one line each, for a person; the rebuild went on."""

    path: Path
    runs: int = 0
    events: int = 0
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


def run_dirs(home: Path, roots: Sequence[Path] = ()) -> Iterator[Path]:
    """Run directories below ``<home>/runs``, the roots that ``<home>/run-roots.jsonl`` names, and
    ``roots``.

    A root may also be a run directory itself. Raises StorageError for a root that exists and
    cannot be listed.
    """
    seen: set[Path] = set()
    for root in [home / "runs", *_remembered(home), *roots]:
        root = Path(root).expanduser().absolute()
        candidates = [root] if _is_run(root) else _entries(root)
        for path in candidates:
            if path not in seen and _is_run(path):
                seen.add(path)
                yield path


def _remembered(home: Path) -> list[Path]:
    roots: list[Path] = []
    path = home / "run-roots.jsonl"
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return roots
    except OSError as error:
        raise storage_error(error, path, "read") from error
    for line in lines:
        # A torn line names nothing; the root is appended again at the next submit.
        with contextlib.suppress(ValueError, KeyError, TypeError):
            roots.append(Path(json.loads(line)["root"]))
    return roots


def _entries(root: Path) -> list[Path]:
    try:
        return sorted(root.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise storage_error(error, root, "list") from error


def _is_run(path: Path) -> bool:
    paths = RunPaths(path)
    named = RUN_ID.fullmatch(path.name) is not None
    return named and (paths.run_json.exists() or paths.journal.is_dir())


def rebuild(
    home: Path,
    *,
    roots: Sequence[Path] = (),
    path: Path | None = None,
    wait_s: float = 0.0,
    on_run: Callable[[Path], None] = lambda run_dir: None,
) -> RebuildReport:
    """Make the ledger of ``home`` (or at ``path``) anew from the journals of every run found.

    A run that cannot be read is a problem in the report, not an end. Raises LedgerError while
    another process writes the ledger, when the present one is of a newer version (others may use
    it), or when the new one cannot be written; the present one is then untouched.
    """
    started = time.monotonic()
    home = Path(home).absolute()
    path = Path(path).absolute() if path else home / "ledger.db"
    report = RebuildReport(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, path.parent, "create") from error
    with writer_lock(path, wait_s):
        _refuse_newer(path)
        _sweep(path)
        fresh = path.with_name(f"{path.name}.rebuild-{os.getpid()}")
        try:
            _build(fresh, home, roots, report, on_run)
            point("rebuild.before_replace")
            _replace(fresh, path)
        except OSError as error:
            raise storage_error(error, path, "replace ledger") from error
        finally:
            with contextlib.suppress(OSError):
                fresh.unlink()
    report.seconds = time.monotonic() - started
    return report


def _refuse_newer(path: Path) -> None:
    """A newer version's file is not ours to replace; a damaged one is."""
    if not path.exists():
        return
    try:
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            refuse_foreign(connection, str(path))
        finally:
            connection.close()
    except sqlite3.Error:
        return  # damaged: what a rebuild is for


def _sweep(path: Path) -> None:
    """Remove what an interrupted rebuild left."""
    for old in path.parent.glob(f"{path.name}.rebuild-*"):
        with contextlib.suppress(OSError):
            old.unlink()


def _build(
    fresh: Path,
    home: Path,
    roots: Sequence[Path],
    report: RebuildReport,
    on_run: Callable[[Path], None],
) -> None:
    os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    # No fsync per run: the file counts only once it is complete, and is synced then.
    with explained(fresh), Ledger(fresh, readonly_reason=None, wait_s=0, sync=False) as ledger:
        connection = ledger.connection
        migrate(connection, str(fresh))
        for run_dir in run_dirs(home, roots):
            on_run(run_dir)
            connection.execute("BEGIN IMMEDIATE")
            try:
                done = ingest(connection, run_dir)
            except LedgerError:
                raise
            except TrainmasterError as error:
                connection.execute("ROLLBACK")
                report.problems.append(f"{run_dir}: not read: {error.message}")
                continue
            connection.execute("COMMIT")
            report.runs += 1
            report.events += done.events
            report.problems += done.problems
        connection.execute("BEGIN IMMEDIATE")
        told = ingest_home(connection, home / HOME_JOURNAL)
        connection.execute("COMMIT")
        report.events += told.events
        report.problems += told.problems
        connection.execute("PRAGMA optimize")
    fd = os.open(fresh, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _replace(fresh: Path, path: Path) -> None:
    # A rollback journal left by a crash belongs to the old file; SQLite would play it into the new.
    for suffix in ("-journal", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    os.replace(fresh, path)
    fsync_dir(path.parent)
