"""What triage passes from one step to the next: hits, facts, the verdict.

No I/O here. ``tests/resiliency/triage/test_api.py`` checks the JSON form.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ROOT, AMBIGUOUS, CASCADE, CONTEXT = "root", "ambiguous", "cascade", "context"


@dataclass
class Hit:
    """One line that a signature recognised.

    ``line`` counts from 1 by LF. ``time`` is Unix seconds, already in the job's clock once
    ``timeline.align`` ran; None: not known. ``timed``: the line carries the time itself (else the time is
    that of the last line before it that does). ``lag_s``: how long before the line the fault may have
    begun (a timeout reports its own waiting time). ``order`` is the place in the file, in bytes.
    """

    signature: str
    category: str
    role: str
    file: str
    line: int
    text: str
    order: int = 0
    kind: str = "log"  # log, kernel, scheduler
    time: float | None = None
    timed: bool = False
    latest: float | None = None  # of an untimed hit: the first time after it
    lag_s: float = 0.0
    generic: bool = False
    action: str = ""
    node: str | None = None
    rank: int | None = None
    gpu: int | None = None
    pci: str | None = None
    pid: int | None = None
    peer: str | None = None
    groups: dict[str, str] = field(default_factory=dict)
    count: int = 1  # equal lines that were folded into this one
    survived: bool = False
    proof: bool = False  # the line by itself proves that its node is at fault

    @property
    def at_latest(self) -> float:
        """The latest moment it can have been written; infinite when nothing is known."""
        if self.time is None:
            return float("inf")
        return self.time if self.timed or self.latest is None else max(self.time, self.latest)

    def evidence(self) -> dict[str, Any]:
        return {"file": self.file, "line": self.line, "text": self.text[:400]}


@dataclass
class TriageVerdict:
    """What failed first, where, how sure, what to do; ``as_json`` is the format of the labelled cases."""

    category: str
    domain: str
    action: str
    role: str = "root"
    node: str | None = None
    rank: int | None = None
    gpu: int | None = None
    confidence: float = 0.0
    reason: str = ""
    evidence: list[dict[str, Any]] = field(default_factory=list)
    chain: list[dict[str, Any]] = field(default_factory=list)
    alternatives: list[dict[str, Any]] = field(default_factory=list)
    signature: str = ""
    step: int | None = None
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "category": self.category,
            "domain": self.domain,
            "role": self.role,
            "action": self.action,
            "node": self.node,
            "rank": self.rank,
            "gpu": self.gpu,
            "confidence": round(self.confidence, 2),
            "reason": self.reason,
            "evidence": self.evidence,
            "chain": self.chain,
            "alternatives": self.alternatives,
            "signature": self.signature,
            "step": self.step,
            "notes": self.notes,
        }


def first_number(*values: object) -> int | None:
    """The first of these that is a number of reasonable size."""
    for value in values:
        if value is None:
            continue
        text = str(value)
        if text.isdigit() and len(text) < 10:
            return int(text)
    return None
