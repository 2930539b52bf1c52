"""What must be true after any bad day. Each returns its complaints: none is a pass."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from launch import watching
from orchestrator.drill.driving import logged
from resiliency import contract, journal
from resiliency.events import Event

#: What was killed may need a moment to be gone.
_GONE_S = 15.0


def events_of(run_dir: Path, stage: str = "train") -> list[Event]:
    found, problems = journal.read_run(contract.RunPaths(run_dir).journal)
    assert not problems, problems
    return [event for event in found if event.stage == stage]


def ended_for_a_reason(outcome: dict[str, Any], fatal: str, events: list[Event]) -> list[str]:
    if not fatal:
        return [] if outcome["status"] == "complete" else [f"the run is {outcome['status']}"]
    if outcome["status"] == "complete":
        return [f"complete in spite of {fatal}"]
    words = [e.data for e in events if e.type in ("stage.stopped", "stage.held")]
    if not words or not all(word.get("reason") and word.get("rule") for word in words):
        return [f"{outcome['status']} without a reason: {words}"]
    return []


def losses_are_right(run_dir: Path, expected: dict[int, float], complete: bool) -> list[str]:
    """Each logged loss is the undisturbed run's, to the last digit; a complete run has them all."""
    records = logged(contract.RunPaths(run_dir).stage("train"))
    wrong = [r["step"] for r in records if r["loss"] != expected.get(r["step"]) and r["loss"] == r["loss"]]
    found = [f"losses differ at steps {sorted(set(wrong))}"] if wrong else []
    missing = expected.keys() - {record["step"] for record in records}
    if complete and missing:
        found.append(f"steps {sorted(missing)} were never trained")
    return found


def repetition_is_counted(run_dir: Path, events: list[Event], step_s: float) -> list[str]:
    """What was trained twice is no more than what the journal says was lost: after each end of a cycle,
    from where it had come to where the next one began. A node that is gone takes with it what it did since
    it last told: all of it, if it was the only one, else a step that others had not finished."""
    steps = [record["step"] for record in logged(contract.RunPaths(run_dir).stage("train"))]
    repeated = len(steps) - len(set(steps))
    counted, highest = 0, 0
    for event in events:
        if event.type in ("cycle.ended", "attempt.finished", "progress", "checkpoint.committed"):
            highest = max(highest, int(event.data.get("step") or 0))
        elif event.type == "fault.injected" and event.rank is not None:
            highest = max(highest, int(event.data.get("step") or 1) - 1)
        elif event.type == "workload.resumed":
            start = int(event.data["step"])
            counted += max(0, highest - start)
            highest = start
    nodes = {
        (event.attempt, event.data["cycle"]): len(event.data["nodes"])
        for event in events
        if event.type == "cycle.started"
    }
    lost = [
        nodes.get((e.attempt, e.data.get("cycle")), 1) for e in events if e.data.get("kind") == "node_lost"
    ]
    # The batch host went, and with it whoever could have told.
    ended = {event.attempt for event in events if event.type == "attempt.finished"}
    lost += [1 for event in events if event.type == "attempt.started" and event.attempt not in ended]
    untold = sum(1 if count > 1 else round(watching.REPORT_S / step_s) for count in lost)
    return [] if repeated <= counted + untold else [f"{repeated} steps repeated, {counted} counted as lost"]


def cycles_tile(events: list[Event]) -> list[str]:
    """Within an attempt cycles follow each other from 0 on, do not overlap, and lie within it."""
    found = []
    attempts = {event.attempt for event in events if event.type == "attempt.started"}
    for attempt in sorted(attempts, key=str):
        # One writer, so that the order is its own.
        said = sorted(
            (e for e in events if e.attempt == attempt and e.writer.endswith("supervisor")),
            key=lambda e: e.seq,
        )
        words = [
            (e.type, e.data.get("cycle"))
            for e in said
            if e.type in ("attempt.started", "cycle.started", "cycle.ended", "attempt.finished")
        ]
        open_cycle: int | None = None
        for number, (type_, cycle) in enumerate(words):
            if type_ == "attempt.started" and number:
                found.append(f"{attempt}: started twice")
            if type_ == "cycle.started":
                if open_cycle is not None:
                    found.append(f"{attempt}: cycle {cycle} began within {open_cycle}")
                open_cycle = cycle
            if type_ == "cycle.ended":
                if cycle != open_cycle:
                    found.append(f"{attempt}: cycle {cycle} ended, {open_cycle} was under way")
                open_cycle = None
            if type_ == "attempt.finished" and (open_cycle is not None or number != len(words) - 1):
                found.append(f"{attempt}: finished with cycle {open_cycle} open or words after it")
        numbers = [cycle for type_, cycle in words if type_ == "cycle.started"]
        if numbers != list(range(len(numbers))):
            found.append(f"{attempt}: cycles {numbers}")
    return found


def _left(run: str, run_dir: Path) -> Iterator[str]:
    needles = (f"{contract.ENV_RUN}={run}".encode(), os.fsencode(run_dir))
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            words = (entry / "cmdline").read_bytes()
            told = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if state not in "ZX" and (needles[1] in words or needles[0] in told):
            yield f"process {entry.name} ({state}): {words.replace(bytes(1), b' ').decode()[:160]}"


def nothing_is_left(run: str, run_dir: Path, events: list[Event], *, crashed: bool) -> list[str]:
    """No process of the run, and none of its directories in memory (a crashed Slurm node's memory is gone in
    reality; here it lies on this host until the next agent of the node sweeps it)."""
    attempts = {event.attempt.replace("/", "-") for event in events if event.attempt}

    def look() -> list[str]:
        found = list(_left(run, run_dir))
        if not crashed:
            names = [path.name for path in Path("/dev/shm").glob("trainmaster-*")]
            found += [
                f"/dev/shm/{n}" for n in names if any(n.startswith(f"trainmaster-{a}-") for a in attempts)
            ]
        return found

    end = time.monotonic() + _GONE_S
    while (left := look()) and time.monotonic() < end:
        time.sleep(0.3)
    return left


def every_fault_was_met(outcome: dict[str, Any], shrinks: bool) -> list[str]:
    """A rank that is no longer there harms nobody; every other fault comes."""
    missing = [story["kind"] for story in outcome["stories"] if story["injected_at"] is None]
    return [] if shrinks or not missing else [f"never done: {missing}"]


def story(outcome: dict[str, Any], events: list[Event]) -> str:
    """For a person who has to find out what went wrong."""
    lines = [json.dumps(outcome, indent=1)]
    shown = (
        "cycle",
        "attempt.",
        "incident",
        "verdict",
        "decision",
        "fault",
        "node",
        "stage.",
        "workload.resumed",
    )
    for event in events:
        if event.type.startswith(shown):
            lines.append(f"{event.ts:.2f} {event.attempt} {event.type} {json.dumps(dict(event.data))[:300]}")
    return "\n".join(lines)
