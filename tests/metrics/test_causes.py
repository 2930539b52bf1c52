"""Verdicts per cycle, what is held against nodes, who is kept out: live, rebuilt and after an upgrade."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from metrics.ledger import Ledger, node_queries
from metrics.ledger.migrations import MIGRATIONS, migrate
from metrics.ledger.rebuild import rebuild
from resiliency import contract
from resiliency.exclusion import active
from resiliency.journal import JournalWriter
from tests.metrics.rundirs import RUN, dump, make_run

OTHER = "other-20260102-000000-0001"
LATER = 4e9  # long after every test


def say(run_dir: Path, *events: tuple[str, dict[str, Any]], cycle: int = 0) -> Path:
    fields = {"stage": "train", "attempt": "c1/7.1", "cycle": cycle}
    with JournalWriter(contract.RunPaths(run_dir).journal, run=run_dir.name, writer="sup") as writer:
        for kind, data in events:
            writer.append(kind, data, **fields)
    return run_dir


def lost_node(run_dir: Path, node: str = "n2") -> Path:
    """Cycle 0 ends by a node's fault, a spare takes over."""
    order = {"node": node, "cluster": "c1", "category": "node_down", "reason": "lost", "until": LATER}
    return say(
        run_dir,
        ("attempt.started", {"token": contract.token(run_dir.name, "train", 1), "nodes": f"n1,{node},n3"}),
        ("cycle.started", {"nodes": ["n1", node], "spares": ["n3"]}),
        ("incident", {"kind": "node_lost", "onset": 5.0, "detected": 6.5, "node": node}),
        ("verdict", {"category": "node_down", "confidence": 1.0, "evidence": ["srun: lost"], "node": node}),
        ("decision", {"action": "swap_node", "rule": "in-job:spare", "exclude": [node]}),
        ("cycle.ended", {"category": "node_down", "signature": "node_down", "reason": "lost", "step": 3,
                         "node": node, "continued": True}),
        ("node.excluded", {**order, "evidence": ["srun: lost"], "by": "proof"}),
    )  # fmt: skip


def person(home: Path, kind: str, **data: Any) -> None:
    with JournalWriter(home / contract.HOME_JOURNAL, run=contract.HOME_JOURNAL, writer="login-a") as writer:
        writer.append(kind, {"cluster": "c1", "by": "person:ann", "reason": "smells", **data})


