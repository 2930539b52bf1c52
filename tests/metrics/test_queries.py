"""What the command line asks: right answers, no scan of events, and a way back from a typo."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from metrics.ledger import Ledger
from metrics.ledger import queries as q
from resiliency.contract import RunPaths
from resiliency.errors import NotFound
from resiliency.journal import JournalWriter
from tests.metrics.rundirs import RUN, make_run

DONE = "done-20260102-000000-0001"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    first, second = make_run(tmp_path), make_run(tmp_path, DONE)
    with JournalWriter(RunPaths(second).journal, run=DONE, writer="login-a") as writer:
        writer.append("stage.completed", {"epoch": 0}, stage="train")
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.ingest_run(first)
        ledger.ingest_run(second)
        yield ledger


def test_status_says_where_a_run_is(ledger: Ledger) -> None:
    status = q.run_status(ledger, RUN)
    assert (status.run.run_id, status.run.name, status.run.cluster) == (RUN, "demo", "c1")
    prepare, train = status.stages
    assert (prepare.stage, prepare.status) == ("prepare", "complete")
    assert (train.stage, train.kind, train.status) == ("train", "pretrain", "waiting")
    assert (train.link, train.links_max, train.job_id, train.state) == (1, 4, "7", "FAILED")
    assert (train.step, train.total_steps, train.loss, train.tokens) == (5, 40, 4.5, 320)
    assert (train.checkpoint_step, train.category) == (4, "gpu_oom")
    assert train.reason == "out of memory"
    assert [(a.restart_count, a.state, a.category) for a in status.attempts_of("train")] == [
        (0, "NODE_FAIL", "node_down"),
        (1, "FAILED", "gpu_oom"),
    ]
    assert [a.node_count for a in status.attempts] == [2, 2]
    assert q.run_status(ledger, RUN, attempts=False).attempts == []


def test_lists_are_newest_first_and_filtered(ledger: Ledger) -> None:
    assert [run.run_id for run in q.list_runs(ledger)] == [DONE, RUN]
    assert [run.run_id for run in q.list_runs(ledger, active_only=True)] == [RUN]
    assert [run.run_id for run in q.list_runs(ledger, limit=1)] == [DONE]
    assert len(q.list_runs(ledger, limit=None)) == 2
    assert len(q.list_runs(ledger, name="demo")) == 2
    assert q.list_runs(ledger, name="nobody") == []
    created = q.list_runs(ledger)[0].created_at
    assert created is not None
    assert [run.run_id for run in q.list_runs(ledger, since=created)] == [DONE]
    latest = q.latest_run(ledger)
    assert latest is not None and latest.run_id == DONE and latest.finished


def test_a_run_is_found_by_the_start_of_its_id(ledger: Ledger) -> None:
    assert q.resolve_run(ledger, "demo").run_id == RUN
    assert q.resolve_run(ledger, DONE).run_id == DONE


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("d", "start of several runs", "more of the id"),
        ("", "no run", "status --all"),
        ("dmeo-20260101", "no run", RUN),
        ("dem0", "no run", "did you mean"),
        ("%", "no run", "status --all"),
    ],
)
def test_a_run_that_is_not_there(ledger: Ledger, text: str, says: str, hint: str) -> None:
    with pytest.raises(NotFound, match=says) as caught:
        q.resolve_run(ledger, text)
    assert hint in caught.value.hint


def test_no_runs_at_all(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "empty.db") as ledger:
        assert q.latest_run(ledger) is None
        assert q.list_runs(ledger) == []
        with pytest.raises(NotFound):
            q.run_status(ledger, "x")


def test_no_query_touches_the_events(ledger: Ledger) -> None:
    """However many there are: the statements of every query are explained, none names event."""
    statements: list[str] = []
    connection = ledger.connection
    connection.set_trace_callback(statements.append)
    q.list_runs(ledger, active_only=True, name="demo", since=1.0)
    q.run_status(ledger, RUN)
    q.latest_run(ledger, "demo")
    q.stages_of(ledger, [RUN, DONE])
    connection.set_trace_callback(None)
    plans = [
        str(row[3])
        for statement in statements
        if statement.startswith("SELECT")
        for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")
    ]
    assert plans
    for plan in plans:
        assert "event" not in plan
        assert not plan.startswith(("SCAN attempt", "SCAN stage")), plan


def test_views_give_times_a_person_can_read(ledger: Ledger) -> None:
    for view in ("runs", "stages", "chain", "timeline", "failures"):
        rows = ledger.rows(f"SELECT * FROM {view}")
        assert rows, view
    assert ledger.rows("SELECT ended_at FROM chain")[0][0] == "2023-11-14T22:14:20Z"
    assert {row["category"] for row in ledger.rows("SELECT category FROM failures")} == {
        "node_down",
        "gpu_oom",
    }


def test_one_allocation_cannot_be_counted_twice_in_a_run(ledger: Ledger) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        ledger.connection.execute(
            "INSERT INTO attempt SELECT run_id, stage, 'another id', cluster, job_id, restart_count,"
            " token, link, ordinal, state, ended, gate, submitted_at, started_at, ended_at,"
            " supervisor_started_at, supervisor_finished_at, wall_s, nodes, node_count, exit_code,"
            " signal, scheduler_reason, drain_reason, cancelled_by_us, duplicate, resumed_from, step,"
            " checkpoint_step, loss, tokens, section, last_progress_at, last_event_at, category,"
            " reason, rule FROM attempt"
        )
