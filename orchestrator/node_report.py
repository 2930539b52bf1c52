"""What is known of nodes, for a person: each with its exclusion, the failures on it, every order.

Reads ledger and journals, changes nothing. ``tests/orchestrator/test_nodes.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from resiliency.errors import NotFound
from resiliency.exclusion import Exclusion, Order, active
from resiliency.node_evidence import WINDOW_S, Evidence

from . import nodes
from .home import Home


@dataclass
class NodeReport:
    """One node of one cluster. ``had_it``: different jobs that had the node in the same time."""

    cluster: str
    node: str
    excluded: Exclusion | None = None
    evidence: list[Evidence] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    had_it: int | None = None

    @property
    def jobs(self) -> int:
        """Different jobs that failed on it."""
        return len({(one.run, one.job) for one in self.evidence})

    @property
    def drain_line(self) -> str:
        """What an administrator can paste."""
        kinds = sorted({one.category for one in self.evidence})
        told = f"{', '.join(kinds)}, {len(self.evidence)} failures of {self.jobs} jobs" if kinds else ""
        why = told or (self.excluded.reason if self.excluded else "")
        plain = " ".join("".join(c if c.isalnum() or c in " ,.:_-/" else " " for c in why).split())
        return f'scontrol update NodeName={self.node} State=DRAIN Reason="trainmaster: {plain}"'

    def as_data(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "cluster": self.cluster,
            "node": self.node,
            "excluded": None if self.excluded is None else asdict(self.excluded),
            "failed_jobs": self.jobs,
            "jobs": self.had_it,
            "evidence": [{**asdict(one), "job": one.job} for one in self.evidence],
            "orders": [asdict(order) for order in self.orders],
            "drain": self.drain_line,
        }


@dataclass
class Found:
    """Reports, those that are kept out first; ``problems``: what could not be read."""

    nodes: list[NodeReport]
    problems: list[str] = field(default_factory=list)


def reports(home: Home, *, cluster: str | None, now: float) -> Found:
    """Every node that is kept out or that a failure showed on in the last four weeks."""
    known = nodes.known(home, now=now)
    found: dict[tuple[str, str], NodeReport] = {}

    def of(cluster: str, node: str) -> NodeReport:
        return found.setdefault((cluster, node), NodeReport(cluster, node))

    for one in active(known.orders, now=now):
        of(one.cluster, one.node).excluded = one
    for item in known.evidence:
        of(item.cluster, item.node).evidence.append(item)
    for order in sorted(known.orders, key=lambda order: order.at):
        if (order.cluster, order.node) in found:
            of(order.cluster, order.node).orders.append(order)
    chosen = [one for one in found.values() if cluster in (None, one.cluster)]
    chosen.sort(key=lambda one: (one.excluded is None, one.cluster, one.node))
    return Found(chosen, known.problems)


def explain(home: Home, node: str, *, cluster: str | None, now: float) -> Found:
    """All that is known of one node, on each cluster that has one of the name. Raises NotFound."""
    known = nodes.known(home, now=now)
    clusters = {order.cluster for order in known.orders if order.node == node}
    clusters |= {one.cluster for one in known.evidence if one.node == node}
    found = reports(home, cluster=cluster, now=now)
    had_it: dict[str, int] = {}
    if home.ledger.exists():
        from metrics.ledger import Ledger, node_queries

        with Ledger.open(home.ledger, readonly=True) as ledger:
            clusters |= set(node_queries.clusters_with(ledger, node))
            for name in clusters:
                had_it[name] = node_queries.jobs_on(ledger, name, node, since=now - WINDOW_S)
    clusters = {name for name in clusters if cluster in (None, name)}
    if not clusters:
        where = f" on {cluster}" if cluster else ""
        raise NotFound(
            f"no run had a node {node!r}{where}, and nobody said anything of it",
            hint="python -m orchestrator nodes list --all",
        )
    by_cluster = {one.cluster: one for one in found.nodes if one.node == node}
    chosen = []
    for name in sorted(clusters):
        one = by_cluster.get(name, NodeReport(name, node))
        one.orders = [
            o for o in sorted(known.orders, key=lambda o: o.at) if (o.cluster, o.node) == (name, node)
        ]
        one.had_it = had_it.get(name)
        chosen.append(one)
    return Found(chosen, found.problems)


def _at(ts: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(ts)) if ts else "-"


def lines(one: NodeReport) -> Iterator[str]:
    """A report for a person."""
    out = one.excluded
    if out is None:
        yield f"{one.node} on {one.cluster}: not kept out"
    else:
        yield f"{one.node} on {one.cluster}: kept out since {_at(out.since)} until {_at(out.until)}"
        yield f"  by    {out.by}" + (f" ({out.category})" if out.category else "")
        yield f"  why   {out.reason}"
    had = "" if one.had_it is None else f"; {one.had_it} job(s) had the node in 28 days"
    yield f"failures that showed on it: {len(one.evidence)} of {one.jobs} job(s){had}"
    for item in one.evidence:
        proof = "proof" if item.proof else "no proof"
        yield f"  {_at(item.at)}  {item.category} ({proof}, {item.source}): {item.detail}"
        place = f" cycle {item.cycle}" if item.cycle else ""
        yield f"    run {item.run}, stage {item.stage}, attempt {item.attempt}{place}"
    if one.orders:
        yield "what was ordered:"
    for order in one.orders:
        word = "let back" if order.back else f"kept out until {_at(order.until)}"
        from_run = f" (run {order.run})" if order.run else ""
        yield f"  {_at(order.at)}  {word} by {order.by}{from_run}: {order.reason}"
    if one.evidence or out is not None:
        yield "to drain it, as an administrator:"
        yield f"  {one.drain_line}"
    if out is not None:
        yield "to let it back:"
        yield f'  python -m orchestrator nodes readmit {one.node} --cluster {one.cluster} --reason "…"'
