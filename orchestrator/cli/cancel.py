"""``cancel``: stop a run or some of its stages."""

from __future__ import annotations

from typing import Annotated

import typer

from .common import HomeOption, JsonOption, RunArgument, emit, errors_shown, home_of, note, say
from .show import report_data, report_lines

EXAMPLE = "Example: python -m orchestrator cancel quickstart-20261130-101500-a3f9 --stage eval"


def command(
    run: RunArgument = None,
    stage: Annotated[
        list[str] | None, typer.Option("--stage", "-s", help="Only this stage (repeatable).")
    ] = None,
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Cancel a run: queued and running jobs end, nothing further is submitted.

    Running jobs get the scheduler's TERM and may save a checkpoint. `resume` goes on from it.
    """
    with errors_shown():
        from .. import lifecycle
        from ..session import Session

        session = Session(home_of(home))
        found = session.find(run)
        stages = lifecycle.cancel(session, found, stage or [])
        report = session.reconcile([found])
        if json:
            emit({"run": found.id, "cancelled": stages, **report_data(report)})
        else:
            say(f"{found.id}: cancelled {', '.join(stages) if stages else 'nothing (it is over already)'}")
            for line in list(report_lines(report))[1:]:
                say(line)
        for problem in report.problems:
            note(f"problem: {problem}")
