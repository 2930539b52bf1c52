"""Is the ledger sound, and does it agree with the journals? Findings, each with the next step.

Reads only, and needs no ledger in good health. ``tests/metrics/test_check.py`` breaks each thing
once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from resiliency import journal
from resiliency.contract import RunPaths
from resiliency.errors import LedgerError, StorageError

from . import rebuild as _rebuild
from .store import REBUILD, Ledger

ERROR: Final = "error"  # the ledger gives wrong answers or none
WARNING: Final = "warning"  # it is right as far as it goes, something is missing
INFO: Final = "info"

TICK: Final = "run: python -m orchestrator tick"


@dataclass(frozen=True)
class Finding:
    """``severity``: error, warning or info; ``code``: a stable word for scripts; ``hint``: next
    step.
    """

    severity: str
    code: str
    message: str
    hint: str = ""


def check(home: Path, *, roots: Sequence[Path] = (), path: Path | None = None) -> list[Finding]:
    """Everything found to be wrong, worst first; empty: nothing."""
    path = Path(path).absolute() if path else Path(home).absolute() / "ledger.db"
    try:
        with Ledger.open(path, readonly=True) as ledger:
            found = [*_file(ledger), *_journals(ledger), *_events(ledger)]
            found += _missing_runs(ledger, home, roots)
            found += _repeated_jobs(ledger)
    except LedgerError as error:
        return [Finding(ERROR, "unusable", error.message, error.hint)]
    order = (ERROR, WARNING, INFO)
    return sorted(found, key=lambda finding: order.index(finding.severity))


def _file(ledger: Ledger) -> Iterator[Finding]:
    """SQLite's own opinion."""
    try:
        for row in ledger.rows("PRAGMA integrity_check(10)"):
            if row[0] != "ok":
                yield Finding(ERROR, "damaged", f"{ledger.path}: {row[0]}", REBUILD)
    except LedgerError as error:
        yield Finding(ERROR, "damaged", error.message, REBUILD)
        return
    broken: dict[str, int] = {}
    for row in ledger.rows("PRAGMA foreign_key_check"):
        broken[row[0]] = broken.get(row[0], 0) + 1
    for table, count in sorted(broken.items()):
        yield Finding(ERROR, "orphans", f"{count} rows of {table} belong to nothing", REBUILD)
    if ledger.path.stat().st_mode & 0o002:
        yield Finding(WARNING, "open-to-all", f"{ledger.path} can be changed by everybody", "chmod 600 it")


def _journals(ledger: Ledger) -> Iterator[Finding]:
    """What the ledger has read against what lies on disk."""
    files: dict[str, dict[str, sqlite3.Row]] = {}
    for row in ledger.rows("SELECT * FROM journal_file"):
        files.setdefault(row["run_id"], {})[row["file"]] = row
    for run in ledger.rows("SELECT run_id, run_dir FROM run ORDER BY created_at"):
        run_id, run_dir = run["run_id"], Path(run["run_dir"])
        if not run_dir.is_dir():
            yield Finding(
                WARNING,
                "run-gone",
                f"run {run_id}: {run_dir} is gone; the ledger has its last copy",
                "mount its file system, or accept that a rebuild will not have this run",
            )
            continue
        try:
            present = {p.name: p.stat().st_size for p in journal.files(RunPaths(run_dir).journal)}
        except (StorageError, OSError) as error:
            yield Finding(WARNING, "unreadable", f"run {run_id}: {error}", "check its owner and mode")
            continue
        known = files.get(run_id, {})
        for name in sorted(known.keys() - present.keys()):
            yield Finding(
                WARNING,
                "journal-gone",
                f"run {run_id}: journal {name} is gone; its events are in the ledger only",
                "bring the file back from a copy, or accept that a rebuild will not have them",
            )
        behind = sum(
            max(0, size - (known[name]["offset"] if name in known else 0)) for name, size in present.items()
        )
        shorter = [n for n, size in present.items() if n in known and size < known[n]["offset"]]
        for name in sorted(shorter):
            yield Finding(
                WARNING,
                "journal-cut",
                f"run {run_id}: journal {name} is shorter than what was read of it",
                f"{TICK} (it reads the run again)",
            )
        if behind:
            yield Finding(INFO, "behind", f"run {run_id}: {behind} bytes of journals not read", TICK)


def _events(ledger: Ledger) -> Iterator[Finding]:
    for row in ledger.rows(
        'SELECT run_id, file, count(*) AS n, min("offset") AS first, min(reason) AS reason'
        " FROM journal_problem GROUP BY run_id, file"
    ):
        yield Finding(
            INFO,
            "bad-lines",
            f"run {row['run_id']}: {row['n']} lines of {row['file']} are no intact events"
            f" (first at byte {row['first']}: {row['reason']})",
            "usually a write cut short by a crash or a full disk; the rest of the file was read",
        )
    for row in ledger.rows("SELECT run_id, count(*) AS n FROM journal_file WHERE torn_tail GROUP BY run_id"):
        yield Finding(
            INFO,
            "unfinished-lines",
            f"run {row['run_id']}: {row['n']} journals end in an unfinished line",
            "nothing, if something is writing now; the line is read once it is complete",
        )


def _missing_runs(ledger: Ledger, home: Path, roots: Sequence[Path]) -> Iterator[Finding]:
    known = {row["run_id"]: row["run_dir"] for row in ledger.rows("SELECT run_id, run_dir FROM run")}
    try:
        for run_dir in _rebuild.run_dirs(Path(home), roots):
            if run_dir.name not in known:
                yield Finding(WARNING, "run-missing", f"{run_dir} is not in the ledger", TICK)
            elif known[run_dir.name] != str(run_dir):
                yield Finding(
                    WARNING,
                    "run-twice",
                    f"{run_dir} is a second directory of run {run_dir.name};"
                    f" the ledger has {known[run_dir.name]}",
                    "move the copy out of the directories that hold runs",
                )
    except StorageError as error:
        yield Finding(WARNING, "unreadable", error.message, error.hint)


def _repeated_jobs(ledger: Ledger) -> Iterator[Finding]:
    for row in ledger.rows(
        "SELECT cluster, job_id, restart_count, group_concat(run_id) AS runs FROM attempt"
        " GROUP BY cluster, job_id, restart_count HAVING count(*) > 1"
    ):
        runs = ", ".join(sorted(set(row["runs"].split(","))))
        yield Finding(
            INFO,
            "job-id-reused",
            f"job {row['job_id']} of {row['cluster']} belongs to several attempts ({runs})",
            "the scheduler's job numbers started anew, or a run directory was copied",
        )
