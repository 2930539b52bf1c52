"""What earlier failures say about this one: it moves with the job, or it stays with the node. Pure.

``tests/resiliency/triage/test_history.py`` has a row per pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .model import TriageVerdict

WITH_JOB, WITH_NODE, UNCLEAR = "moves with the job", "stays with the node", ""


@dataclass(frozen=True)
class Past:
    """One earlier failure: where, what, at which step; ``run`` names the job it happened to."""

    run: str
    stage: str
    attempt: str
    category: str
    node: str | None = None
    step: int | None = None
    signature: str = ""
    at: float | None = None


@dataclass(frozen=True)
class Pattern:
    """``lines`` for a person; ``kind``: one of the constants above."""

    kind: str
    lines: tuple[str, ...] = ()


def pattern(
    verdict: TriageVerdict, past: Sequence[Past], *, run: str = "", stage: str = "", attempt: str = ""
) -> Pattern:
    """What repeats. ``past`` may hold this failure itself (same attempt); it does not count."""
    others = [p for p in past if p.attempt != attempt]
    same_step = [
        p
        for p in others
        if p.run == run
        and p.stage == stage
        and p.category == verdict.category
        and p.step is not None
        and verdict.step is not None
        and abs(p.step - verdict.step) <= 1
    ]
    on_node = [p for p in others if verdict.node is not None and p.node == verdict.node]
    jobs_on_node = {(p.run, p.stage) for p in on_node}
    elsewhere = [
        p
        for p in others
        if p.run == run and p.stage == stage and p.category == verdict.category and p.node != verdict.node
    ]
    lines: list[str] = []
    if same_step:
        lines.append(f"the same at step {verdict.step} {len(same_step)} time(s) before: code or data")
    if on_node:
        kinds = ", ".join(sorted({p.category for p in on_node}))
        lines.append(
            f"{len(on_node)} failure(s) on {verdict.node} before, in {len(jobs_on_node)} job(s): {kinds}"
        )
    if elsewhere and verdict.node is not None:
        nodes = ", ".join(sorted({p.node or "?" for p in elsewhere})[:3])
        lines.append(f"this job failed the same way elsewhere: {nodes}")
    kind = UNCLEAR
    if same_step or (elsewhere and len(jobs_on_node - {(run, stage)}) == 0 and verdict.node is not None):
        kind = WITH_JOB
    elif len(jobs_on_node - {(run, stage)}) >= 1 and any(p.category == verdict.category for p in on_node):
        kind = WITH_NODE
    if kind:
        lines.insert(0, kind)
    return Pattern(kind, tuple(lines))
