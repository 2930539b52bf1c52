"""Runs whose rows an older version made."""

from __future__ import annotations

import shutil
from pathlib import Path

from metrics.ledger import Ledger
from metrics.ledger.stale import bring_up, stale
from tests.metrics.accounting.stories import RUN, two_attempts
from tests.metrics.rundirs import lines, write


def test_they_are_read_again_once_and_a_lost_one_is_said(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    run_dir = write(tmp_path / "runs" / RUN, {"w": lines(two_attempts().events)})
    with Ledger.open(path) as ledger:
        ledger.ingest_run(run_dir)
        assert stale(ledger) == []
        with ledger.writing() as connection:
            connection.execute("UPDATE journal_file SET mtime_ns = -1")
        assert stale(ledger) == [run_dir]
    assert list(bring_up(path, [run_dir])) == []
    with Ledger.open(path) as ledger:
        assert stale(ledger) == []
    shutil.rmtree(run_dir)
    (problem,) = bring_up(path, [run_dir])
    assert "gone" in problem
