"""Nodes that are kept out: what is known of them, what queued links are kept off, a person's word.

What a person says of nodes lies in a journal of the home directory, beside the ledger; what runs found lies
in theirs. Judgement is ``resiliency.exclusion``'s. ``tests/orchestrator/test_nodes.py``.
"""

from __future__ import annotations

import contextlib
import getpass
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from metrics.ledger.nodes import names
from resiliency import durable, journal
from resiliency.contract import HOME_JOURNAL
from resiliency.edges import Clock
from resiliency.errors import TrainmasterError, UsageError
from resiliency.exclusion import Exclusion, Order, Settings, active, avoided, choose, orders_in
from resiliency.node_evidence import WINDOW_S, Evidence, due, evidence_of
from resiliency.state import RunState

from .home import Home
from .moments import moment
from .plan import StagePlan
from .runs import Run
from .schedulers.base import Scheduler

_NODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
#: An exclusion that a person repeats and that would end hardly later is the same one.
_SAME_S: Final = 3600.0


@dataclass
class Known:
    """Orders and evidence of every run and person, as far as they could be read."""

    orders: list[Order] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def known(home: Home, *, now: float, ledger: bool = True) -> Known:
    """What is known of nodes here. Persons' words come from their journal, the rest from the ledger; without
    it (``ledger=False``, or it cannot be read) other runs' findings are not known.

    Raises StorageError when the persons' journal cannot be read.
    """
    found = Known()
    if ledger and home.ledger.exists():
        from metrics.ledger import Ledger, node_queries

        try:
            with Ledger.open(home.ledger, readonly=True) as opened:
                found.orders += [o for o in node_queries.orders(opened) if o.run]
                found.evidence += node_queries.evidence(opened, since=now - WINDOW_S)
        except TrainmasterError as error:
            found.problems.append(f"what other runs found of nodes is not known now: {error.message}")
    found.orders += _words(home)
    return found


def _words(home: Home) -> list[Order]:
    events, _ = journal.read_run(home.root / HOME_JOURNAL)
    return orders_in(events)


# -- what queued links are kept off --------------------------------------------------------------


@dataclass
class KeptOff:
    """``nodes``: stage → all nodes its links are kept off; ``orders``: (stage, order) to journal first;
    ``notes``: stage → what a person should hear when something is done about it."""

    nodes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    orders: list[tuple[str, Order]] = field(default_factory=list)
    notes: dict[str, list[str]] = field(default_factory=dict)


class Watch:
    """One reconcile's view of nodes: read at most once, and the scheduler asked at most once a cluster."""

    def __init__(self, home: Home, *, clock: Clock, ledger: bool = True) -> None:
        self._home, self._clock, self._ledger = home, clock, ledger
        self._known: Known | None = None
        self._partitions: dict[str, dict[str, Any]] = {}

    @property
    def known(self) -> Known:
        if self._known is None:
            try:
                self._known = known(self._home, now=self._clock.wall(), ledger=self._ledger)
            except TrainmasterError as error:
                self._known = Known(problems=[f"excluded nodes are not known now: {error.message}"])
        return self._known

    @property
    def problems(self) -> list[str]:
        """What could not be read, if anything was."""
        return [] if self._known is None else self._known.problems

    def keep_off(self, run: Run, state: RunState, scheduler: Scheduler) -> KeptOff:
        """For every stage that goes on. Orders that the evidence asks for are added for the runs after."""
        now, found = self._clock.wall(), KeptOff()
        cluster = scheduler.cluster
        mine = list(state.orders.values())
        orders = [*self.known.orders, *mine]
        evidence = [e for e in self.known.evidence if e.cluster == cluster and e.run != run.id]
        evidence += [e for e in evidence_of(state) if e.cluster == cluster]
        for plan in run.plan.stages:
            stage = state.stage(plan.name)
            static = names(list(plan.exclude))
            found.nodes[plan.name] = tuple(sorted(static))
            if stage.terminal or stage.held is not None:
                continue
            settings = Settings.read(plan.spec["recovery"].get("exclusion"))
            shadow = bool(plan.spec["recovery"].get("shadow"))
            fresh = [] if shadow else due(evidence, orders, now=now, settings=settings)
            found.orders += [(plan.name, order) for order in fresh]
            orders += fresh
            if not state.rehearsal:
                self.known.orders.extend(fresh)
            held = active(orders, now=now, cluster=cluster)
            avoid = avoided(stage, now=now, settings=settings)
            if not (held or avoid):
                continue
            if shadow:
                off = sorted({e.node for e in held} | set(avoid))
                found.notes[plan.name] = [f"shadow: {plan.name} would be kept off {', '.join(off)}"]
                continue
            choice = choose(
                [e for e in held if e.node not in static],
                need=plan.nodes + plan.spare_nodes,
                available=self._available(plan, scheduler, len(static)),
                settings=settings,
                avoid={node: why for node, why in avoid.items() if node not in static},
            )
            found.nodes[plan.name] = tuple(sorted({*static, *choice.nodes}))
            found.notes[plan.name] = [f"{plan.name} is not kept off {n}: {why}" for n, why in choice.dropped]
        return found

    def _available(self, plan: StagePlan, scheduler: Scheduler, static: int) -> float | None:
        """Nodes the stage may run on; None: not known."""
        if scheduler.kind == "local":
            return math.inf  # emulated nodes are as many as are asked for
        if plan.setting("constraint") or plan.setting("reservation"):
            return None  # fewer than the partition has, and nobody says how many
        if scheduler.cluster not in self._partitions:
            try:
                self._partitions[scheduler.cluster] = dict(scheduler.facts().get("partitions") or {})
            except TrainmasterError:
                self._partitions[scheduler.cluster] = {}
        partitions = self._partitions[scheduler.cluster]
        wanted = plan.setting("partition")
        listed = wanted.split(",") if wanted else [n for n, row in partitions.items() if row.get("default")]
        counts = [int(partitions[n]["nodes"]) for n in listed if n in partitions]
        return min(counts) - static if counts else None


