"""Triage over time: what the ledger knows of earlier failures, and what people said was wrong.

A correction is an event of its own in the run's journal; it changes no verdict that was decided on.
``tests/orchestrator/test_triage.py``.
"""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any

from resiliency.errors import LedgerError, NotFound, UsageError
from resiliency.taxonomy import CATEGORIES
from resiliency.triage.history import Past, pattern
from resiliency.triage.model import TriageVerdict
from resiliency.triage.score import Judged

if TYPE_CHECKING:
    from .session import Session
    from .triage import Target

CORRECTED = "verdict.corrected"
_WINDOW_S = 28 * 86400.0


def past_failures(session: Session, *, node: str | None, run: str) -> list[Past]:
    """Failures of the last four weeks on this node or of this run. No ledger: none."""
    import time

    from metrics.ledger import Ledger

    path = session.home.ledger
    if not path.exists():
        return []
    try:
        with Ledger.open(path, readonly=True) as ledger:
            rows = ledger.rows(
                "SELECT v.run_id, v.stage, v.attempt_id, v.category, v.node, c.step, v.signature,"
                " coalesce(c.ended_at, a.ended_at) AS at FROM verdict v"
                " JOIN attempt a USING (run_id, stage, attempt_id)"
                " LEFT JOIN cycle c USING (run_id, stage, attempt_id, cycle)"
                " WHERE v.category NOT IN ('healthy', 'planned_rollover', 'time_limit', 'preempted')"
                " AND (v.node = ? OR v.run_id = ?) AND coalesce(c.ended_at, a.ended_at, ?) >= ?"
                " ORDER BY at DESC LIMIT 500",
                [node or "", run, time.time(), time.time() - _WINDOW_S],
            )
    except LedgerError:
        return []
    return [Past(r[0], r[1], r[2], r[3], r[4], r[5], r[6] or "", r[7]) for r in rows]


def history_of(session: Session, verdict: TriageVerdict, target: Target) -> list[str]:
    """Lines for the page: what repeats."""
    run = target.run.id if target.run is not None else ""
    stage = target.attempt.stage if target.attempt is not None else ""
    attempt = target.attempt.id if target.attempt is not None else ""
    if verdict.node is None and not run:
        return []
    past = past_failures(session, node=verdict.node, run=run)
    return list(pattern(verdict, past, run=run, stage=stage, attempt=attempt).lines)


def correct(session: Session, attempt: str, category: str, *, node: str | None, note: str) -> dict[str, Any]:
    """Keep a person's word on an attempt in its run's journal. Raises NotFound, UsageError, LockBusy."""
    from resiliency import durable
    from resiliency.journal import JournalWriter, login_writer

    from . import triage as targets

    if category not in CATEGORIES:
        import difflib

        near = difflib.get_close_matches(category, CATEGORIES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"one of: {', '.join(CATEGORIES)}"
        raise UsageError(f"no category {category!r}", hint=hint)
    with targets.resolve(session, [attempt]) as found:
        target = found[0]
        if target.run is None or target.attempt is None:
            raise NotFound(
                f"{attempt} is no attempt of a run of ours", hint="python -m orchestrator status RUN"
            )
        said = targets.judge(target).verdict
    row = {
        "attempt": target.attempt.id,
        "said": {"category": said.category, "action": said.action, "node": said.node, "rank": said.rank},
        "label": {"category": category, "action": CATEGORIES[category].action.value, "node": node},
        "by": getpass.getuser(),
        "note": note,
    }
    with (
        durable.locked(target.run.paths.lock, what=f"run {target.run.id}"),
        JournalWriter(
            target.run.paths.journal, run=target.run.id, writer=login_writer(), clock=session.clock
        ) as journal,
    ):
        journal.append(CORRECTED, row, stage=target.attempt.stage, sync=True)
    return row


def corrected(session: Session) -> list[Judged]:
    """All corrections, of an attempt the last one: what was said then against the person's word."""
    from resiliency.journal import read_control

    from .runs import open_run

    last: dict[str, Judged] = {}
    for path in session.home.run_dirs():
        run = open_run(path)
        events, _ = read_control(run.paths.journal)
        for event in sorted((e for e in events if e.type == CORRECTED), key=lambda e: e.ts):
            data = event.data
            label = {**data.get("label", {}), "note": data.get("note", ""), "acceptable_actions": []}
            said = {**data.get("said", {}), "evidence": []}
            # What to do follows from the category; a person labels the cause.
            label["action"] = (
                said.get("action") if said.get("category") == label.get("category") else label.get("action")
            )
            last[str(data.get("attempt"))] = Judged(str(data.get("attempt")), label, said)
    return list(last.values())
