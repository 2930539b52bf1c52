"""From what is known of one ended attempt to a verdict. Pure: no clock, file or subprocess.

This is the quick verdict made from states and exit codes, in the allocation and on the login node
alike. Evidence from logs (root before cascade) is a further input, not made here.
``tests/resiliency/test_diagnosis.py`` has a row per rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from . import exitcodes
from .taxonomy import CATEGORIES, Category, category


@dataclass(frozen=True)
class AttemptEvidence:
    """Everything known about an attempt; None or empty is "not known", never "no".

    ``scheduler_state`` is a word of :mod:`resiliency.jobstate`. ``exit_code`` is the supervisor's own
    last word when it had one, else the scheduler's. ``drain_reason``: why the attempt was asked to stop
    (time_limit, preempted, cancelled). ``error_category``: a program's own ``workload.error``.
    ``cancelled_by_us``: the control plane cancelled this job (left-over link, stopped stage);
    ``cancelled_by``: the uid that the scheduler names. ``node``, ``rank``, ``signature``, ``lines`` and
    ``category`` are what was found out about the last cycle while it could still be asked.
    """

    scheduler_state: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    scheduler_reason: str = ""
    drain_reason: str | None = None
    error_category: str | None = None
    error_message: str = ""
    started: bool = False
    gate: str | None = None
    cancelled_by_us: bool = False
    cancelled_by: str | None = None
    nodes: str = ""
    category: str | None = None
    node: str | None = None
    rank: int | None = None
    signature: str = ""
    reason: str = ""
    confidence: float | None = None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """A category with its evidence. ``confidence`` 0 to 1; ``signature`` groups equal failures; ``node`` and
    ``rank`` are where it showed, which by itself blames nobody."""

    category: str
    reason: str
    role: str = "root"
    confidence: float = 0.5
    node: str | None = None
    rank: int | None = None
    evidence: tuple[str, ...] = field(default=())
    signature: str = ""

    @property
    def row(self) -> Category:
        return category(self.category)


_STATE_CATEGORY = {
    "TIMEOUT": ("time_limit", 1.0),
    "DEADLINE": ("time_limit", 1.0),
    "PREEMPTED": ("preempted", 1.0),
    "NODE_FAIL": ("node_down", 1.0),
    "BOOT_FAIL": ("node_down", 0.9),
    "OUT_OF_MEMORY": ("host_oom", 1.0),
    "REVOKED": ("requeued", 0.9),
    "REQUEUED": ("requeued", 1.0),
}
_ENDED_WELL = (None, "COMPLETED", "GONE", "COMPLETING", "RUNNING")
_DRAIN_CATEGORY = {
    "time_limit": "time_limit",
    "preempted": "preempted",
    "cancelled": "user_cancelled",
}


def _verdict(name: str, reason: str, confidence: float, *evidence: str) -> Verdict:
    return Verdict(
        name,
        reason,
        confidence=confidence,
        evidence=tuple(e for e in evidence if e),
        signature=name,
    )


def diagnose(seen: AttemptEvidence) -> Verdict:
    """The verdict on one ended attempt: what its end says, and where the last cycle showed it.

    What was found out on the spot explains an end that says little, and never contradicts one that says much.
    """
    found = _by_end(seen)
    spot = seen.category and category(seen.category).name
    if found.category == "unknown" and spot and spot not in ("unknown", "healthy"):
        said = seen.reason or category(spot).phrase
        evidence = tuple(dict.fromkeys([*seen.lines, *found.evidence]))
        sure = 0.5 if seen.confidence is None else seen.confidence
        return Verdict(spot, said, "root", sure, seen.node, seen.rank, evidence, seen.signature or spot)
    if spot == found.category:
        return replace(
            found,
            node=seen.node,
            rank=seen.rank,
            signature=seen.signature or found.signature,
            evidence=tuple(dict.fromkeys([*seen.lines, *found.evidence])),
        )
    return found


def _by_end(seen: AttemptEvidence) -> Verdict:
    """The verdict from how it ended.

    Order matters: what ended it from outside explains the exit code it left behind; a program's own
    word explains its exit code; a bare code or signal comes last and proves little.
    """
    state, code = seen.scheduler_state, seen.exit_code
    word = f"scheduler state {state}" if state else ""
    exited = exitcodes.phrase(code) if code is not None else ""

    unheard = not seen.started and state in ("FAILED", "COMPLETED")
    if code == exitcodes.COMPLETE and not unheard and state in _ENDED_WELL:
        return _verdict("healthy", "complete", 1.0, word, exited)
    if state == "CANCELLED":
        if seen.cancelled_by_us:
            return _verdict("planned_rollover", "cancelled by Trainmaster, no longer needed", 1.0, word)
        if not seen.started and seen.nodes and seen.cancelled_by == "0":
            # What Slurm itself does to a job that may not be requeued when a prolog fails (22.05, 24.11).
            why = "the scheduler gave it up before it started (a failed prolog does that)"
            return _verdict("launch_failed", why, 0.8, word, f"nodes {seen.nodes}")
        return _verdict("user_cancelled", "cancelled by a person (scancel)", 0.9, word)
    if state in _STATE_CATEGORY:
        name, sure = _STATE_CATEGORY[state]
        return _verdict(name, CATEGORIES[name].phrase, sure, word, seen.scheduler_reason)
    if code == exitcodes.PROGRESS_MADE:
        if seen.gate == "wait":
            return _verdict("requeued", "waited for the stages it needs", 0.9, exited)
        if seen.drain_reason in _DRAIN_CATEGORY:
            name = _DRAIN_CATEGORY[seen.drain_reason]
            return _verdict(name, f"asked to stop ({seen.drain_reason}), state saved", 1.0, exited)
        return _verdict("planned_rollover", "state saved, allocation given back", 1.0, exited)
    if seen.error_category:
        name = category(seen.error_category).name
        first = seen.error_message.splitlines()[0] if seen.error_message else exited
        return Verdict(
            name,
            first,
            confidence=0.95,
            evidence=tuple(e for e in (first, exited, word) if e),
            signature=f"{name}:{first[:200]}",
        )
    if seen.drain_reason in _DRAIN_CATEGORY and code not in (None, exitcodes.NEEDS_HUMAN):
        # It was told to stop and did not manage to save; the order to stop is still the cause.
        name = _DRAIN_CATEGORY[seen.drain_reason]
        return _verdict(name, f"asked to stop ({seen.drain_reason}), did not save in time", 0.8, exited)
    if code == exitcodes.RERUN_ELSEWHERE:
        return _verdict("sdc_suspected", exitcodes.describe(code), 0.6, exited)
    if code == exitcodes.RESULT_REJECTED:
        return _verdict("numeric", exitcodes.describe(code), 0.9, exited)
    if code in (exitcodes.NEEDS_HUMAN, exitcodes.NOT_FOUND, exitcodes.NOT_EXECUTABLE):
        return _verdict("config_error", exitcodes.describe(code), 0.9, exited)
    if code == exitcodes.DO_NOT_RESTART:
        return _verdict("code_error", exitcodes.describe(code), 0.7, exited)
    if code == exitcodes.WATCHDOG:
        return _verdict("hang", exitcodes.describe(code), 0.8, exited)
    if unheard:
        # The supervisor never wrote a line: the job died before our first instruction (0:53 and kin).
        return _verdict(
            "launch_failed",
            f"the job ended before it started its work ({seen.scheduler_reason or exited or state})",
            0.8,
            word,
            f"signal {seen.signal}" if seen.signal else "",
        )
    if code is None and seen.signal is None:
        return _verdict("unknown", "ended, and nobody recorded how", 0.2, word)
    return _verdict("unknown", exited or word, 0.3, word, exited)
