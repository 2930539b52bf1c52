"""Rows about causes: verdicts on attempts and cycles, what is held against nodes, who is kept out. Pure.

Words and judgements are those of ``resiliency``; nothing is decided here. ``tests/metrics/test_causes.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from resiliency import exclusion, node_evidence
from resiliency.attempt import Attempt, Cycle
from resiliency.diagnosis import Verdict
from resiliency.events import Event
from resiliency.state import RunState

from .plain import Row, number, whole


def verdicts(key: Row, attempt: Attempt, verdict: Verdict | None) -> Iterator[Row]:
    """Of each cycle that was got over, and ``verdict`` on the attempt: it speaks for its last cycle."""
    for cycle in attempt.cycles.values():
        said = _said(cycle)
        if said is not None and (cycle.continued or verdict is None):
            yield {**key, **_verdict(said, cycle.number, "cycle")}
    if verdict is not None:
        last = attempt.last_cycle
        about = 0 if last is None else last.number + last.continued
        yield {**key, **_verdict(verdict, about, "attempt")}


def _verdict(verdict: Verdict, cycle: int, source: str) -> Row:
    row = verdict.row
    return {
        "cycle": cycle,
        "category": verdict.category,
        "domain": row.domain,
        "role": verdict.role,
        "confidence": verdict.confidence,
        "node": verdict.node,
        "rank": verdict.rank,
        "reason": verdict.reason,
        "signature": verdict.signature,
        "evidence": json.dumps(verdict.evidence),
        "action": row.action.value,
        "source": source,
    }


def _said(cycle: Cycle) -> Verdict | None:
    """What was said of a cycle's end while it ran; None of one that has not ended, or ended well."""
    if not cycle.category:
        return None
    told = cycle.verdict or {}
    lines, sure = told.get("evidence"), number(told.get("confidence"))
    return Verdict(
        cycle.category,
        cycle.reason,
        role=str(told.get("role") or "root"),
        confidence=sure if isinstance(sure, float) else 0.5,
        node=cycle.node,
        rank=whole(cycle.rank),
        evidence=tuple(map(str, lines)) if isinstance(lines, (list, tuple)) else (),
        signature=cycle.signature,
    )


def nodes(run_id: str, state: RunState) -> Iterator[Row]:
    """What the run holds against nodes."""
    for one in node_evidence.evidence_of(state):
        yield {
            "cluster": one.cluster,
            "node": one.node,
            "at": one.at,
            "category": one.category,
            "source": one.source,
            "run_id": run_id,
            "stage": one.stage,
            "attempt_id": one.attempt,
            "cycle": one.cycle,
            "job_id": one.job,
            "nodes": one.nodes,
            "signature": one.signature,
            "proof": int(one.proof),
            "rehearsal": int(state.rehearsal),
            "detail": one.detail,
        }


def orders(run_id: str, events: Iterable[Event], *, rehearsal: bool = False) -> dict[str, list[Row]]:
    """Rows of ``exclusion`` and ``readmission``: the orders on nodes among events."""
    tables: dict[str, list[Row]] = {}
    for event in events:
        for order in exclusion.orders_in([event]):
            row: Row = {"run_id": run_id, "writer": event.writer, "seq": event.seq}
            row |= {"cluster": order.cluster, "node": order.node, "by": order.by, "reason": order.reason}
            row["rehearsal"] = int(rehearsal)
            if order.back:
                tables.setdefault("readmission", []).append({**row, "at": order.at})
                continue
            held = {"since": order.at, "until": order.until, "category": order.category}
            row = {**row, **held, "evidence": json.dumps(order.evidence)}
            tables.setdefault("exclusion", []).append(row)
    return tables
