"""Rebuild: the same rows as the live ledger, whatever state the old file is in."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from metrics.ledger import Ledger
from metrics.ledger.rebuild import rebuild, run_dirs
from metrics.ledger.store import writer_lock
from resiliency.contract import RunPaths
from resiliency.errors import LedgerError
from resiliency.journal import JournalWriter
from tests.metrics.rundirs import RUN, dump, make_run

OTHER = "other-20260102-000000-0001"


def test_rebuilt_rows_equal_the_live_ones(tmp_path: Path) -> None:
    runs = [make_run(tmp_path), make_run(tmp_path, OTHER, steps=40)]
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        for _ in range(3):  # live: a little at a time
            for run_dir in runs:
                with JournalWriter(RunPaths(run_dir).journal, run=run_dir.name, writer="rank0") as writer:
                    data = {"step": 50, "loss": 1.0}
                    writer.append("progress", data, stage="train", attempt="c1/7.1")
                ledger.ingest_run(run_dir)
        live = dump(ledger)
    report = rebuild(tmp_path)
    assert (report.runs, report.problems) == (2, [])
    assert report.events == len(live["event"])
    assert dump(tmp_path / "ledger.db") == live


def test_runs_are_found_wherever_they_were_put(tmp_path: Path) -> None:
    home = tmp_path / "home"
    default = make_run(home)
    listed = make_run(tmp_path / "scratch", OTHER)
    given = make_run(tmp_path / "given", "third-20260103-000000-0002")
    (home / "run-roots.jsonl").write_text(
        '\n{"root": "' + str(listed.parent) + '"}\n{"torn\n[1]\n{"root": "/nowhere"}\n'
    )
    (home / "runs" / "notes").mkdir()  # not a run
    assert list(run_dirs(home, [given.parent])) == [default, listed, given]
    assert list(run_dirs(home, [given, given.parent])) == [default, listed, given]


@pytest.mark.parametrize("damage", ["missing", "garbage", "cut", "empty"])
def test_any_old_file_is_replaced(tmp_path: Path, damage: str) -> None:
    run_dir = make_run(tmp_path)
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.ingest_run(run_dir)
        live = dump(ledger)
    if damage == "missing":
        path.unlink()
    elif damage == "garbage":
        path.write_bytes(os.urandom(50_000))
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:5000])
    else:
        path.write_bytes(b"")
    rebuild(tmp_path)
    assert dump(path) == live


@pytest.mark.parametrize("old_file", ["kept", "deleted"])
def test_a_crash_s_rollback_journal_is_not_played_into_the_new_file(tmp_path: Path, old_file: str) -> None:
    run_dir = make_run(tmp_path)
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.ingest_run(run_dir)
        live = dump(ledger)
    code = f"""
import os, signal, sqlite3
c = sqlite3.connect({str(path)!r}, isolation_level=None)
c.execute("PRAGMA cache_size = 1"); c.execute("BEGIN IMMEDIATE")
c.execute("UPDATE event SET data = hex(randomblob(4000))")
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.with_name("ledger.db-journal").stat().st_size > 0
    if old_file == "deleted":  # by somebody who wanted to start anew
        path.unlink()
    rebuild(tmp_path)
    assert not path.with_name("ledger.db-journal").exists()
    assert dump(path) == live


def test_it_refuses_while_another_process_writes(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.ingest_run(run_dir)
    before = path.read_bytes()
    with writer_lock(path, 0), pytest.raises(LedgerError, match="another command"):
        rebuild(tmp_path)
    assert path.read_bytes() == before


def test_a_killed_rebuild_leaves_the_old_ledger_and_the_next_one_tidies_up(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.ingest_run(run_dir)
        live = dump(ledger)
    code = (
        "from pathlib import Path; from metrics.ledger.rebuild import rebuild\n"
        f"rebuild(Path({str(tmp_path)!r}))"
    )
    env = {**os.environ, "TRAINMASTER_CRASH_AT": "rebuild.before_replace"}
    done = subprocess.run([sys.executable, "-c", code], env=env, check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(tmp_path.glob("ledger.db.rebuild-*"))
    assert dump(path) == live
    rebuild(tmp_path)
    assert not list(tmp_path.glob("ledger.db.rebuild-*"))
    assert dump(path) == live


def test_a_run_that_cannot_be_read_is_a_problem_not_an_end(tmp_path: Path) -> None:
    make_run(tmp_path)
    journal = RunPaths(make_run(tmp_path, OTHER)).journal
    shutil.rmtree(journal)
    journal.write_text("a file where a directory should be")
    report = rebuild(tmp_path)
    assert report.runs == 1
    assert OTHER in report.problems[0] and "not read" in report.problems[0]
    assert [row[0] for row in dump(tmp_path / "ledger.db")["run"]] == [RUN]


def test_a_newer_version_s_ledger_is_not_replaced(tmp_path: Path) -> None:
    import sqlite3

    make_run(tmp_path)
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(LedgerError, match="schema 99"):
        rebuild(tmp_path)


def test_a_ledger_that_is_open_goes_on_in_the_new_file(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.ingest_run(run_dir)
        rebuild(tmp_path)
        with JournalWriter(RunPaths(run_dir).journal, run=RUN, writer="login-a") as writer:
            writer.append("run.cancelled", {"stages": {"train": 0}})
        ledger.ingest_run(run_dir)
    with Ledger.open(path, readonly=True) as again:
        rows = again.rows("SELECT status FROM stage WHERE stage = 'train'")
        assert [row[0] for row in rows] == ["cancelled"]


def test_the_report_is_plain_data(tmp_path: Path) -> None:
    make_run(tmp_path)
    from dataclasses import asdict

    assert json.dumps(asdict(rebuild(tmp_path)), default=str)
