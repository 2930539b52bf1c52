"""The parts of a chain as the fold knows them: a link's submission, an attempt, its cycles.

Values and what follows from them; how events change them is in :mod:`resiliency.folding`.
``tests/resiliency/test_state.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import diagnosis, policy
from .jobstate import GONE, PENDING, JobRecord


def listed(value: Any) -> Sequence[Any]:
    """The items of a list in an event; nothing of what is no list."""
    return value if isinstance(value, (list, tuple)) else ()


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
    exclude: tuple[str, ...] = ()  # nodes its job was last told to keep off
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
    verdict: dict[str, Any] | None = None
    decision: dict[str, Any] | None = None
    checks: dict[str, Any] | None = None  # what checking the nodes before it found
    checked_ts: float | None = None
    swapped: dict[str, str] = field(default_factory=dict)  # node → the spare that took its place
    shrunk: bool = False
    words: dict[str, tuple[Any, ...]] = field(default_factory=dict, repr=False)  # folding's

    @property
    def progressed(self) -> bool:
        return self.saved_step is not None and self.saved_step > (self.resumed_from or 0)

    def failed_checks(self) -> list[tuple[str, str, str]]:
        """Nodes that failed the checks before this cycle: node, category, detail."""
        checks = self.checks or {}
        found = []
        told = [c for c in listed(checks.get("checks")) if isinstance(c, Mapping)]
        for node in dict.fromkeys(map(str, listed(checks.get("failed")))):
            said = [c for c in told if c.get("node") == node]
            first = next((c for c in said if c.get("category")), said[0] if said else {})
            detail = f"{first.get('check', 'check')}: {first.get('detail', '')}" if first else ""
            found.append((node, str(first.get("category") or "unknown"), detail))
        return found


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
    lost: dict[str, str] = field(default_factory=dict)  # nodes of the allocation that went, and why
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
    def last_word(self) -> Cycle | None:
        """The cycle that speaks for the attempt's end: the last one, unless it was got over."""
        last = self.last_cycle
        return None if last is None or last.continued else last

    @property
    def error(self) -> dict[str, Any] | None:
        """The program's own last word in the last cycle: what an earlier one died of was got over."""
        last = self.last_word
        return last.error if last else None

    def error_of(self, cycle: int) -> dict[str, Any] | None:
        return self.cycles[cycle].error if cycle in self.cycles else None

    def past_cycles(self) -> list[policy.PastAttempt]:
        """The cycles that another one followed in this allocation, oldest first."""
        return [self.past_of(n) for n, cycle in sorted(self.cycles.items()) if cycle.continued]

    def past_of(self, number: int) -> policy.PastAttempt:
        """One cycle as budgets see it."""
        cycle = self.cycles.get(number, Cycle(number))
        return policy.PastAttempt(
            category=cycle.category,
            signature=cycle.signature,
            step=cycle.step,
            progressed=self.progressed_in(number),
            node=cycle.node,
            in_job=True,
        )

    def progressed_in(self, number: int) -> bool:
        """Whether a cycle saved something past what it resumed from; if that is not known, past what the
        attempt had before it."""
        cycle = self.cycles.get(number)
        if cycle is None or cycle.saved_step is None:
            return False
        base = cycle.resumed_from
        if base is None:
            before = [c.saved_step for n, c in self.cycles.items() if n < number and c.saved_step is not None]
            base = max([*before, self.resumed_from or 0])
        return cycle.saved_step > base

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
            **self._spot(),
        )

    def _spot(self) -> dict[str, Any]:
        """What was found out about the last cycle while it could still be asked."""
        last = self.last_word
        if last is None or not last.category:
            # At least a program that knew whose fault it was may have said so.
            error = self.error or {}
            rank = error.get("rank")
            told = {"category": error.get("category"), "node": str(error.get("node") or "")}
            return {**told, "rank": rank if isinstance(rank, int) else None} if told["node"] else {}
        said = last.verdict or {}
        sure = said.get("confidence")
        return {
            "category": last.category,
            "node": last.node,
            "rank": last.rank,
            "signature": last.signature,
            "reason": last.reason,
            "confidence": float(sure) if isinstance(sure, (int, float)) else None,
            "lines": tuple(map(str, listed(said.get("evidence")))),
        }

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

    def _last(self) -> tuple[int | None, bool]:
        """Where its last cycle got to and whether that was progress: earlier ones speak for themselves."""
        if not any(cycle.continued for cycle in self.cycles.values()):
            return self.step, self.progressed
        last = self.last_word
        return (last.step, self.progressed_in(last.number)) if last is not None else (None, False)

    def past(self) -> policy.PastAttempt:
        verdict = self.verdict()
        step, progressed = self._last()
        return policy.PastAttempt(
            category=verdict.category,
            signature=verdict.signature,
            step=step,
            progressed=progressed,
            worked=self.gate == "go",
            wall_s=self.wall_s(),
            node=verdict.node,
        )
