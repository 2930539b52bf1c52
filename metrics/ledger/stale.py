"""Runs whose rows an older version made: their journals are read again. ``tests/metrics/test_stale.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .store import Ledger


def stale(ledger: Ledger) -> list[Path]:
    """Directories of runs that were not looked at since a migration, oldest first."""
    rows = ledger.connection.execute(
        "SELECT run_dir FROM run WHERE run_id IN (SELECT run_id FROM journal_file WHERE mtime_ns = -1)"
        " ORDER BY created_at, run_id"
    )
    return [Path(row[0]) for row in rows]


def bring_up(path: Path, runs: list[Path]) -> Iterator[str]:
    """Read these runs again into the ledger at ``path``; what went wrong, a line each. Raises LedgerError."""
    with Ledger.open(path) as ledger:
        for run_dir in runs:
            if not run_dir.is_dir():
                yield f"{run_dir}: gone; its rows are what an older version made of it"
                continue
            yield from ledger.ingest_run(run_dir).problems
