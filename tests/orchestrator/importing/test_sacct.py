"""A dump of accounting becomes runs, once, that the ledger can be rebuilt from and nothing acts on."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.ledger import Ledger
from metrics.ledger.rebuild import rebuild
from orchestrator.cli.main import app
from orchestrator.home import Home
from orchestrator.importing.sacct import Options, import_sacct
from orchestrator.session import Session
from resiliency.errors import NotFound, TrainmasterError, UsageError

HEAD = "JobIDRaw|JobName|User|Cluster|State|ExitCode|Submit|Start|End|NodeList|WorkDir|AllocTRES"
TRES = "billing=64,gres/gpu=32,node=4"


def row(job: object, state: str, submit: str, start: str, end: str, **other: str) -> str:
    told = {"code": "0:0", "nodes": "n[1-4]", "name": "pre", "user": "al", "dir": "/w", "tres": TRES, **other}
    day = [f"2026-01-{t}" if t[0].isdigit() else t for t in (submit, start, end)]
    cells = [job, told["name"], told["user"], "c1", state, told["code"], *day, told["nodes"]]
    return "|".join(map(str, [*cells, told["dir"], told["tres"]]))


FIRST = [
    row(100, "NODE_FAIL", "01T00:00:00", "01T00:10:00", "01T02:00:00"),
    row(100, "FAILED", "01T02:00:05", "01T02:10:00", "01T05:00:00", code="1:0"),
    row(101, "COMPLETED", "01T06:00:05", "01T06:10:00", "01T09:00:00"),
]
CANCELLED = row(102, "CANCELLED by 1000", "01T10:00:05", "None", "01T11:00:00", nodes="None assigned")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.at(tmp_path / "home")


def bring(home: Home, lines: list[str], **options: Any) -> Any:
    return import_sacct(home, [HEAD, *lines], "jobs.txt", Options(zone="UTC", **options))


def tables(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    with Ledger.open(path, readonly=True) as ledger:
        names = ("run", "stage", "attempt", "attempt_node", "interval", "verdict", "event")
        return {name: sorted(map(repr, map(tuple, ledger.rows(f"SELECT * FROM {name}")))) for name in names}


def ask(home: Home, sql: str) -> list[tuple[Any, ...]]:
    with Ledger.open(home.ledger, readonly=True) as ledger:
        return [tuple(found) for found in ledger.rows(sql)]


def test_requeues_are_restarts_and_ends_have_their_causes(home: Home) -> None:
    summary = bring(home, [*FIRST, CANCELLED])
    assert (summary.attempts, summary.new, len(summary.runs)) == (4, 4, 1)
    found = ask(home, "SELECT attempt_id, state, exit_code, category, wall_s, node_count FROM attempt")
    assert sorted(found) == [
        ("c1/100.0", "NODE_FAIL", None, "node_down", 6600.0, 4),
        ("c1/100.1", "FAILED", 1, "unknown", 10200.0, 4),
        ("c1/101.0", "COMPLETED", 0, "healthy", 10200.0, 4),
        ("c1/102.0", "CANCELLED", None, "user_cancelled", 0.0, None),
    ]
    # What is not known of a job's time is unknown, not launching or training.
    kinds = ask(home, "SELECT kind, sum(seconds * nodes) FROM interval GROUP BY kind ORDER BY kind")
    assert kinds == [("queued", 4 * 1790.0), ("unknown", 4 * 27000.0)]
    assert ask(home, "SELECT kind, gpus_per_node FROM stage") == [("imported", 8)]
    assert any("1 attempts FAILED" in line for line in summary.unknown)
    assert any(line.startswith("progress:") for line in summary.unknown)


def test_the_same_dump_again_adds_nothing(home: Home) -> None:
    bring(home, [*FIRST, CANCELLED])
    before = tables(home.ledger)
    again = bring(home, [*FIRST, CANCELLED])
    assert (again.attempts, again.new, again.events) == (4, 0, 0)
    assert tables(home.ledger) == before


def test_a_later_dump_that_overlaps_adds_only_what_is_new(home: Home) -> None:
    running = row(101, "RUNNING", "01T06:00:05", "01T06:10:00", "Unknown")
    first = bring(home, [*FIRST[:2], running])
    assert any("1 attempts that were not over" in line for line in first.unknown)
    assert ask(home, "SELECT status FROM run") == [("running",)]
    # A window of sacct that begins later knows the requeue alone: it keeps its number.
    later = bring(home, [*FIRST[1:], CANCELLED])
    assert (later.attempts, later.new) == (3, 1)
    whole = ask(home, "SELECT attempt_id, state, category, started_at, ended_at FROM attempt ORDER BY 1")
    other = Home.at(home.root / "other")
    bring(other, [*FIRST, CANCELLED])
    assert whole == ask(
        other, "SELECT attempt_id, state, category, started_at, ended_at FROM attempt ORDER BY 1"
    )
    assert ask(home, "SELECT status, reason FROM stage") == ask(other, "SELECT status, reason FROM stage")


def test_more_jobs_of_a_run_that_was_over_open_it_and_end_it_again(home: Home) -> None:
    bring(home, FIRST)
    assert ask(home, "SELECT status, reason FROM stage") == [
        ("stopped", "imported: last job COMPLETED; progress unknown")
    ]
    bring(home, [row(103, "RUNNING", "02T00:00:00", "02T01:00:00", "Unknown")])
    assert ask(home, "SELECT status FROM stage") == [("running",)]
    bring(home, [row(103, "TIMEOUT", "02T00:00:00", "02T01:00:00", "02T02:00:00")])
    assert ask(home, "SELECT status, category FROM stage") == [("stopped", "time_limit")]
    assert len(ask(home, "SELECT 1 FROM attempt")) == 4


def test_a_rebuild_gives_the_same_rows(home: Home) -> None:
    others = [
        row(
            7, "OUT_OF_MEMORY", "03T00:00:00", "03T00:01:00", "03T00:02:00", name="Éval Größe!", code="0:125"
        ),
        row(8, "TIMEOUT", "03T00:00:00", "03T00:01:00", "03T00:02:00", user="bo"),
    ]
    summary = bring(home, [*FIRST, CANCELLED, *others])
    assert len(summary.runs) == 3
    before = tables(home.ledger)
    assert rebuild(home.root).runs == 3
    assert tables(home.ledger) == before


def test_a_dry_run_changes_nothing_and_says_what_would_come(home: Home) -> None:
    shown = bring(home, [*FIRST, CANCELLED], dry_run=True)
    assert not home.root.exists()
    done = bring(home, [*FIRST, CANCELLED])
    assert (shown.new, shown.events, shown.runs) == (done.new, done.events, done.runs) and shown.dry_run


def test_nothing_acts_on_imported_history(home: Home) -> None:
    summary = bring(home, [*FIRST, row(105, "PENDING", "02T00:00:00", "Unknown", "Unknown", nodes="")])
    session = Session(home)
    assert session.active() == [] and list(home.run_dirs()) == []
    with pytest.raises(NotFound):
        session.find(summary.runs[0])
    before = tables(home.ledger)
    at = ["--home", str(home.root)]
    for verb in (["tick"], ["status"], ["ledger", "check"]):
        done = CliRunner().invoke(app, [*verb, *at])
        assert done.exit_code == 0, done.output
    for verb in ("cancel", "resume", "triage"):
        assert CliRunner().invoke(app, [verb, summary.runs[0], *at]).exit_code == 7
    assert tables(home.ledger) == before
    shown = json.loads(CliRunner().invoke(app, ["status", "--json", *at]).output)["runs"]
    assert [(run["run_id"], run["status"]) for run in shown] == [(summary.runs[0], "queued")]


def test_jobs_of_our_own_are_left_to_their_journals(home: Home) -> None:
    own = row(
        200, "COMPLETED", "01T00:00:00", "01T00:01:00", "01T00:02:00", name="quick-20260101-0000.train.001"
    )
    summary = bring(home, [*FIRST, own])
    assert summary.attempts == 3
    assert summary.left_out["jobs that Trainmaster itself submitted"] == 1


def test_a_prolog_that_failed_and_a_job_that_never_began(home: Home) -> None:
    bring(home, [row(1, "FAILED", "01T00:00:00", "01T00:01:00", "01T00:01:00", code="0:53")])
    assert ask(home, "SELECT category, signal FROM attempt") == [("launch_failed", 53)]


def test_text_that_is_no_dump_and_a_zone_that_nobody_knows(home: Home) -> None:
    with pytest.raises(TrainmasterError, match="no header with JobID and State"):
        import_sacct(home, ["hello", "world"], "x", Options())
    with pytest.raises(UsageError, match="no time zone 'Mars/Olympus'"):
        import_sacct(home, [HEAD], "x", Options(zone="Mars/Olympus"))


def test_missing_columns_are_said(home: Home) -> None:
    lines = ["JobID,State,End", "5,FAILED,2026-01-01T00:00:00"]
    summary = import_sacct(home, lines, "x", Options(zone="UTC", cluster="old"))
    assert ask(home, "SELECT cluster, job_id, state FROM attempt") == [("old", "5", "FAILED")]
    said = " ".join([*summary.assumed, *summary.unknown])
    for column in ("WorkDir", "User", "ExitCode", "Submit", "Start", "NodeList", "AllocTRES"):
        assert f"no {column} column" in said


def test_the_verb_prints_a_summary_as_json(tmp_path: Path) -> None:
    dump = tmp_path / "jobs.txt"
    dump.write_text("\n".join([HEAD, *FIRST]) + "\n")
    argv = [
        "ledger",
        "import",
        "--sacct",
        str(dump),
        "--timezone",
        "UTC",
        "--home",
        str(tmp_path / "h"),
        "--json",
    ]
    done = CliRunner().invoke(app, argv)
    assert done.exit_code == 0, done.output
    (told,) = json.loads(done.output)["imports"]
    assert (told["new"], told["ends"]) == (3, {"NODE_FAIL": 1, "FAILED": 1, "COMPLETED": 1})
    by_pipe = CliRunner().invoke(app, [*argv[:3], "-", *argv[4:]], input=dump.read_text())
    assert json.loads(by_pipe.output)["imports"][0]["new"] == 0


_JOBS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 20), st.sampled_from(["FAILED", "NODE_FAIL", "COMPLETED"])),
    max_size=8,
    unique_by=lambda job: job[:2],
)


@given(_JOBS, st.data())
@settings(max_examples=25, deadline=None)
def test_dumps_in_order_of_time_give_what_one_dump_gives(
    jobs: list[tuple[int, int, str]], data: st.DataObject
) -> None:
    lines = [
        row(job, state, f"01T{hour:02}:00:00", f"01T{hour:02}:10:00", f"01T{hour:02}:50:00")
        for job, hour, state in sorted(jobs, key=lambda job: job[1])
    ]
    cut = data.draw(st.integers(0, len(lines)))
    back = data.draw(st.integers(0, cut))
    sql = "SELECT attempt_id, state, category, started_at, ended_at FROM attempt ORDER BY 1"
    with tempfile.TemporaryDirectory() as name:
        parts, once = Home.at(Path(name) / "parts"), Home.at(Path(name) / "once")
        bring(parts, lines[:cut])
        bring(parts, lines[back:])
        bring(once, lines)
        if lines:
            assert ask(parts, sql) == ask(once, sql)
            assert ask(parts, "SELECT status, reason FROM stage") == ask(
                once, "SELECT status, reason FROM stage"
            )
