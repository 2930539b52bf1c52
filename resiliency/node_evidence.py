"""What is held against nodes, and what should follow from it. Pure.

A failure counts against the node it showed on only if its category can be a node's doing at all
(``resiliency.taxonomy``): memory, disk, quota, configuration, data and code never do.
``tests/resiliency/test_node_evidence.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .contract import parse_attempt_id
from .exclusion import DAY_S, Order, Settings, active, readmitted
from .taxonomy import category

if TYPE_CHECKING:
    from .attempt import Attempt, Cycle
    from .state import RunState, Stage

#: Failures that prove nothing by themselves count together when they are no further apart than this.
WINDOW_S: Final = 28 * DAY_S


@dataclass(frozen=True)
class Evidence:
    """One failure that showed on a node. ``proof``: it is provably the node's, else it only counts.

    ``nodes``: how many the job had (0: not known). ``source``: verdict or preflight.
    """

    cluster: str
    node: str
    at: float
    category: str
    run: str
    stage: str
    attempt: str
    cycle: int
    source: str
    proof: bool
    nodes: int = 0
    signature: str = ""
    detail: str = ""

    @property
    def job(self) -> str:
        parts = parse_attempt_id(self.attempt)
        return parts[1] if parts else self.attempt

    @property
    def witness(self) -> tuple[str, str]:
        """Failures with the same witness count once.

        A job that had one node only could not have failed anywhere else: its run is one witness however
        often it tried.
        """
        return (self.run, self.job if self.nodes > 1 else "")

    def line(self) -> str:
        """For a person and for an order's evidence."""
        said = self.detail or category(self.category).phrase
        where = f"{self.run} {self.stage} {self.attempt}" + (f" cycle {self.cycle}" if self.cycle else "")
        return f"{self.category}: {said} ({where})"


def evidence_of(state: RunState) -> list[Evidence]:
    """What a run's journal holds against nodes, oldest first."""
    found: list[Evidence] = []
    for stage in state.stages.values():
        for attempt in stage.chain():
            for cycle in attempt.cycles.values():
                found += _of_cycle(state.run, stage, attempt, cycle)
    return sorted(found, key=lambda one: (one.at, one.node, one.run, one.stage, one.attempt, one.cycle))


def _of_cycle(run: str, stage: Stage, attempt: Attempt, cycle: Cycle) -> Iterator[Evidence]:
    parts = parse_attempt_id(attempt.id)
    cluster = parts[0] if parts else ""

    def held(node: str, at: float | None, what: str, source: str, proof: bool, detail: str) -> Evidence:
        signature = cycle.signature if source == "verdict" else ""
        return Evidence(
            cluster, node, at or 0.0, what, run, stage.name, attempt.id, cycle.number, source, proof,
            len(cycle.nodes), signature, detail,
        )  # fmt: skip

    for node, what, detail in cycle.failed_checks():
        yield held(node, cycle.checked_ts, what, "preflight", category(what).node_fault, detail)
    row = category(cycle.category)
    if cycle.node and (row.node_fault or row.node_suspect):
        proof = row.node_fault and (row.name != "sdc_suspected" or _got_past(stage, attempt, cycle))
        yield held(cycle.node, cycle.ended_ts, row.name, "verdict", proof, cycle.reason)


def _got_past(stage: Stage, attempt: Attempt, cycle: Cycle) -> bool:
    """Whether the same work later went past the step where a node was suspected (exit 16): only then is it
    known that it was the node."""
    chain = stage.chain()
    later = [a.checkpoint_step or 0 for a in chain[chain.index(attempt) + 1 :]]
    later += [c.saved_step or 0 for c in attempt.cycles.values() if c.number > cycle.number]
    return cycle.step is not None and max(later, default=0) > cycle.step


def due(
    evidence: Iterable[Evidence], orders: Iterable[Order], *, now: float, settings: Settings
) -> list[Order]:
    """Orders that the evidence asks for and nobody has given: one a node, for nodes that are not kept out."""
    orders = list(orders)
    back, out = readmitted(orders), {(e.cluster, e.node) for e in active(orders, now=now)}
    life_s = settings.days * DAY_S
    by_node: dict[tuple[str, str], list[Evidence]] = {}
    everything = [one for one in evidence if now - one.at <= WINDOW_S]
    for one in everything:
        key = (one.cluster, one.node)
        if key not in out and one.at > back.get(key, -1.0):
            by_node.setdefault(key, []).append(one)
    found: list[Order] = []
    for (cluster, node), held in sorted(by_node.items()):
        told = [one for one in held if one.proof and one.at + life_s > now]
        rule, reason = "proof", ""
        if told:
            reason = told[-1].detail or category(told[-1].category).phrase
        else:
            told = _quorum(held, everything, node)
            count = len({one.witness for one in told})
            if count < settings.quorum or max(one.at for one in told) + life_s <= now:
                continue
            rule, reason = "quorum", f"{count} different jobs failed on it in {int(WINDOW_S / DAY_S)} days"
        last = max(told, key=lambda one: one.at)
        # An order that was already given and ran out is not given again for the same evidence.
        if any(o.node == node and o.cluster == cluster and not o.back and o.at >= last.at for o in orders):
            continue
        found.append(
            Order(
                cluster, node, now, until=last.at + life_s, by=rule, category=last.category, reason=reason,
                evidence=tuple(one.line() for one in told[-8:]),
            )
        )  # fmt: skip
    return found


def _quorum(held: Sequence[Evidence], everything: Sequence[Evidence], node: str) -> list[Evidence]:
    """The failures that count against a node together. One that the same run also had on another node
    follows the work."""
    elsewhere = {(one.run, one.signature) for one in everything if one.node != node and one.signature}
    return [one for one in held if one.proof or (one.run, one.signature) not in elsewhere]