def test_a_cycle_has_its_cause_and_what_was_done(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.ingest_run(lost_node(make_run(tmp_path)))
        (row,) = ledger.rows("SELECT * FROM cycle WHERE attempt_id = 'c1/7.1'")
        assert (row["incident"], row["onset_at"], row["detected_at"]) == ("node_lost", 5.0, 6.5)
        assert (row["category"], row["node"], row["action"], row["rule"]) == (
            "node_down", "n2", "swap_node", "in-job:spare",
        )  # fmt: skip
        assert (row["node_names"], row["nodes"], row["spares"], row["continued"]) == ("n1,n2", 2, 1, 1)
        told = ledger.rows(
            "SELECT cycle, category, source, evidence FROM verdict WHERE attempt_id = 'c1/7.1'"
        )
        assert [tuple(r) for r in told] == [
            (0, "node_down", "cycle", '["srun: lost"]'),
            # What the program said belongs to cycle 0, which was got over: nothing explains the end.
            (1, "unknown", "attempt", '["scheduler state FAILED", "exit code 1"]'),
        ]
        failures = ledger.rows("SELECT cycle, category, ended_at FROM failures WHERE attempt_id = 'c1/7.1'")
        assert {(r["cycle"], r["category"]) for r in failures} == {(0, "node_down"), (1, "unknown")}
        assert all(r["ended_at"] for r in failures)


def test_evidence_and_orders_of_all_runs_and_of_persons_come_back(tmp_path: Path) -> None:
    person(tmp_path, "node.excluded", node="n9", until=LATER)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        for run in (RUN, OTHER):
            ledger.ingest_run(lost_node(make_run(tmp_path, run)))
        assert ledger.ingest_home(tmp_path).events == 1
        assert ledger.ingest_home(tmp_path).events == 0
        held = node_queries.evidence(ledger, node="n2")
        assert [(e.run, e.job, e.category, e.proof, e.nodes) for e in held] == [
            (RUN, "7", "node_down", True, 2),
            (OTHER, "7", "node_down", True, 2),
        ]
        known = node_queries.orders(ledger, cluster="c1")
        assert [(x.node, x.rule) for x in active(known, now=LATER - 1)] == [("n2", "proof"), ("n9", "person")]
        assert [tuple(r)[:2] for r in ledger.rows("SELECT DISTINCT cluster, node FROM excluded_nodes")] == [
            ("c1", "n2"), ("c1", "n9"),
        ]  # fmt: skip
        person(tmp_path, "node.readmitted", node="n2")
        ledger.ingest_home(tmp_path)
        assert [x.node for x in active(node_queries.orders(ledger), now=LATER - 1)] == ["n9"]
        assert [r["node"] for r in ledger.rows("SELECT node FROM excluded_nodes")] == ["n9"]
        assert node_queries.jobs_on(ledger, "c1", "n2") == 2
        assert node_queries.clusters_with(ledger, "n9") == ["c1"]
        assert node_queries.orders(ledger, cluster="other") == []


def test_a_rebuild_has_the_persons_words_too(tmp_path: Path) -> None:
    person(tmp_path, "node.excluded", node="n9", until=LATER)
    person(tmp_path, "node.readmitted", node="n9")
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.ingest_run(lost_node(make_run(tmp_path)))
        ledger.ingest_home(tmp_path)
        live = dump(ledger)
    assert len(live["exclusion"]) == 2 and len(live["readmission"]) == 1
    rebuild(tmp_path)
    assert dump(tmp_path / "ledger.db") == live


def test_a_rehearsal_s_harm_counts_for_no_other_run(tmp_path: Path) -> None:
    run_dir = say(lost_node(make_run(tmp_path)), ("fault.injected", {"kind": "node-crash"}))
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.ingest_run(run_dir)
        assert ledger.rows("SELECT * FROM node_evidence WHERE rehearsal") != []
        assert node_queries.evidence(ledger) == [] and node_queries.orders(ledger) == []
        assert ledger.rows("SELECT * FROM excluded_nodes") == []


def test_a_shared_home_without_any_words(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert ledger.ingest_home(tmp_path).events == 0


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
def test_an_older_ledger_is_brought_up_and_its_runs_are_looked_at_again(tmp_path: Path, version: int) -> None:
    run_dir, path = lost_node(make_run(tmp_path)), tmp_path / "ledger.db"
    with Ledger.open(tmp_path / "new.db") as ledger:
        ledger.ingest_run(run_dir)
        want = dump(ledger)
    old = sqlite3.connect(path, isolation_level=None)
    migrate(old, str(path), MIGRATIONS[:version])
    # As that version left it: what it has read of the journals, and the events.
    source = sqlite3.connect(tmp_path / "new.db")
    for table in ("run", "stage", "event", "journal_file", "progress_head"):
        columns = ", ".join(f'"{column[1]}"' for column in old.execute(f"PRAGMA table_info({table})"))
        for row in source.execute(f"SELECT {columns} FROM {table}").fetchall():
            old.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row)
    old.close()
    source.close()
    with Ledger.open(path) as ledger:
        assert ledger.rows("SELECT * FROM cycle") == []
        assert ledger.ingest_run(run_dir).events == 0
        assert dump(ledger) == want


def test_nonsense_in_an_event_breaks_no_ingest(tmp_path: Path) -> None:
    run_dir = say(
        make_run(tmp_path),
        ("preflight", {"failed": 3, "checks": "no list"}),
        ("preflight", {"failed": ["n1", "n1", None], "checks": [1, {"node": "n1", "category": "gpu_ecc"}]}),
        ("verdict", {"evidence": 7, "confidence": "high"}),
        ("decision", {"exclude": 5, "action": ["x"]}),
        ("cycle.ended", {"category": "hang", "node": {"a": 1}, "rank": 2**80, "continued": "yes"}),
        ("incident", {"onset": "yesterday", "detected": 1e300}),
        ("node.excluded", {"node": 3, "cluster": "c1", "until": 1}),
        ("node.excluded", {"node": "\ud800", "cluster": "c1", "until": 1}),
    )
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.ingest_run(run_dir)
        found = {row["node"] for row in ledger.rows("SELECT node FROM node_evidence")}
        assert {"n1", "None"} <= found
