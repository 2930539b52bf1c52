"""What the ledger knows of nodes, as the values that ``resiliency.exclusion`` and ``.node_evidence`` judge.

Reads only. A rehearsal's run is left out: its harm was done on purpose, and says nothing of the node.
``tests/metrics/test_causes.py``.
"""

from __future__ import annotations

import json

from resiliency.contract import HOME_JOURNAL
from resiliency.exclusion import Order
from resiliency.node_evidence import Evidence

from .store import Ledger


def orders(ledger: Ledger, *, cluster: str | None = None) -> list[Order]:
    """Every order on nodes, oldest first."""
    found = [
        Order(
            row["cluster"], row["node"], row["since"], until=row["until"], by=row["by"],
            category=row["category"], reason=row["reason"], evidence=tuple(json.loads(row["evidence"])),
            run="" if row["run_id"] == HOME_JOURNAL else row["run_id"],
        )
        for row in ledger.rows("SELECT * FROM exclusion WHERE NOT rehearsal")
    ]  # fmt: skip
    found += [
        Order(
            row["cluster"], row["node"], row["at"], back=True, by=row["by"], reason=row["reason"],
            run="" if row["run_id"] == HOME_JOURNAL else row["run_id"],
        )
        for row in ledger.rows("SELECT * FROM readmission WHERE NOT rehearsal")
    ]  # fmt: skip
    found = [order for order in found if cluster in (None, order.cluster)]
    return sorted(found, key=lambda order: (order.at, order.cluster, order.node, order.back, order.run))


def evidence(
    ledger: Ledger, *, cluster: str | None = None, node: str | None = None, since: float = 0.0
) -> list[Evidence]:
    """What is held against nodes since then (Unix seconds), oldest first."""
    where, values = ["NOT rehearsal", "at >= ?"], [since]
    for column, value in (("cluster", cluster), ("node", node)):
        if value is not None:
            where.append(f"{column} = ?")
            values.append(value)  # type: ignore[arg-type]
    rows = ledger.rows(
        f"SELECT * FROM node_evidence WHERE {' AND '.join(where)}"
        " ORDER BY at, node, run_id, stage, attempt_id, cycle",
        values,
    )
    return [
        Evidence(
            row["cluster"], row["node"], row["at"], row["category"], row["run_id"], row["stage"],
            row["attempt_id"], row["cycle"], row["source"], bool(row["proof"]), row["nodes"],
            row["signature"], row["detail"],
        )
        for row in rows
    ]  # fmt: skip


def jobs_on(ledger: Ledger, cluster: str, node: str, *, since: float = 0.0) -> int:
    """How many different jobs had the node since then."""
    row = ledger.rows(
        "SELECT count(DISTINCT a.run_id || '/' || a.job_id) FROM attempt_node n"
        " JOIN attempt a USING (run_id, stage, attempt_id) WHERE n.node = ? AND a.cluster = ?"
        " AND coalesce(a.ended_at, a.supervisor_finished_at, a.last_event_at, 0) >= ?",
        [node, cluster, since],
    )
    return int(row[0][0])


def clusters_with(ledger: Ledger, node: str) -> list[str]:
    """Clusters on which the ledger has seen a node of this name."""
    rows = ledger.rows(
        "SELECT DISTINCT a.cluster FROM attempt_node n JOIN attempt a USING (run_id, stage, attempt_id)"
        " WHERE n.node = ? UNION SELECT cluster FROM exclusion WHERE node = ?"
        " UNION SELECT cluster FROM node_evidence WHERE node = ? ORDER BY 1",
        [node, node, node],
    )
    return [str(row[0]) for row in rows]
