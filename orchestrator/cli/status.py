"""``status``: how runs go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from .commands import argument, verb
from .common import cell, console, emit, home_of, note, refreshed, say
from .options import home_option, json_option
from .show import clock_time, duration, style, totals

if TYPE_CHECKING:
    from metrics.ledger.queries import RunRow, StageRow

    from ..home import Home
    from ..session import Session


@verb("Example: python -m orchestrator status quickstart --follow")
@argument(
    "run",
    metavar="RUN",
    kind="<str>",
    required=False,
    about="Run id, a prefix, or its directory; none: list runs.",
)
@click.option("--follow", "-f", is_flag=True, help="Show it live until the run is over.")
@click.option("--all", "-a", "everything", is_flag=True, help="List every run, not only the newest 20.")
@click.option(
    "--refresh/--no-refresh",
    default=True,
    show_default=True,
    help="Ask the scheduler first and do what follows from it.",
)
@click.option("--exit-code", is_flag=True, help="Exit 0 complete, 10 stopped or cancelled, 11 not finished.")
@home_option
@json_option
def command(
    run: str | None,
    follow: bool,
    everything: bool,
    refresh: bool,
    exit_code: bool,
    home: Path | None,
    json: bool,
) -> None:
    """Show runs, or one run with its stages, attempts, causes and figures.

    Unfinished runs are reconciled first, as `tick` does, unless --no-refresh.
    """
    where = home_of(home)
    if run is None and not follow:
        if exit_code:
            from resiliency.errors import TrainmasterError

            raise TrainmasterError(
                "--exit-code needs a RUN", hint="python -m orchestrator status RUN --exit-code"
            )
        problems = refreshed(where) if refresh else []
        _list(where, everything=everything, json=json)
        _notes(problems)
        return
    from ..session import Session

    session = Session(where)
    found = session.find(run)
    if follow:
        from .follow import follow as follow_run

        raise Exit(follow_run(session, found, quiet=json))
    word = _one(session, found, refresh=refresh, json=json)
    if exit_code:
        raise Exit({"complete": 0, "stopped": 10, "cancelled": 10}.get(word, 11))


def _notes(problems: list[str]) -> None:
    for problem in problems:
        note(f"problem: {problem}")


def _one(session: Session, found: Any, *, refresh: bool, json: bool) -> str:
    from ..control import read_state
    from .show import run_data

    problems: list[str] = []
    if refresh and found.paths.root in session.home.active_run_dirs():
        report = session.reconcile([found], lock_wait_s=2.0)
        problems = report.problems + [n for r in report.runs for n in r.notes]
    state = read_state(found)
    if json:
        emit({**run_data(state), "problems": problems})
    else:
        from .follow import results
        from .table import run_table

        console().print(run_table(state, totals=totals(found)))
        for line in results(found, state):
            say(line)
        _notes(problems)
    return state.status


def _list(home: Home, *, everything: bool, json: bool) -> None:
    rows: list[RunRow] = []
    stages: dict[str, list[StageRow]] = {}
    if home.ledger.exists():
        from metrics.ledger import Ledger
        from metrics.ledger.queries import list_runs, stages_of

        with Ledger.open(home.ledger, readonly=True) as ledger:
            rows = list_runs(ledger, limit=None if everything else 20)
            stages = stages_of(ledger, [row.run_id for row in rows])
    if json:
        emit({"runs": [{**vars(row), "stages": [vars(s) for s in stages[row.run_id]]} for row in rows]})
        return
    if not rows:
        say("no runs yet; start with: python -m orchestrator init")
        return
    from rich.table import Table

    table = Table()
    for heading in ("run", "status", "stages", "cluster", "created", "took", "now"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        own = stages[row.run_id]
        took = row.finished_at - row.created_at if row.finished_at and row.created_at else None
        table.add_row(
            row.run_id,
            f"[{style(row.status)}]{row.status}[/]" if style(row.status) else row.status,
            f"{sum(s.status == 'complete' for s in own)}/{len(own)}",
            row.cluster or "-",
            clock_time(row.created_at),
            duration(took),
            cell(_now(own)),
        )
    console().print(table)


def _now(stages: list[Any]) -> str:
    """What a run is at: the stage under way with its step, or why it stopped."""
    for stage in stages:
        if stage.status in ("running", "queued", "uncertain", "held"):
            step = f" step {stage.step}" if stage.step is not None else ""
            total = f"/{stage.total_steps}" if step and stage.total_steps else ""
            return f"{stage.stage} {stage.status}{step}{total}"
    for stage in stages:
        if stage.status in ("stopped", "cancelled") and stage.reason:
            return f"{stage.stage}: {stage.reason}"
    return ""
