"""``tick``: reconcile and nothing else, for scrontab or cron."""

from __future__ import annotations

from pathlib import Path

import click
from click.exceptions import Exit

from .commands import argument, verb
from .common import emit, home_of, note, say
from .options import home_option, json_option
from .show import report_data, report_lines


@verb("Example, in scrontab or crontab: */5 * * * * python -m orchestrator tick --quiet")
@argument("run", metavar="RUN", kind="<list[str]>", nargs=-1, about="Only these runs.")
@home_option
@click.option("--all", "everything", is_flag=True, help="Also runs marked as finished.")
@click.option("--quiet", "-q", is_flag=True, help="Print problems only.")
@json_option
def command(run: tuple[str, ...], home: Path | None, everything: bool, quiet: bool, json: bool) -> None:
    """Observe the scheduler, record what changed, and submit, cancel or stop what follows from it.

    Safe to run at any time, twice at once, and after any crash. Exit code 1 if something could not be
    looked at; the next tick tries again.
    """
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
        raise Exit(1)
