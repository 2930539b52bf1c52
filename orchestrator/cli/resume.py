"""``resume``: go on with a run that stopped, was held, cancelled, or whose submission was interrupted."""

from __future__ import annotations

from typing import Annotated

import typer

from .common import HomeOption, JsonOption, RunArgument, emit, errors_shown, home_of, note, say
from .show import report_data, report_lines

EXAMPLE = "Example: python -m orchestrator resume quickstart-20261130-101500-a3f9 --stage pretrain"


def command(
    run: RunArgument = None,
    stage: Annotated[
        list[str] | None,
        typer.Option("--stage", "-s", help="Only this stage and what needs it (repeatable)."),
    ] = None,
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Go on: stages that stopped, were held or cancelled get fresh budgets and new links.

    Complete stages are not repeated; training goes on from its newest good checkpoint.
    """
    with errors_shown():
        from .. import lifecycle
        from ..session import Session

        session = Session(home_of(home))
        found = session.find(run)
        stages = lifecycle.resume(session, found, stage or [])
        report = session.reconcile([found])
        if json:
            emit({"run": found.id, "resumed": stages, **report_data(report)})
        else:
            say(f"{found.id}: resumed {', '.join(stages) if stages else 'nothing (no stage was stopped)'}")
            for line in list(report_lines(report))[1:]:
                say(line)
        for problem in report.problems:
            note(f"problem: {problem}")
