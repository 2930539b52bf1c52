"""``cancel``: stop a run or some of its stages."""

from __future__ import annotations

from pathlib import Path

import click

from .commands import verb
from .common import home_of
from .options import home_option, json_option, run_argument


@verb("Example: python -m orchestrator cancel quickstart-20261130-101500-a3f9 --stage eval")
@run_argument
@click.option("--stage", "-s", metavar="<list[str]>", multiple=True, help="Only this stage (repeatable).")
@home_option
@json_option
def command(run: str | None, stage: tuple[str, ...], home: Path | None, json: bool) -> None:
    """Cancel a run: queued and running jobs end, nothing further is submitted.

    Running jobs get the scheduler's TERM and may save a checkpoint. `resume` goes on from it.
    """
    from .. import lifecycle
    from ..session import Session
    from .outcome import tell

    session = Session(home_of(home))
    found = session.find(run)
    stages = lifecycle.cancel(session, found, list(stage))
    report = session.reconcile([found])
    tell(found.id, "cancelled", stages, "it is over already", report, json=json)
