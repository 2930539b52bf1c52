"""Short runs through random faults on a real Slurm: crashed nodes, preemption, a frozen controller …"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.chaos import invariants
from tests.chaos.schedules import SLURM, STEP_S, STEPS, make
from tests.workloads.reducer import expected

from .conftest import SlurmCluster
from .harness import SlurmPerson, environment

COUNT = max(1, int(os.environ.get("TRAINMASTER_CHAOS", "20")) // 5)
#: From 48 on there are many kinds in few days.
FIRST = int(os.environ.get("TRAINMASTER_CHAOS_SEED", "48"))


def left_in_queue(cluster: SlurmCluster, run: str) -> list[str]:
    """Jobs of the run that are not gone in time: one on a crashed node completes once it is back."""
    end = time.monotonic() + 90
    while True:
        queue = cluster.run_as("root", ["squeue", "-h", "-o", "%j %T"]).stdout.splitlines()
        left = [line for line in queue if line.startswith(run)]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_run_comes_through_a_bad_day_on_slurm(
    slurm_cluster: SlurmCluster, slurm_env: dict[str, str], slurm_workdir: Path, seed: int
) -> None:
    day = make(seed, SLURM)
    person = SlurmPerson(slurm_workdir, environment(slurm_env))
    path = person.write(day.experiment())
    wanted = [word for fault in day.faults for word in ("--fault", fault)]
    done = person.run(
        "drill", str(path), "--cluster", "alpha", "--json", "--seed", str(seed), "--timeout", "280", *wanted,
        check=False, timeout_s=400,
    )  # fmt: skip
    assert done.returncode in (0, 1) and done.stdout, f"{day.text}\n{done.stdout}\n{done.stderr}"
    outcome = json.loads(done.stdout)
    run_dir = slurm_workdir / "runs" / outcome["run"]
    events = invariants.events_of(run_dir)
    crashed = any("node-crash" in fault for fault in day.faults)
    complaints = [
        *invariants.ended_for_a_reason(outcome, day.fatal, events),
        *invariants.losses_are_right(run_dir, expected(STEPS), outcome["status"] == "complete"),
        *invariants.repetition_is_counted(run_dir, events, STEP_S),
        *invariants.cycles_tile(events),
        *invariants.nothing_is_left(outcome["run"], run_dir, events, crashed=crashed),
    ]
    if left := left_in_queue(slurm_cluster, outcome["run"]):
        complaints.append(f"jobs left: {left}")
    assert not complaints, "\n".join(
        [day.text, *complaints, invariants.story(outcome, events), done.stderr[-3000:]]
    )
