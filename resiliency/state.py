"""The state of a run, folded from its events: what gate, control plane and ledger all agree on.

The fold does not depend on the order in which events are read (clocks of writers differ); its rules
are in :mod:`resiliency.folding`. ``tests/resiliency/test_state.py`` shuffles and duplicates events
to prove it.
An *epoch* starts when a person resumes a stage; stops of an earlier epoch no longer count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from . import diagnosis, policy
from .events import Event
from .jobstate import GONE, PENDING, JobRecord


@dataclass
class Submission:
    """One link's submission. ``outcome``: intent, accepted, rejected, uncertain, absent."""

    token: str
    stage: str
    link: int
    epoch: int = 0
    cluster: str = ""
    intents: list[float] = field(default_factory=list)  # wall times, one per try
    job_ids: list[str] = field(default_factory=list)  # more than one only after a duplicate
    closed: dict[str, float] = field(default_factory=dict)  # outcome -> latest time of it
    reason: str = ""
    cancelled: bool = False
    negatives: list[float] = field(default_factory=list)  # conclusive look-ups that found nothing
    words: dict[str, tuple[Any, ...]] = field(default_factory=dict, repr=False)  # folding's

    @property
    def first_negative(self) -> float | None:
        """Time of the first conclusive look-up since the newest intent that found nothing."""
        latest = max(self.intents, default=0.0)
        return min((ts for ts in self.negatives if ts >= latest), default=None)

    @property
    def outcome(self) -> str:
        if self.job_ids:
            return "accepted"
        latest = max(self.intents, default=0.0)
        # intent, then what became of it; an answer older than the newest intent is about an earlier try
        settled = [(ts, name) for name, ts in self.closed.items() if ts >= latest]
        return max(settled)[1] if settled else "intent"

    @property
    def job_id(self) -> str | None:
        return self.job_ids[0] if self.job_ids else None


@dataclass
class Cycle:
    """One generation of ranks within an allocation. ``continued``: another one followed in it."""

    number: int
    nodes: tuple[str, ...] = ()
    spares: tuple[str, ...] = ()
    started_ts: float | None = None
    ended_ts: float | None = None
    category: str = ""
    signature: str = ""
    reason: str = ""
    node: str | None = None
    rank: int | None = None
    continued: bool = False
    resumed_from: int | None = None
    saved_step: int | None = None
    step: int | None = None
    error: dict[str, Any] | None = None
    incident: dict[str, Any] | None = None
    decision: dict[str, Any] | None = None
    words: dict[str, tuple[Any, ...]] = field(default_factory=dict, repr=False)  # folding's

    @property
    def progressed(self) -> bool:
        return self.saved_step is not None and self.saved_step > (self.resumed_from or 0)

    def past(self) -> policy.PastAttempt:
        return policy.PastAttempt(
            category=self.category,
            signature=self.signature,
            step=self.step,
            progressed=self.progressed,
            node=self.node,
            in_job=True,
        )


