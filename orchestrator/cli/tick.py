"""``tick``: reconcile and nothing else, for scrontab or cron."""

from __future__ import annotations

from typing import Annotated

import typer

from .common import HomeOption, JsonOption, emit, errors_shown, home_of, note, say
from .show import report_data, report_lines

EXAMPLE = "Example, in scrontab or crontab: */5 * * * * python -m orchestrator tick --quiet"


def command(
    run: Annotated[list[str] | None, typer.Argument(metavar="RUN", help="Only these runs.")] = None,
    home: HomeOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Also runs marked as finished.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print problems only.")] = False,
    json: JsonOption = False,
) -> None:
    """Observe the scheduler, record what changed, and submit, cancel or stop what follows from it.

    Safe to run at any time, twice at once, and after any crash. Exit code 1 if something could not be
    looked at; the next tick tries again.
    """
    with errors_shown():
        from .. import runs
        from ..session import Session

        session = Session(home_of(home))
        if run:
            chosen = [session.find(text) for text in run]
        else:
            chosen = list(runs.iter_runs(session.home)) if everything else session.active()
        report = session.reconcile(chosen)
        if json:
            emit(report_data(report))
        elif not quiet:
            for line in report_lines(report):
                say(line)
        for problem in report.problems:
            note(f"problem: {problem}")
        if report.problems:
            raise typer.Exit(1)