# -- a person's word -----------------------------------------------------------------------------


def parse_until(text: str, now: float) -> float:
    """``36h``, ``7d``, ``2w``, or a date such as ``2026-12-24`` or ``2026-12-24T12:00``, as Unix seconds.

    Raises UsageError for anything else and for a time that is past.
    """
    end = moment(text, now, "--until")
    if end <= now:
        raise UsageError(f"--until {text} is past", hint="to let a node back: nodes readmit NODE")
    return end


def node_names(given: Iterable[str]) -> list[str]:
    """Names as typed, lists such as ``n[1-3]`` written out. Raises UsageError for what is no name."""
    found = names(list(given))
    for name in found:
        if not _NODE.fullmatch(name):
            raise UsageError(f"{name!r} is not a node name", hint="as `sinfo -N` prints them: n07, n[1-3]")
    return found


def exclude(
    home: Home, cluster: str, nodes: Sequence[str], *, reason: str, until: float, clock: Clock
) -> list[str]:
    """Journal a person's word; returns the nodes of which it says something new. Doing it again is safe.

    Raises StorageError, LockBusy.
    """
    with _writing(home, clock) as (writer, words):
        now = clock.wall()
        held = {e.node: e for e in active(words, now=now, cluster=cluster)}
        new = [n for n in nodes if not _says_it(held.get(n), reason, until)]
        by = f"person:{getpass.getuser()}"
        orders = [Order(cluster, n, now, until=until, by=by, reason=reason, evidence=(reason,)) for n in new]
        writer.append_many([("node.excluded", order.as_data(), {}) for order in orders], sync=True)
        return new


def _says_it(held: Exclusion | None, reason: str, until: float) -> bool:
    return held is not None and held.reason == reason and abs(held.until - until) < _SAME_S


def readmit(home: Home, cluster: str, nodes: Sequence[str], *, reason: str, clock: Clock) -> list[str]:
    """Let nodes back, whoever kept them out; returns those that were out or had something held against them.

    Raises StorageError, LockBusy.
    """
    now = clock.wall()
    seen = known(home, now=now)
    out = {e.node for e in active(seen.orders, now=now, cluster=cluster)}
    back = {o.node: o.at for o in sorted(seen.orders, key=lambda o: o.at) if o.back and o.cluster == cluster}
    out |= {e.node for e in seen.evidence if e.cluster == cluster and e.at > back.get(e.node, -1.0)}
    new = [node for node in nodes if node in out]
    if new:
        with _writing(home, clock) as (writer, _):
            by = f"person:{getpass.getuser()}"
            orders = [Order(cluster, n, clock.wall(), back=True, by=by, reason=reason) for n in new]
            writer.append_many([("node.readmitted", order.as_data(), {}) for order in orders], sync=True)
    return new


@contextlib.contextmanager
def _writing(home: Home, clock: Clock) -> Iterator[tuple[journal.JournalWriter, list[Order]]]:
    """The persons' journal, under its lock: its writer, and the orders that are in it."""
    root = home.ensure().root
    with (
        durable.locked(root / "nodes.lock", what="the list of excluded nodes"),
        journal.JournalWriter(
            root / HOME_JOURNAL, run=HOME_JOURNAL, writer=journal.login_writer(), clock=clock
        ) as writer,
    ):
        yield writer, _words(home)
