"""Short runs through random faults, real processes on the local scheduler; afterwards all must be in order.

TRAINMASTER_CHAOS says how many (``make chaos N=200``), TRAINMASTER_CHAOS_SEED with which they begin: a seed
that failed is run again by ``make chaos N=1 SEED=17``. Runs of models.pretrain are in test_bad_training.py, a
real Slurm's in tests/slurm/test_bad_days.py.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.person import Person
from tests.workloads.reducer import expected

from . import invariants
from .schedules import STEP_S, STEPS, make

COUNT = int(os.environ.get("TRAINMASTER_CHAOS", "20"))
FIRST = int(os.environ.get("TRAINMASTER_CHAOS_SEED", "1"))
LOSSES = expected(STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_run_comes_through_a_bad_day(tmp_path: Path, seed: int) -> None:
    day = make(seed)
    # What lies in memory is named after the cluster and the job: runs side by side need names of their own.
    here = f"day{seed}"
    person = Person(tmp_path, dict(os.environ), here, **{here: {"scheduler": "local"}})
    path = person.write(day.experiment())
    wanted = [word for fault in day.faults for word in ("--fault", fault)]
    done = person.run(
        "drill", str(path), "--cluster", here, "--json", "--seed", str(seed), "--timeout", "150", *wanted,
        check=False, timeout_s=300,
    )  # fmt: skip
    assert done.returncode in (0, 1) and done.stdout, f"{day.text}\n{done.stdout}\n{done.stderr}"
    outcome = json.loads(done.stdout)
    run_dir = person.home / "runs" / outcome["run"]
    events = invariants.events_of(run_dir)
    complaints = [
        *invariants.ended_for_a_reason(outcome, day.fatal, events),
        *invariants.losses_are_right(run_dir, LOSSES, outcome["status"] == "complete"),
        *invariants.repetition_is_counted(run_dir, events, STEP_S),
        *invariants.cycles_tile(events),
        *invariants.every_fault_was_met(outcome, day.shrinks),
        *invariants.nothing_is_left(outcome["run"], run_dir, events, crashed=False),
    ]
    checked = person.run("ledger", "check", check=False)
    if checked.returncode:
        complaints.append(f"ledger: {checked.stdout}{checked.stderr}")
    assert not complaints, "\n".join(
        [day.text, *complaints, invariants.story(outcome, events), done.stderr[-3000:]]
    )
