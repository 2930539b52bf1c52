"""A log goes to the attempt it is of, or is a run of its own; once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from metrics.ledger import Ledger
from metrics.ledger.rebuild import rebuild
from orchestrator.home import Home
from orchestrator.importing.logs import import_log
from orchestrator.importing.sacct import Options, import_sacct
from resiliency.errors import NotFound, StorageError
from resiliency.journal import JournalWriter

UTC = Options(zone="UTC")
SACCT = [
    "JobIDRaw|JobName|Cluster|State|ExitCode|Submit|Start|End|NodeList|WorkDir",
    "100|pre|c1|NODE_FAIL|0:0|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T02:00:00|n[1-4]|/w",
    "100|pre|c1|COMPLETED|0:0|2026-01-01T02:00:05|2026-01-01T03:00:00|2026-01-01T04:00:00|n[1-4]|/w",
]


def step(clock: str, number: int, total: int = 100) -> str:
    return (
        f" [2026-01-01 {clock}] iteration {number}/ {total} | elapsed time per iteration (ms): 60000.0 |"
        f" lm loss: {10 / number:.6E} |"
    )


def saved(number: int) -> str:
    return f"  successfully saved checkpoint from iteration {number} to /ckpt"


FIRST = [step("01:10:00", 1), step("01:20:00", 10), saved(10), step("01:30:00", 20)]
SECOND = [
    "  successfully loaded checkpoint from /ckpt at iteration 10",
    step("03:10:00", 11),
    step("03:20:00", 21),
    saved(21),
]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.at(tmp_path / "home")


def log(tmp_path: Path, lines: list[str], name: str = "train.log") -> Path:
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    os.utime(path, (1_767_300_000, 1_767_300_000))
    return path


def ask(home: Home, sql: str) -> list[tuple[Any, ...]]:
    with Ledger.open(home.ledger, readonly=True) as ledger:
        return [tuple(found) for found in ledger.rows(sql)]


def test_a_log_of_an_imported_job_gives_its_restarts_their_progress(home: Home, tmp_path: Path) -> None:
    import_sacct(home, SACCT, "x", UTC)
    path = log(tmp_path, ["SLURM_JOB_ID=100", *FIRST, *SECOND])
    summary = import_log(home, path, UTC)
    assert summary.new == 0 and len(summary.runs) == 1
    found = ask(home, "SELECT attempt_id, resumed_from, step, checkpoint_step, loss FROM attempt ORDER BY 1")
    assert found == [("c1/100.0", None, 20, 10, 0.5), ("c1/100.1", 10, 21, 21, 0.4761905)]
    # Ten steps were done in ten minutes, not saved, and done again.
    lost = ask(home, "SELECT attempt_id, sum(seconds) FROM interval WHERE kind = 'lost' GROUP BY 1")
    assert lost == [("c1/100.0", 600.0)]
    again = ask(home, "SELECT attempt_id, sum(seconds) FROM interval WHERE kind = 'recomputing' GROUP BY 1")
    assert [name for name, _ in again] == ["c1/100.1"]


def test_again_and_longer_adds_only_what_is_new(home: Home, tmp_path: Path) -> None:
    import_sacct(home, SACCT, "x", UTC)
    import_log(home, log(tmp_path, FIRST), UTC, job="100")
    assert import_log(home, log(tmp_path, FIRST), UTC, job="100").events == 0
    grown = import_log(home, log(tmp_path, [*FIRST, *SECOND]), UTC, job="100")
    assert grown.events == len(SECOND) + 1
    other = Home.at(tmp_path / "other")
    import_sacct(other, SACCT, "x", UTC)
    import_log(other, log(tmp_path, [*FIRST, *SECOND]), UTC, job="100")
    sql = "SELECT attempt_id, kind, cycle, start_at, seconds, nodes FROM interval ORDER BY 1, 4"
    assert ask(home, sql) == ask(other, sql)


def test_a_log_alone_is_a_run_of_its_own(home: Home, tmp_path: Path) -> None:
    path = log(tmp_path, [*FIRST, *SECOND])
    summary = import_log(home, path, UTC)
    assert any("a run of its own" in line for line in summary.assumed)
    assert ask(home, "SELECT state, ended, step, checkpoint_step FROM attempt") == [("GONE", 1, 21, 21)]
    assert ask(home, "SELECT cycle, category FROM verdict ORDER BY 1") == [(0, "unknown"), (1, "unknown")]
    assert import_log(home, path, UTC).events == 0
    before = ask(home, "SELECT * FROM interval") + ask(home, "SELECT * FROM attempt")
    rebuild(home.root)
    assert ask(home, "SELECT * FROM interval") + ask(home, "SELECT * FROM attempt") == before


def test_the_last_planned_step_makes_it_complete(home: Home, tmp_path: Path) -> None:
    import_log(home, log(tmp_path, [step("01:00:00", 1, 2), step("01:01:00", 2, 2), saved(2)]), UTC)
    assert ask(home, "SELECT status FROM run") == [("complete",)]
    assert ask(home, "SELECT category FROM attempt") == [("healthy",)]


def test_a_log_without_times_ends_when_its_file_was_last_written(home: Home, tmp_path: Path) -> None:
    lines = [line.partition("] ")[2] for line in (step("0", 1), step("0", 2), step("0", 3))]
    summary = import_log(home, log(tmp_path, lines), UTC)
    assert any("no line has a time" in line for line in summary.assumed)
    times = ask(home, "SELECT ts FROM event WHERE type = 'progress' ORDER BY seq")
    assert times == [(1_767_299_880.0,), (1_767_299_940.0,), (1_767_300_000.0,)]


def test_the_file_name_may_name_the_job(home: Home, tmp_path: Path) -> None:
    import_sacct(home, SACCT, "x", UTC)
    import_log(home, log(tmp_path, FIRST, "slurm-100.out"), UTC)
    assert ask(home, "SELECT step FROM attempt ORDER BY attempt_id") == [(20,), (None,)]


def own_run(home: Home, *, progress: bool) -> Path:
    """A run of Trainmaster's own with one attempt."""
    path = home.default_runs / "mine-20260101-000000-abcd"
    where = {"stage": "train", "attempt": "c1/500.0"}
    job = {"token": f"{path.name}.train.001", "job_id": "500"}
    seen = {"state": "TIMEOUT", "started_at": 1_767_229_200.0, "ended_at": 1_767_236_400.0}
    with JournalWriter(path / "journal", run=path.name, writer="login-a") as out:
        out.append("run.created", {"name": "mine", "stages": [{"name": "train"}]})
        out.append("job.observed", {**job, **seen}, **where)
        if progress:
            out.append("progress", {"step": 3}, cycle=0, **where)
    with Ledger.open(home.ensure().ledger) as ledger:
        ledger.ingest_run(path)
    return path


