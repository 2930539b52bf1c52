"""The composition root inside an allocation: what the job script becomes (``exec python -m …``).

Joins ``launch``, which may not know the scheduler, with this cluster's adapter, opened only when it is
needed (a TERM to explain, links to cancel): most attempts never pay for loading it.
``tests/launch/test_segment.py``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from launch.signals import JobControl
from launch.supervisor import run_segment
from resiliency import contract, durable
from resiliency.errors import TrainmasterError


def _scheduler(run_dir: Path, home: Path) -> JobControl | None:
    """This run's scheduler; None, with a word in the log, where it cannot be had."""
    try:
        from .runs import open_run
        from .schedulers import open_scheduler

        return open_scheduler(open_run(run_dir).record.profile(), home=home)
    except (TrainmasterError, ImportError) as error:
        print(f"trainmaster: no scheduler to ask: {error}", file=sys.stderr, flush=True)
        return None


def _advance(run_dir: Path, stage: str, home: Path) -> None:
    """Where the site lets jobs submit (``advance: job``): queue what follows, as a login command would.

    What cannot be done here is left to the next command on a login node. The ledger is not touched: nodes
    of a cluster write journals only.
    """
    if durable.read_json(contract.RunPaths(run_dir).stage_config(stage)).get("advance") != "job":
        return
    from . import control
    from .home import Home
    from .runs import open_run
    from .schedulers import open_scheduler

    run = open_run(run_dir)
    profile = run.record.profile()
    scheduler = open_scheduler(profile, home=home)
    report = control.reconcile(
        Home.at(home), [run], scheduler_for=lambda _: scheduler, lock_wait_s=10.0, ledger=False
    )
    for one in report.runs:
        for outcome in one.outcomes:
            print(f"trainmaster: submit {outcome.token}: {outcome.word} {outcome.job_id or ''}", flush=True)
        report.problems += one.notes
    for problem in report.problems:
        print(f"trainmaster: {problem}", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.segment",
        description="One link of a stage's chain, inside its allocation. Started by the job script.",
    )
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--stage", required=True)
    parser.add_argument("--link", type=int, required=True)
    parser.add_argument("--home", type=Path, required=True)
    given = parser.parse_args(argv)
    run_dir = given.run_dir.absolute()
    try:
        code = run_segment(
            run_dir,
            given.stage,
            given.link,
            open_control=lambda: _scheduler(run_dir, given.home),
        )
    except TrainmasterError as error:
        print(f"trainmaster: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    try:
        _advance(run_dir, given.stage, given.home)
    except TrainmasterError as error:
        # The attempt's own result stands; a login command does the rest.
        print(f"trainmaster: could not go on from here: {error}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