@dataclass
class Attempt:
    """One allocation of a stage (job id and restart count)."""

    id: str
    stage: str
    token: str
    link: int
    job_id: str
    restart_count: int
    record: JobRecord | None = None
    record_order: tuple[float, str, int] = (0.0, "", 0)
    gone: bool = False
    missing: set[float] = field(default_factory=set)
    started: dict[str, Any] | None = None
    started_ts: float | None = None
    gate: str | None = None
    drain_reason: str | None = None
    finished: dict[str, Any] | None = None
    finished_ts: float | None = None
    cycles: dict[int, Cycle] = field(default_factory=dict)
    cancelled_by_us: bool = False
    duplicate: bool = False
    releases: set[float] = field(default_factory=set)
    resumed_from: int | None = None
    step: int | None = None
    loss: Any = None
    loss_step: int = -1
    tokens: int | None = None
    section: str = ""
    last_progress_ts: float | None = None
    checkpoint_step: int | None = None
    excluded_nodes: tuple[str, ...] = ()
    words: dict[str, tuple[Any, ...]] = field(default_factory=dict, repr=False)  # folding's

    @property
    def state(self) -> str:
        """The scheduler's word; UNKNOWN before it said anything, unless the job itself speaks."""
        if self.record is not None and self.record.ended:
            return self.record.state
        if self.gone:
            return GONE
        if self.record is None:
            return "RUNNING" if self.started and not self.finished else "UNKNOWN"
        if self.started and not self.finished and self.record.state in PENDING:
            return "RUNNING"  # the scheduler was last asked before the job started
        return self.record.state

    @property
    def missing_since(self) -> float | None:
        """When a look first missed the job after the scheduler's last word on it; None: it was not missed."""
        return min((ts for ts in self.missing if ts > self.record_order[0]), default=None)

    @property
    def ended(self) -> bool:
        """Proved over: the scheduler says so, or the supervisor wrote its last word."""
        return self.finished is not None or self.gone or bool(self.record and self.record.ended)

    @property
    def progressed(self) -> bool:
        return self.checkpoint_step is not None and self.checkpoint_step > (self.resumed_from or 0)

    def cycle(self, number: int) -> Cycle:
        return self.cycles.setdefault(number, Cycle(number))

    @property
    def last_cycle(self) -> Cycle | None:
        return self.cycles[max(self.cycles)] if self.cycles else None

    @property
    def error(self) -> dict[str, Any] | None:
        """The program's own last word in the last cycle: what an earlier one died of was got over."""
        last = self.last_cycle
        return last.error if last else None

    def error_of(self, cycle: int) -> dict[str, Any] | None:
        return self.cycles[cycle].error if cycle in self.cycles else None

    def past_cycles(self) -> list[policy.PastAttempt]:
        """The cycles that another one followed in this allocation, oldest first."""
        return [cycle.past() for _, cycle in sorted(self.cycles.items()) if cycle.continued]

    def evidence(self) -> diagnosis.AttemptEvidence:
        record, finished = self.record, self.finished or {}
        code = finished.get("exit_code")
        if code is None and record is not None and record.ended:
            code = record.exit_code
        return diagnosis.AttemptEvidence(
            scheduler_state=self.state if self.state != "UNKNOWN" else None,
            exit_code=code,
            signal=record.signal if record else None,
            scheduler_reason=record.reason if record else "",
            drain_reason=self.drain_reason,
            error_category=(self.error or {}).get("category"),
            error_message=str((self.error or {}).get("message", "")),
            started=self.started is not None,
            gate=self.gate,
            cancelled_by_us=self.cancelled_by_us,
            cancelled_by=record.cancelled_by if record else None,
            nodes=record.nodes if record else "",
        )

    def verdict(self) -> diagnosis.Verdict:
        """The verdict on an ended attempt (undefined sense before it ended)."""
        return diagnosis.diagnose(self.evidence())

    def wall_s(self) -> float:
        """Seconds of allocation, as far as known."""
        record = self.record
        if record and record.started_at and record.ended_at:
            return max(0.0, record.ended_at - record.started_at)
        if self.started_ts is not None:
            end = self.finished_ts or self.last_progress_ts or self.started_ts
            return max(0.0, end - self.started_ts)
        return 0.0

    def _last_step(self) -> int | None:
        """Where its last cycle got to: earlier ones speak for themselves."""
        last = self.last_cycle
        return last.step if last and last.number > 0 and last.step is not None else self.step

    def _last_progressed(self) -> bool:
        last = self.last_cycle
        return last.progressed if last and last.number > 0 else self.progressed

    def past(self) -> policy.PastAttempt:
        verdict = self.verdict()
        return policy.PastAttempt(
            category=verdict.category,
            signature=verdict.signature,
            step=self._last_step(),
            progressed=self._last_progressed(),
            worked=self.gate == "go",
            wall_s=self.wall_s(),
        )


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
        if link.outcome != "accepted":
            return False
        # A requeued job has an ended row and a later, pending one: the last row speaks. Each job of
        # the link speaks for itself: a duplicate that ended says nothing about the link's owner.
        last = {a.job_id: a for a in self.attempts_of(link.token)}
        jobs = {*link.job_ids, *last}
        return any(job not in last or not last[job].ended for job in jobs)

    def live_links(self) -> list[Submission]:
        return [link for link in self.links() if self.link_live(link)]

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


@dataclass
class RunState:
    """Everything the journal says about one run."""

    run: str = ""
    created: dict[str, Any] | None = None
    created_ts: float | None = None
    stages: dict[str, Stage] = field(default_factory=dict)
    last_ts: float = 0.0
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
