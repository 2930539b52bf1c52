"""A run as a table."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from resiliency.state import Attempt, RunState, Stage

from .common import cell
from .show import duration, nodes_of, number, restarts_of, spares_of, style

if TYPE_CHECKING:
    from rich.table import Table


def _age(attempt: Attempt) -> float | None:
    record = attempt.record
    start = (record.started_at if record else None) or attempt.started_ts
    if start is None:
        return None
    end = (record.ended_at if record else None) or attempt.finished_ts
    return (end or time.time()) - start


def _why(stage: Stage, attempt: Attempt | None) -> str:
    stop = stage.stopped or stage.held
    if attempt is None:
        return str(stop.get("reason", "")) if stop else ""
    if attempt.cancelled_by_us:
        return "not needed any more"
    if attempt.ended:
        verdict = attempt.verdict()
        return "" if verdict.category == "healthy" else f"{verdict.category}: {verdict.reason}"
    record = attempt.record
    return record.reason if record and record.state == "PENDING" and record.reason != "None" else ""


def run_table(state: RunState, *, totals: Mapping[str, int] | None = None) -> Table:
    """Stages with their attempts; ``totals``: steps a stage is to reach."""
    from rich.table import Table

    created = state.created or {}
    table = Table(
        title=f"{state.run}  [{style(state.status)}]{state.status}[/]  cluster {created.get('cluster', '?')}",
        title_justify="left",
    )
    for heading in (
        "stage",
        "status",
        "link",
        "job",
        "state",
        "nodes",
        "time",
        "step",
        "loss",
        "why",
    ):
        table.add_column(heading, overflow="fold")
    for stage in state.stages.values():
        word = f"[{style(stage.status)}]{stage.status}[/]" if style(stage.status) else stage.status
        rows = 0
        seen = set()
        for attempt in stage.chain():
            seen.add(attempt.job_id)
            total = (totals or {}).get(stage.name)
            step = "-" if attempt.step is None else str(attempt.step)
            if attempt.step is not None and total:
                step += f"/{total}"
            name = f"{attempt.link}" + (f".{attempt.restart_count}" if attempt.restart_count else "")
            nodes = nodes_of(attempt)
            if spares := spares_of(attempt):
                nodes += f" ({spares} spare)"
            table.add_row(
                stage.name if rows == 0 else "",
                word if rows == 0 else "",
                name,
                attempt.job_id,
                attempt.state,
                cell(nodes or "-"),
                duration(_age(attempt)),
                step,
                number(attempt.loss),
                cell("; ".join(text for text in (_why(stage, attempt), restarts_of(attempt)) if text)),
            )
            rows += 1
        for link in stage.links():
            if link.job_id in seen or (link.outcome == "absent" and rows):
                continue
            table.add_row(
                stage.name if rows == 0 else "",
                word if rows == 0 else "",
                str(link.link),
                link.job_id or "-",
                link.outcome,
                "-",
                "-",
                "-",
                "-",
                cell(link.reason),
            )
            rows += 1
        if rows == 0:
            table.add_row(stage.name, word, "-", "-", "-", "-", "-", "-", "-", cell(_why(stage, None)))
        elif stage.stopped and stage.completed is None:
            table.add_row("", "", "", "", "", "", "", "", "", f"[red]{cell(_why(stage, None))}[/]")
    return table
