"""Which nodes are kept out, of which cluster, why, and until when. Pure: no clock, file or subprocess.

A node is kept out only by an *order* in a journal (``node.excluded``), each with evidence and an end;
``node.readmitted`` ends it early and forgets what was held against the node. Orders come from a person, from
a fault that is provably the node's, or from failures that prove nothing one by one when enough different jobs
had them there (:mod:`.node_evidence`). What is ordered is not always carried out: a stage keeps the nodes it
needs. ``tests/resiliency/test_exclusion.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .attempt import listed
from .policy import SURE

if TYPE_CHECKING:
    from .diagnosis import Verdict
    from .events import Event
    from .policy import Decision
    from .state import Stage

DAY_S: Final = 86400.0
#: Who ordered it, weakest first: what there is no room for is given up in this order.
STRENGTH: Final = ("quorum", "proof", "person")
_LINES: Final = 8


@dataclass(frozen=True)
class Settings:
    """``recovery.exclusion`` of a stage: see docs/experiment-file.md."""

    days: float = 7.0
    quorum: int = 3
    max_share: float = 0.1

    @classmethod
    def read(cls, given: Mapping[str, Any] | None) -> Settings:
        """From the plain values in ``stage.json``; what is absent has its default."""
        given = given or {}
        return cls(
            float(given.get("days", cls.days)),
            int(given.get("quorum", cls.quorum)),
            float(given.get("max_share", cls.max_share)),
        )


@dataclass(frozen=True)
class Order:
    """``node.excluded``, or ``node.readmitted`` (``back``). ``by``: ``person:NAME``, ``proof`` or ``quorum``.

    ``run``: whose journal it is in; empty: the one for all runs, where a person's word goes.
    """

    cluster: str
    node: str
    at: float
    back: bool = False
    until: float | None = None
    by: str = ""
    category: str = ""
    reason: str = ""
    evidence: tuple[str, ...] = ()
    run: str = ""

    @property
    def rule(self) -> str:
        word = self.by.split(":", 1)[0]
        return word if word in STRENGTH else "person"

    @classmethod
    def of(cls, event: Event) -> Order | None:
        """The order an event gives; None if it is none. Raises TypeError or ValueError on nonsense."""
        if event.type not in ("node.excluded", "node.readmitted"):
            return None
        data = event.data
        node, cluster, until = data.get("node"), data.get("cluster"), data.get("until")
        if not (isinstance(node, str) and node and isinstance(cluster, str) and cluster):
            raise ValueError("an order without node or cluster")
        back = event.type == "node.readmitted"
        if not back and until is None:
            raise ValueError("an exclusion without an end")
        lines = data.get("evidence")
        return cls(
            cluster=cluster,
            node=node,
            at=event.ts,
            back=back,
            until=None if until is None else float(until),
            by=str(data.get("by") or ""),
            category=str(data.get("category") or ""),
            reason=str(data.get("reason") or ""),
            evidence=tuple(map(str, lines)) if isinstance(lines, (list, tuple)) else (),
            run=event.run if event.stage or event.attempt else "",
        )

    def as_data(self) -> dict[str, Any]:
        """For the journal."""
        data: dict[str, Any] = {"node": self.node, "cluster": self.cluster, "reason": self.reason}
        if not self.back:
            data |= {"category": self.category, "until": self.until, "evidence": list(self.evidence)}
        return {**data, "by": self.by}


@dataclass(frozen=True)
class Exclusion:
    """A node that is kept out now: all orders on it that hold, as one. ``rule``: the strongest of them."""

    cluster: str
    node: str
    since: float
    until: float
    rule: str
    category: str
    reason: str
    by: str
    evidence: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choice:
    """``nodes`` a job is kept off; ``dropped``: those it is not, with why."""

    nodes: tuple[str, ...]
    dropped: tuple[tuple[str, str], ...] = ()


def orders_in(events: Iterable[Event]) -> list[Order]:
    """The orders among events; what makes no sense is left out."""
    found = []
    for event in events:
        try:
            order = Order.of(event)
        except (TypeError, ValueError):
            continue
        if order is not None:
            found.append(order)
    return found


def ordered(
    decision: Decision, verdict: Verdict, *, cluster: str, settings: Settings, now: float
) -> list[Order]:
    """What a decision means for everybody's next jobs: orders for the nodes whose fault it proves.

    A node that is only to be avoided until it is known better (exit 16) gets none.
    """
    if verdict.confidence < SURE:
        return []
    until = now + settings.days * DAY_S
    lines = tuple(dict.fromkeys([verdict.reason, *verdict.evidence]))[:_LINES]
    return [
        Order(
            cluster, node, now, until=until, by="proof", category=verdict.row.name, reason=verdict.reason,
            evidence=lines,
        )
        for node in decision.exclude
    ]  # fmt: skip


def readmitted(orders: Iterable[Order]) -> dict[tuple[str, str], float]:
    """(cluster, node) → when it was last let back: what was held against it before no longer counts."""
    found: dict[tuple[str, str], float] = {}
    for order in orders:
        if order.back:
            key = (order.cluster, order.node)
            found[key] = max(found.get(key, order.at), order.at)
    return found


def active(orders: Iterable[Order], *, now: float, cluster: str | None = None) -> list[Exclusion]:
    """The nodes that are kept out at ``now``, by cluster and name. The order of orders does not matter."""
    orders = list(orders)
    back = readmitted(orders)
    holding: dict[tuple[str, str], list[Order]] = {}
    for order in orders:
        key = (order.cluster, order.node)
        if order.back or (cluster is not None and order.cluster != cluster):
            continue
        if order.until is not None and order.until > now and order.at > back.get(key, -1.0):
            holding.setdefault(key, []).append(order)
    return [_joined(held) for _, held in sorted(holding.items())]


def _joined(held: Sequence[Order]) -> Exclusion:
    """The strongest order says who and why, of equals the one that holds longest."""
    held = sorted(held, key=lambda o: (STRENGTH.index(o.rule), o.until or 0.0, o.at, o.reason, o.run))
    first, by_time = held[-1], sorted(held, key=lambda o: (o.at, o.reason, o.run))
    lines = dict.fromkeys(line for order in by_time for line in order.evidence)
    return Exclusion(
        cluster=first.cluster,
        node=first.node,
        since=by_time[0].at,
        until=max(order.until or 0.0 for order in held),
        rule=first.rule,
        category=first.category,
        reason=first.reason,
        by=first.by,
        evidence=tuple(lines)[:_LINES],
        runs=tuple(sorted({order.run for order in held if order.run})),
    )


def avoided(stage: Stage, *, now: float, settings: Settings) -> dict[str, str]:
    """Nodes that this stage's next link must do without, whatever others think of them: node → why.

    Those that its own decisions left (exit 16 is told apart by running elsewhere), and those that its last
    allocation lost. A decision that was only recorded (shadow) leaves none.
    """
    epochs = {link.token: link.epoch for link in stage.submissions.values()}
    mine = [a for a in stage.chain() if epochs.get(a.token, stage.epoch) == stage.epoch]
    found: dict[str, str] = {}
    for attempt in mine:
        for cycle in attempt.cycles.values():
            said = cycle.decision or {}
            recent = now - (cycle.ended_ts or now) <= settings.days * DAY_S
            if recent and not said.get("shadow"):
                found |= {str(node): str(said.get("reason", "")) for node in listed(said.get("exclude"))}
    ended = [a for a in mine if a.ended and not a.cancelled_by_us]
    if ended:
        found |= {node: why for node, why in ended[-1].lost.items() if node not in found}
    return found


def choose(
    excluded: Iterable[Exclusion],
    *,
    need: int,
    available: float | None,
    settings: Settings,
    avoid: Mapping[str, str] | None = None,
) -> Choice:
    """What of it a job of ``need`` nodes can be kept off, where ``available`` are usable otherwise.

    Never so many that too few are left; beyond ``max_share`` of them only by a person's word or for the
    stage's own next link. The weakest and oldest are dropped first. ``available`` None: not known, so only a
    person's word counts.
    """
    avoid = avoid or {}
    known = {one.node: one for one in excluded}

    def rank(node: str) -> tuple[int, float, str]:
        one = known.get(node)
        if one is None:
            return 1, 0.0, node
        tier = 1 if node in avoid else 2 + len(STRENGTH) - STRENGTH.index(one.rule)
        return (0 if one.rule == "person" else tier), -one.since, node

    kept: list[str] = []
    dropped: list[tuple[str, str]] = []
    for node in sorted({*known, *avoid}, key=rank):
        bound = rank(node)[0] >= 2
        if available is None:
            if rank(node)[0] == 0:
                kept.append(node)
            else:
                dropped.append((node, "it is not known how many nodes there are"))
        elif available - len(kept) - 1 < need:
            dropped.append((node, f"{need} of {available} nodes are needed"))
        elif bound and len(kept) + 1 > settings.max_share * available:
            most = f"{settings.max_share:.0%}"
            dropped.append((node, f"no more than {most} of {available} nodes may be kept out"))
        else:
            kept.append(node)
    return Choice(tuple(sorted(kept)), tuple(dropped))
