"""``resume``: go on with a run that stopped, was held, cancelled, or whose submission was interrupted."""

from __future__ import annotations

from pathlib import Path

import click

from .commands import verb
from .common import home_of
from .options import home_option, json_option, run_argument


@verb("Example: python -m orchestrator resume quickstart-20261130-101500-a3f9 --stage pretrain")
@run_argument
@click.option(
    "--stage",
    "-s",
    metavar="<list[str]>",
    multiple=True,
    help="Only this stage and what needs it (repeatable).",
)
@home_option
@json_option
def command(run: str | None, stage: tuple[str, ...], home: Path | None, json: bool) -> None:
    """Go on: stages that stopped, were held or cancelled get fresh budgets and new links.

    Complete stages are not repeated; training goes on from its newest good checkpoint.
    """
    from .. import lifecycle
    from ..session import Session
    from .outcome import tell

    session = Session(home_of(home))
    found = session.find(run)
    stages = lifecycle.resume(session, found, list(stage))
    report = session.reconcile([found])
    tell(found.id, "resumed", stages, "no stage was stopped", report, json=json)
