"""Following a run on the terminal: ``submit --wait`` and ``status --follow``.

The run does not depend on it: Ctrl-C ends the display only.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from resiliency.state import RunState

from .. import control, runs
from ..session import Session
from .common import console, note, say
from .show import number, totals
from .table import run_table

if TYPE_CHECKING:
    from rich.console import Console

#: Seconds between looks: the local scheduler is free to ask, a shared one is spared more and more.
_LOCAL_S = 1.0
_SHARED_S = (2.0, 3.0, 5.0, 8.0, 12.0, 15.0)
#: Looks after the run is over, for the scheduler's own last word on its jobs: a job's supervisor says
#: "complete" a moment before its job ends. Accounting may lag, so there is an end to it.
_LAST_LOOKS = 8


def follow(session: Session, run: runs.Run, *, quiet: bool = False) -> int:
    """Show the run until it is over. Returns 0 complete, 10 stopped or cancelled, 130 interrupted."""
    out = console()
    try:
        if quiet:
            state = _loop(session, run, lambda state, problems: None)
        elif out.is_terminal:
            state = _live(session, run, out)
        else:
            state = _lines(session, run)
    except KeyboardInterrupt:
        note(f"\nno longer following; {run.id} goes on")
        note(f"  python -m orchestrator status {run.id} --follow   to follow again")
        note(f"  python -m orchestrator cancel {run.id}            to stop it")
        return 130
    if not quiet and not out.is_terminal:
        out.print(run_table(state))
    if not quiet:
        for line in results(run, state):
            say(line)
    return 0 if state.status == "complete" else 10


def _loop(session: Session, run: runs.Run, show) -> RunState:  # type: ignore[no-untyped-def]
    pause = 0
    last = None
    late = 0
    while True:
        report = session.reconcile([run], lock_wait_s=5.0)
        state = next((r.state for r in report.runs if r.state), None) or control.read_state(run)
        show(state, [*report.problems, *(n for r in report.runs for n in r.notes)])
        if state.finished:
            late += 1
            if late > _LAST_LOOKS or run.paths.root not in session.home.active_run_dirs():
                return state
        if state.finished or run.plan.profile.scheduler == "local":
            time.sleep(_LOCAL_S)
            continue
        fingerprint = [(s.status, s.last_step()) for s in state.stages.values()]
        pause = 0 if fingerprint != last else min(pause + 1, len(_SHARED_S) - 1)
        last = fingerprint
        time.sleep(_SHARED_S[pause])


def _live(session: Session, run: runs.Run, out: Console) -> RunState:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    with Live(console=out, refresh_per_second=4, transient=False) as live:

        def show(state: RunState, problems: list[str]) -> None:
            table = run_table(state, totals=totals(run))
            live.update(Group(table, *(Text(f"note: {p}", style="yellow") for p in problems)))

        return _loop(session, run, show)


def _lines(session: Session, run: runs.Run) -> RunState:
    """One line per change: for logs and pipes."""
    shown: dict[str, str] = {}
    steps = totals(run)

    def show(state: RunState, problems: list[str]) -> None:
        for stage in state.stages.values():
            line = stage.status
            step = stage.last_step()
            if step is not None:
                line += f" step {step}" + (f"/{steps[stage.name]}" if steps.get(stage.name) else "")
                losses = [a.loss for a in stage.chain() if a.loss is not None]
                if losses:
                    line += f" loss {number(losses[-1])}"
            reason = (stage.stopped or stage.held or {}).get("reason")
            if reason:
                line += f": {reason}"
            if shown.get(stage.name) != line:
                shown[stage.name] = line
                say(f"{time.strftime('%H:%M:%S')}  {stage.name:<12} {line}")
        for problem in problems:
            if shown.get(problem) is None:
                shown[problem] = ""
                note(f"note: {problem}")

    return _loop(session, run, show)


def figures(result: Mapping[str, Any]) -> list[str]:
    """Measured figures, a line each: ``bits per byte: unigram 3.704, model 1.944``."""

    def shown(value: object) -> str:
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    lines = []
    for name, value in dict(result.get("metrics") or {}).items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{key} {shown(part)}" for key, part in value.items())
        lines.append(f"{name.replace('_', ' ')}: {shown(value)}")
    return lines


def results(run: runs.Run, state: RunState) -> list[str]:
    """What a person wants to know at the end: measured figures, why it stopped, where the files are."""
    lines: list[str] = []
    for stage in state.stages.values():
        lines += [f"{stage.name}: {text}" for text in figures(stage.results.get("eval.result", {}))]
        stop = stage.stopped or stage.held
        if stop and stage.completed is None:
            lines.append(f"{stage.name} {stage.status}: {stop.get('reason', '')} [{stop.get('rule', '')}]")
    lines.append(f"files: {run.paths.root}")
    if state.status in ("stopped", "held"):
        lines.append(
            f"next:  python -m orchestrator logs {run.id}   then: python -m orchestrator resume {run.id}"
        )
    return lines
