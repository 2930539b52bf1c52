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
        return run_segment(
            run_dir,
            given.stage,
            given.link,
            open_control=lambda: _scheduler(run_dir, given.home),
        )
    except TrainmasterError as error:
        print(f"trainmaster: {error}", file=sys.stderr, flush=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
