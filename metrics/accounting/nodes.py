"""What the ledger knows of nodes, as ``metrics.stats`` takes it: records, repairs. Reads only.

A signal that nothing here can count (Xid errors of nodes that nobody asked, repair tickets) is left out,
never 0. ``tests/metrics/accounting/test_nodes.py``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

from metrics.ledger.node_queries import orders
from metrics.ledger.store import Ledger
from metrics.stats.lemons import NodeRecord
from metrics.stats.repairs import Outage, Repair, repairs
from metrics.stats.signals import WINDOW_DAYS
from resiliency import taxonomy

from .kinds import KINDS
from .reading import Reading
from .sums import Key
from .values import Failure, Scope

_DAY_S: Final = 86400.0


def caused(failure: Failure) -> bool:
    """Whether the failure is laid on its node: the verdict names one, and the category can be a node's."""
    row = taxonomy.category(failure.category)
    return failure.counted and failure.node is not None and (row.node_fault or row.node_suspect)


def records(
    ledger: Ledger, now: float, *, cluster: str | None = None, days: float = WINDOW_DAYS
) -> list[NodeRecord]:
    """A record of each node that had work in the ``days`` before ``now`` (Unix seconds), by name.

    Rehearsals are left out. Nodes of different clusters that share a name are one: ask by ``cluster``.
    """
    reading = Reading(ledger, Scope(since=now - days * _DAY_S, until=now, now=now, cluster=cluster))
    allocated: dict[tuple[Key, int], float] = defaultdict(float)
    for part in reading.spent():
        if KINDS[part.kind].allocated:
            allocated[part.key, part.track] += part.seconds
    seconds: dict[str, float] = defaultdict(float)
    sizes: Counter[Key] = Counter()
    jobs: dict[str, set[Key]] = defaultdict(set)
    for key, node, track in reading.nodes():
        sizes[key] += 1
        if allocated.get((key, track)):
            seconds[node] += allocated[key, track]
            jobs[node].add(key)
    failures: dict[str, list[Key]] = defaultdict(list)
    for failure in reading.failures():
        if failure.node is not None and caused(failure):
            failures[failure.node].append((failure.run_id, failure.stage, failure.attempt_id))
    out, by_persons = _orders(ledger, now - days * _DAY_S, now, cluster)
    return [
        NodeRecord(
            node,
            seconds[node] / _DAY_S,
            len(failures[node]),
            _signals(jobs[node], failures[node], sizes, out[node], by_persons[node]),
        )
        for node in sorted(seconds)
    ]


def _signals(
    jobs: set[Key], failed: list[Key], sizes: Mapping[Key, int], out: int, by_persons: int
) -> dict[str, float]:
    single = [key for key in jobs if sizes[key] == 1]
    lost = {key for key in failed if sizes[key] == 1}
    found: dict[str, float] = {
        "excl_jobid_count": by_persons,
        "out_count": out,
        "multi_node_node_fails": len({key for key in failed if sizes[key] > 1}),
        "single_node_node_fails": len(lost),
    }
    if single:
        found["single_node_node_failure_rate"] = len(lost) / len(single)
    return found


def _orders(
    ledger: Ledger, since: float, until: float, cluster: str | None
) -> tuple[Counter[str], Counter[str]]:
    """How often each node was taken out in that time; and how often by a person."""
    out: Counter[str] = Counter()
    by_persons: Counter[str] = Counter()
    for order in orders(ledger, cluster=cluster):
        if not order.back and since <= order.at < until:
            out[order.node] += 1
            by_persons[order.node] += order.by.startswith("person")
    return out, by_persons


def repaired(ledger: Ledger, now: float, *, cluster: str | None = None) -> list[Repair]:
    """What came of each time that a node was kept out, by node and time: still out, back, failed again."""
    told: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    back: dict[str, list[float]] = defaultdict(list)
    for order in orders(ledger, cluster=cluster):
        if order.back:
            back[order.node].append(order.at)
        else:
            told[order.node].append((order.at, order.until if order.until is not None else now, order.reason))
    failed: dict[str, list[float]] = defaultdict(list)
    for failure in Reading(ledger, Scope(cluster=cluster, until=now)).failures():
        at = failure.onset_at if failure.onset_at is not None else failure.detected_at
        if failure.node is not None and at is not None and caused(failure):
            failed[failure.node].append(at)
    found: list[Repair] = []
    for node, times in sorted(told.items()):
        outages = []
        for since, until, reason in times:
            ends = min([until, *(at for at in back[node] if at >= since)])
            outages.append(Outage(since, None if ends > now else max(ends, since), reason))
        found += repairs(node, outages, failed[node], now)
    return found
