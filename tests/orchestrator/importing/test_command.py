"""Which sources may be asked for together, and files that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.home import Home
from orchestrator.importing.command import Wanted, run
from resiliency.errors import StorageError, UsageError


def wanted(sacct: str | None = None, *, live: bool = False, logs: tuple[Path, ...] = ()) -> Wanted:
    return Wanted(sacct, live, "1d", logs, None, "UTC", None, False)


def test_nothing_and_two_ways_to_the_same_are_refused(tmp_path: Path) -> None:
    home = Home.at(tmp_path / "home")
    with pytest.raises(UsageError, match="nothing to import"):
        run(home, wanted())
    with pytest.raises(UsageError, match="two ways"):
        run(home, wanted("x", live=True))
    with pytest.raises(StorageError):
        run(home, wanted(str(tmp_path / "missing")))
    assert not home.root.exists()


def test_accounting_comes_before_the_logs_of_its_jobs(tmp_path: Path) -> None:
    dump, log = tmp_path / "jobs.txt", tmp_path / "slurm-700.out"
    times = "2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T02:00:00"
    # Bytes that are no text, as a job's name may have them, are read as something.
    dump.write_bytes(f"JobID|JobName|State|Submit|Start|End\n700|a\xff|TIMEOUT|{times}\n".encode("latin-1"))
    log.write_text(" [2026-01-01 01:30:00] iteration 5/ 9 | lm loss: 2.0 |\n")
    first, second = run(Home.at(tmp_path / "home"), wanted(str(dump), logs=(log,)))
    assert (first.kind, first.new, second.kind, second.runs) == ("sacct", 1, "log", first.runs)
