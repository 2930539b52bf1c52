"""The state of a run, folded from its events: what gate, control plane and ledger all agree on.

The fold does not depend on the order in which events are read (clocks of writers differ); its rules
are in :mod:`resiliency.folding`. ``tests/resiliency/test_state.py`` shuffles and duplicates events
to prove it.
An *epoch* starts when a person resumes a stage; stops of an earlier epoch no longer count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import policy
from .attempt import Attempt, Submission
from .events import Event
from .exclusion import Order


@dataclass
class Stage:
    """A stage and its chain."""

    name: str
    kind: str = ""
    needs: tuple[str, ...] = ()
    epoch: int = 0
    completed: dict[str, Any] | None = None
    completed_ts: float | None = None
    stops: dict[int, dict[str, Any]] = field(default_factory=dict)
    holds: dict[int, dict[str, Any]] = field(default_factory=dict)
    cancels: set[int] = field(default_factory=set)
    submissions: dict[str, Submission] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    words: dict[str, tuple[Any, ...]] = field(default_factory=dict, repr=False)  # folding's

    @property
    def stopped(self) -> dict[str, Any] | None:
        """Why the stage will not go on in this epoch, or None."""
        if self.epoch in self.stops:
            return self.stops[self.epoch]
        if self.epoch in self.cancels:
            return {
                "rule": "user-cancelled",
                "reason": "cancelled by a person",
                "category": "user_cancelled",
            }
        return None

    @property
    def held(self) -> dict[str, Any] | None:
        return self.holds.get(self.epoch)

    @property
    def terminal(self) -> bool:
        return self.completed is not None or self.stopped is not None

    def chain(self) -> list[Attempt]:
        """Attempts in chain order."""
        return sorted(
            self.attempts.values(),
            key=lambda a: (a.link, len(a.job_id), a.job_id, a.restart_count, a.id),
        )

    def links(self) -> list[Submission]:
        return sorted(self.submissions.values(), key=lambda s: s.link)

    def attempts_of(self, token: str) -> list[Attempt]:
        return [a for a in self.chain() if a.token == token]

    def link_live(self, link: Submission) -> bool:
        """Whether the link may still run: accepted and not proved over. Uncertain ones are not settled."""
        return _live(link, {a.job_id: a for a in self.attempts_of(link.token)})

    def live_links(self) -> list[Submission]:
        last: dict[str, dict[str, Attempt]] = {}
        for attempt in self.chain():
            last.setdefault(attempt.token, {})[attempt.job_id] = attempt
        return [link for link in self.links() if _live(link, last.get(link.token, {}))]

    def history(self) -> list[policy.PastAttempt]:
        """What counts for budgets: this epoch's ended attempts, each after its own earlier cycles.

        Left-overs and duplicates do not count.
        """
        epoch_of = {s.token: s.epoch for s in self.submissions.values()}
        found: list[policy.PastAttempt] = []
        for a in self.chain():
            if not a.ended or a.cancelled_by_us or a.duplicate:
                continue
            if epoch_of.get(a.token, self.epoch) == self.epoch:
                found += [*a.past_cycles(), a.past()]
        return found

    def last_step(self) -> int | None:
        return max((a.step for a in self.attempts.values() if a.step is not None), default=None)

    @property
    def status(self) -> str:
        """One word: complete, stopped, cancelled, held, running, queued, uncertain or waiting."""
        if self.completed is not None:
            return "complete"
        stop = self.stopped
        if stop is not None:
            return "cancelled" if stop.get("category") == "user_cancelled" else "stopped"
        if self.held:
            return "held"
        if any(a.state in ("RUNNING", "COMPLETING") and not a.ended for a in self.attempts.values()):
            return "running"
        if self.live_links():
            return "queued"
        if any(s.outcome in ("intent", "uncertain") for s in self.submissions.values()):
            return "uncertain"
        return "waiting"


def _live(link: Submission, last: Mapping[str, Attempt]) -> bool:
    """``last``: of each job of the link its last attempt."""
    if link.outcome != "accepted":
        return False
    # A requeued job has an ended row and a later, pending one: the last row speaks. Each job of
    # the link speaks for itself: a duplicate that ended says nothing about the link's owner.
    return any(job not in last or not last[job].ended for job in {*link.job_ids, *last})


@dataclass
class RunState:
    """Everything the journal says about one run."""

    run: str = ""
    created: dict[str, Any] | None = None
    created_ts: float | None = None
    stages: dict[str, Stage] = field(default_factory=dict)
    last_ts: float = 0.0
    orders: dict[tuple[str, int], Order] = field(default_factory=dict)  # on nodes, by event
    rehearsal: bool = False  # harm was done on purpose: what it shows of nodes concerns no other run
    malformed: set[tuple[str, int]] = field(default_factory=set)  # content makes no sense
    words: dict[str, tuple[Any, ...]] = field(default_factory=dict, repr=False)  # folding's

    def stage(self, name: str) -> Stage:
        return self.stages.setdefault(name, Stage(name))

    @property
    def status(self) -> str:
        """complete, stopped, cancelled, held, running, queued or waiting: the run as a whole."""
        words = [stage.status for stage in self.stages.values()]
        if words and all(word == "complete" for word in words):
            return "complete"
        for word in ("running", "queued", "uncertain"):
            if word in words:
                return word
        if all(stage.terminal or self.blocked(stage) for stage in self.stages.values()):
            for word in ("stopped", "cancelled"):
                if word in words:
                    return word
        for word in ("held", "waiting"):
            if word in words:
                return word
        return "waiting"

    @property
    def finished(self) -> bool:
        return self.status in ("complete", "stopped", "cancelled")

    def blocked(self, stage: Stage) -> str | None:
        """Name of a needed stage (direct or not) that is stopped, so this one cannot start."""
        for need in stage.needs:
            other = self.stages.get(need)
            if other is None:
                continue
            if other.stopped and not other.completed:
                return other.name
            further = self.blocked(other)
            if further:
                return further
        return None


def fold(events: Iterable[Event], state: RunState | None = None) -> RunState:
    """Apply events to ``state`` (a new one by default), in any order; repeats change nothing."""
    from .folding import apply

    state = state or RunState()
    for event in events:
        apply(state, event)
    return state
