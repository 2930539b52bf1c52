"""What the command line asks of the ledger. Reads tables made at ingest; never folds, never scans
events.

``scripts/bench/bench_ledger.py`` measures it on 10,000 attempts and 1,000,000 events;
``tests/metrics/test_queries.py`` checks that no query plan touches the event table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from resiliency.errors import NotFound

from .store import Ledger

#: Statuses of ``resiliency.state`` that a run does not leave by itself.
FINISHED = ("complete", "stopped", "cancelled")


@dataclass(frozen=True)
class RunRow:
    """One row of ``run``. Times are Unix seconds; None: not known, or not yet."""

    run_id: str
    name: str | None
    status: str
    cluster: str | None
    user: str | None
    created_at: float | None
    finished_at: float | None
    last_event_at: float | None
    experiment: str | None
    spec_digest: str | None
    version: str | None
    run_dir: str

    @property
    def finished(self) -> bool:
        return self.status in FINISHED


@dataclass(frozen=True)
class StageRow:
    """One stage and where its chain is: ``link``, ``job_id``, ``state``, ``nodes`` are of the
    current attempt. ``loss`` is a number or the text ``nan``/``inf``.
    """

    run_id: str
    stage: str
    ordinal: int
    kind: str | None
    status: str
    epoch: int
    link: int | None
    links_max: int | None
    links_submitted: int
    attempts: int
    attempt_id: str | None
    job_id: str | None
    state: str | None
    nodes: str | None
    step: int | None
    total_steps: int | None
    loss: float | str | None
    tokens: int | None
    section: str | None
    checkpoint_step: int | None
    last_event_at: float | None
    completed_at: float | None
    category: str | None
    rule: str | None
    reason: str | None
    results: str | None


@dataclass(frozen=True)
class AttemptRow:
    """One allocation of a stage, in chain order."""

    run_id: str
    stage: str
    attempt_id: str
    cluster: str
    job_id: str
    restart_count: int
    token: str | None
    link: int
    state: str
    ended: int
    gate: str | None
    submitted_at: float | None
    started_at: float | None
    ended_at: float | None
    wall_s: float
    nodes: str | None
    node_count: int | None
    exit_code: int | None
    signal: int | None
    scheduler_reason: str | None
    drain_reason: str | None
    cancelled_by_us: int
    duplicate: int
    resumed_from: int | None
    step: int | None
    checkpoint_step: int | None
    loss: float | str | None
    last_progress_at: float | None
    last_event_at: float | None
    category: str | None
    reason: str | None
    rule: str | None


@dataclass(frozen=True)
class RunStatus:
    """A run with its stages in the experiment's order and their attempts in chain order."""

    run: RunRow
    stages: list[StageRow]
    attempts: list[AttemptRow]

    def attempts_of(self, stage: str) -> list[AttemptRow]:
        return [attempt for attempt in self.attempts if attempt.stage == stage]


_R = TypeVar("_R", RunRow, StageRow, AttemptRow)


def _columns(kind: type[Any]) -> str:
    return ", ".join(field.name for field in fields(kind))


def _make(kind: type[_R], rows: Sequence[sqlite3.Row]) -> list[_R]:
    return [kind(*row) for row in rows]


def list_runs(
    ledger: Ledger,
    *,
    limit: int | None = 50,
    active_only: bool = False,
    name: str | None = None,
    since: float | None = None,
) -> list[RunRow]:
    """Runs, newest first. ``name``: exact; ``since``: created at or after (Unix seconds)."""
    where, values = ["1"], []
    if active_only:
        where.append(f"status NOT IN ({', '.join('?' * len(FINISHED))})")
        values += list(FINISHED)
    if name is not None:
        where.append("name = ?")
        values.append(name)
    if since is not None:
        where.append("created_at >= ?")
        values.append(str(since))
    rows = ledger.rows(
        f"SELECT {_columns(RunRow)} FROM run WHERE {' AND '.join(where)}"
        " ORDER BY created_at DESC, run_id DESC LIMIT ?",
        [*values, -1 if limit is None else limit],
    )
    return _make(RunRow, rows)


def latest_run(ledger: Ledger, name: str | None = None) -> RunRow | None:
    """The run created last, of one name or of all; None when there is none."""
    found = list_runs(ledger, limit=1, name=name)
    return found[0] if found else None


def resolve_run(ledger: Ledger, text: str) -> RunRow:
    """The run with this id, or the only one whose id starts so. Raises NotFound with the nearest."""
    exact = ledger.rows(f"SELECT {_columns(RunRow)} FROM run WHERE run_id = ?", [text])
    if exact:
        return _make(RunRow, exact)[0]
    hits = ledger.rows(
        f"SELECT {_columns(RunRow)} FROM run WHERE substr(run_id, 1, ?) = ?"
        " ORDER BY created_at DESC LIMIT 20",
        [len(text), text],
    )
    if len(hits) == 1 and text:
        return _make(RunRow, hits)[0]
    if hits and text:
        shown = ", ".join(row["run_id"] for row in hits[:5])
        raise NotFound(f"{text!r} is the start of several runs: {shown}", hint="give more of the id")
    import difflib

    known = [row[0] for row in ledger.rows("SELECT run_id FROM run ORDER BY created_at DESC")]
    named = "SELECT name, max(run_id) FROM run WHERE name IS NOT NULL GROUP BY name"
    names = {row[0]: row[1] for row in ledger.rows(named)}
    near = difflib.get_close_matches(text, known, n=1, cutoff=0.5)
    if not near and (by_name := difflib.get_close_matches(text, names, n=1)):
        near = [names[by_name[0]]]
    raise NotFound(
        f"the ledger has no run {text!r}",
        hint=f"did you mean {near[0]}?" if near else "see: python -m orchestrator status --all",
    )


def stages_of(ledger: Ledger, run_ids: Sequence[str]) -> dict[str, list[StageRow]]:
    """Run id → its stages, for a list of runs."""
    found: dict[str, list[StageRow]] = {run_id: [] for run_id in run_ids}
    for start in range(0, len(run_ids), 500):  # SQLite's older limit: 999 values in a statement
        part = list(run_ids[start : start + 500])
        rows = ledger.rows(
            f"SELECT {_columns(StageRow)} FROM stage WHERE run_id IN"
            f" ({', '.join('?' * len(part))}) ORDER BY run_id, ordinal",
            part,
        )
        for row in _make(StageRow, rows):
            found[row.run_id].append(row)
    return found


def run_status(ledger: Ledger, run: str, *, attempts: bool = True) -> RunStatus:
    """One run by id or unique prefix. ``attempts=False`` leaves the chain out. Raises NotFound."""
    found = resolve_run(ledger, run)
    stages = stages_of(ledger, [found.run_id])[found.run_id]
    chain: list[AttemptRow] = []
    if attempts:
        rows = ledger.rows(
            f"SELECT {_columns(AttemptRow)} FROM attempt WHERE run_id = ? ORDER BY stage, ordinal",
            [found.run_id],
        )
        order = {stage.stage: stage.ordinal for stage in stages}
        chain = sorted(_make(AttemptRow, rows), key=lambda row: order.get(row.stage, 0))
    return RunStatus(found, stages, chain)
