"""Run directories on disk, and what a ledger holds, for the tests of the ledger."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from metrics.ledger import Ledger
from resiliency import contract
from resiliency.events import Event, encode
from resiliency.journal import JournalWriter

RUN = "demo-20260101-000000-abcd"


def lines(events: Iterable[Event]) -> bytes:
    return b"".join(encode(event).encode() + b"\n" for event in events)


def write(run_dir: Path, files: dict[str, bytes]) -> Path:
    """Journals with exactly these bytes."""
    journal = contract.RunPaths(run_dir).journal
    journal.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        (journal / f"{name}.jsonl").write_bytes(raw)
    return run_dir


def make_run(home: Path, run_id: str = RUN, *, steps: int = 5) -> Path:
    """A small but complete story: two stages, a failed attempt, a requeue, progress, an evaluation."""
    run_dir = home / "runs" / run_id
    paths = contract.RunPaths(run_dir)
    paths.stage_config("train").parent.mkdir(parents=True)
    paths.run_json.write_text("{}")
    paths.stage_config("train").write_text('{"stage": {"train": {"steps": 40}}}')
    token = contract.token(run_id, "train", 1)
    with JournalWriter(paths.journal, run=run_id, writer="login-a") as login:
        stages = [
            {"name": "prepare", "kind": "text"},
            {"name": "train", "kind": "pretrain", "needs": ["prepare"], "max_links": 4},
        ]
        login.append("run.created", {"name": "demo", "cluster": "c1", "user": "me", "stages": stages})
        login.append("stage.completed", {"epoch": 0}, stage="prepare")
        intent = {"token": token, "cluster": "c1", "epoch": 0, "link": 1}
        login.append("submission.intent", intent, stage="train", sync=True)
        login.append("submission.accepted", {"token": token, "job_id": "7"}, stage="train")
        now = 1_700_000_000.0
        for restart, state, code in ((0, "NODE_FAIL", None), (1, "FAILED", 1)):
            seen = {"token": token, "state": state, "exit_code": code, "nodes": "n[1-2]"}
            seen |= {"submitted_at": now, "started_at": now + 10, "ended_at": now + 60}
            attempt = contract.attempt_id("c1", "7", restart)
            login.append("job.observed", seen, stage="train", attempt=attempt)
    fields: dict[str, Any] = {"stage": "train", "attempt": "c1/7.1", "cycle": 0, "node": "n1"}
    with JournalWriter(paths.journal, run=run_id, writer="rank0", defaults=fields) as rank:
        rank.append("role.started", {"role": "trainer"})
        rank.append("workload.resumed", {"step": 0})
        for step in range(1, steps + 1):
            rank.append("progress", {"step": step, "loss": 5 - step / 10, "tokens": step * 64})
        rank.append("checkpoint.committed", {"step": 4, "path": "step-4", "bytes": 9, "seconds": 1})
        rank.append("eval.result", {"metrics": {"bpb": 1.25, "baseline": {"unigram": 4.5}}})
        rank.append("workload.error", {"category": "gpu_oom", "message": "out of memory"})
        rank.append("role.exited", {"role": "trainer", "exit_code": 1})
    return run_dir


def tables(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return sorted(row[0] for row in found if not row[0].startswith("sqlite_"))


def dump(ledger: Ledger | Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, in a fixed order."""
    path = ledger if isinstance(ledger, Path) else ledger.path
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return {
            name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
            for name in tables(path)
        }
