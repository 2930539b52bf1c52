"""Ends that are no failure, and ends that nothing explains.

A job is healthy when Slurm and all its steps say so, or when the program said that it finished and
nothing went wrong after that. ``tests/resiliency/triage/test_variants.py``.
"""

from __future__ import annotations

from typing import Any

from . import words
from .case import Case
from .choose import Choice
from .model import ROOT, Hit, TriageVerdict
from .timeline import Timeline


def healthy(case: Case, line: Timeline, choice: Choice) -> TriageVerdict | None:
    run = case.run
    planned = [h for h in line.current if h.signature == "planned-exit"]
    if run is not None:
        ended_well = run.state == "COMPLETED" and run.exit_code in (0, None)
        steps_well = all(
            s.exit_code in (0, None) and s.state in ("COMPLETED", "UNKNOWN", "RUNNING", "CANCELLED")
            for s in run.steps
        )
        said_so = line.done is not None and not _only_srun(line.done)
        if not (ended_well and (steps_well or (said_so and not _worse_after(line)))):
            return None
        evidence = [{"file": case.sacct_name, "line": run.line, "text": run.text}]
    else:
        if line.done is None:
            return None
        last = line.done
        worse = [
            h
            for h in line.current
            if h.role == ROOT and not h.survived and (h.file, h.order) > (last.file, last.order)
        ]
        exits = [h for h in line.current if h.signature == "task-exit" and h.groups.get("code", "0") != "0"]
        if (
            worse
            or exits
            or (
                choice.hit is not None
                and choice.hit.role == ROOT
                and (choice.hit.time or 0) > (last.time or 0)
            )
        ):
            return None
        evidence = [last.evidence()]
    if planned and (line.done is None or _only_srun(line.done)):
        hit = planned[-1]
        return TriageVerdict(
            "planned_rollover",
            "scheduler",
            "requeue",
            confidence=0.95,
            reason="gave the allocation back by plan",
            evidence=[hit.evidence()],
            signature="planned_rollover",
            step=words.step(hit, line),
        )
    if line.done is not None and not _only_srun(line.done):
        evidence.insert(0, line.done.evidence())
    return TriageVerdict(
        "healthy",
        "none",
        "none",
        confidence=0.97 if run is not None else 0.8,
        reason="finished",
        evidence=evidence,
        signature="healthy",
    )


def _worse_after(line: Timeline) -> bool:
    """Whether something that can be a root came after the program said that it was done."""
    done = line.done
    assert done is not None
    return any(
        h.role == ROOT and not h.survived and h.file == done.file and h.order > done.order
        for h in line.current
    )


def _only_srun(hit: Hit) -> bool:
    return "srun returned 0" in hit.text


def unknown(case: Case, line: Timeline, choice: Choice) -> TriageVerdict:
    evidence: list[dict[str, Any]] = []
    if case.run is not None:
        evidence.append({"file": case.sacct_name, "line": case.run.line, "text": case.run.text})
    exits = [h for h in line.current if h.signature in ("task-exit", "elastic-exit")]
    evidence = [h.evidence() for h in exits[:3]] + evidence
    if case.run is None and not case.scans and not evidence:
        reason = "no files to judge by"
    elif line.requeued is not None:
        return TriageVerdict(
            "requeued",
            "scheduler",
            "requeue",
            confidence=0.8,
            reason="requeued, and nothing failed before",
            evidence=[line.requeued.evidence()],
            signature="requeued",
        )
    else:
        reason = choice.why
    if not line.current and case.run is None and all(s.lines < 3 for s in case.scans):
        reason = "the files say next to nothing"
    return TriageVerdict(
        "unknown",
        "unknown",
        "restart_in_job",
        confidence=0.2,
        reason=reason,
        evidence=evidence,
        chain=words.chain(line, [], choice),
        signature="unknown",
        notes=[
            "what would tell: the kernel logs of the nodes, the logs of each rank, or a flight-recorder dump"
        ],
    )
