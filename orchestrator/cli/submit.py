"""``submit``: from an experiment file to queued jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.exceptions import Exit

from .commands import verb
from .common import emit, home_of, note, say
from .options import (
    cluster_option,
    experiment_argument,
    home_option,
    json_option,
    offline_option,
    overrides_argument,
)
from .plan import plan_data, show_plan
from .show import report_data

#: Exit code for each way the first links can turn out; see docs/cli.md.
_EXIT = {"accepted": 0, "deferred": 0, "unreachable": 4, "uncertain": 4, "rejected": 4}


@verb(
    "Example: python -m orchestrator submit examples/quickstart.yaml --cluster local --wait "
    "stages.pretrain.train.lr=1e-3"
)
@experiment_argument
@overrides_argument
@cluster_option
@home_option
@click.option("--dry-run", is_flag=True, help="Check and show the plan; submit nothing.")
@click.option("--wait", "-w", is_flag=True, help="Follow the run until it is over; Ctrl-C leaves it running.")
@click.option("--shadow", is_flag=True, help="Only record what would be restarted, swapped or excluded.")
@click.option("--new", is_flag=True, help="Start another run even if this experiment is under way.")
@offline_option
@json_option
def command(
    experiment: Path,
    overrides: tuple[str, ...],
    cluster: str | None,
    home: Path | None,
    dry_run: bool,
    wait: bool,
    shadow: bool,
    new: bool,
    offline: bool,
    json: bool,
) -> None:
    """Submit an experiment: check it, make a run, queue the first links of every stage.

    Doing it again is safe: the same experiment that is under way is brought forward, not submitted twice.
    """
    from .. import prepare
    from ..submit import submit

    ready = prepare.prepare(
        home_of(home), experiment, list(overrides), cluster=cluster, ask=not offline, shadow=shadow
    )
    for warning in ready.warnings:
        note(f"warning: {warning}")
    if dry_run:
        ready.raise_faults()
        data = plan_data(ready, scripts=json)
        emit({"dry_run": True, **data}) if json else show_plan(data)
        return
    from ..session import Session

    session = Session(home_of(home))
    done = submit(session, ready, new=new, on_outcome=_unsaid if json else _said)
    run = done.run
    result: dict[str, Any] = {
        "run": run.id,
        "run_dir": str(run.paths.root),
        "existing": done.existing,
    }
    if not json:
        if done.existing:
            say(f"{run.id} is this experiment and not finished: brought forward (--new starts another)")
        else:
            say(f"submitted {run.id}")
        say(f"  files  {run.paths.root}")
        if not wait:
            say(f"  next   python -m orchestrator status {run.id}")
    for problem in done.report.problems:
        note(f"problem: {problem}")
    for one in done.report.runs:
        for text in one.notes:
            note(f"note: {text}")
    if wait:
        from .follow import follow

        code = follow(session, run, quiet=json)
        if json:
            from ..control import read_state
            from .show import run_data

            emit({**result, **run_data(read_state(run))})
        raise Exit(code)
    if json:
        emit({**result, **report_data(done.report)})
    if done.worst in ("uncertain", "unreachable"):
        note(f"next: python -m orchestrator tick {run.id}   (looks it up; submits only if there is none)")
    raise Exit(_EXIT[done.worst])


def _said(outcome: Any) -> None:
    if outcome.word == "accepted":
        say(f"  job {outcome.job_id:>8}  {outcome.token}")


def _unsaid(outcome: Any) -> None:
    """With --json the outcomes are in the document."""