def test_a_log_of_our_own_job_helps_only_where_its_program_was_silent(home: Home, tmp_path: Path) -> None:
    own_run(home, progress=False)
    summary = import_log(home, log(tmp_path, FIRST), UTC, job="500")
    assert summary.runs == ["mine-20260101-000000-abcd"]
    assert ask(home, "SELECT step, checkpoint_step FROM attempt") == [(20, 10)]
    assert import_log(home, log(tmp_path, FIRST), UTC, job="500").events == 0
    assert import_log(home, log(tmp_path, [*FIRST, step("01:40:00", 30)]), UTC, job="500").events == 2


def test_what_our_own_program_told_is_not_told_again(home: Home, tmp_path: Path) -> None:
    own_run(home, progress=True)
    summary = import_log(home, log(tmp_path, FIRST), UTC, job="500")
    assert summary.events == 0
    assert summary.left_out["facts of an attempt whose own program told its progress"] == 4
    assert ask(home, "SELECT step FROM attempt") == [(3,)]


def test_what_cannot_be_brought_in(home: Home, tmp_path: Path) -> None:
    nothing = import_log(home, log(tmp_path, ["hello"]), UTC)
    assert nothing.events == 0 and nothing.unknown[0].startswith("everything") and not home.root.exists()
    with pytest.raises(NotFound, match="no job 5"):
        import_log(home, log(tmp_path, FIRST), UTC, job="5")
    with pytest.raises(StorageError):
        import_log(home, tmp_path / "missing.log", UTC)
    dry = import_log(home, log(tmp_path, FIRST), Options(zone="UTC", dry_run=True))
    assert dry.events > 0 and not home.root.exists()
