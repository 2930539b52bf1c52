"""``triage JOBID`` of jobs that nobody submitted through us, on a real Slurm."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.harness import SlurmPerson, environment


@pytest.fixture
def person(slurm_cluster, slurm_env: dict[str, str], slurm_workdir: Path) -> SlurmPerson:
    return SlurmPerson(slurm_workdir, environment(slurm_env))


def ended(person: SlurmPerson, folder: Path, script: str, *options: str) -> str:
    """The id of a job of the script, once accounting knows its end."""
    argv = [
        "sbatch", "--parsable", "-J", "foreign", "-p", "low", "-N1", "-n1", "--mem=100M", "-t", "1",
        f"--output={folder}/%j.out", f"--chdir={folder}", *options,
    ]  # fmt: skip
    text = f"#!/bin/bash\n{script}\n"
    job = subprocess.run(argv, env=person.env, input=text, capture_output=True, text=True, check=True)
    number = job.stdout.strip().partition(";")[0]
    until = time.monotonic() + 60
    while time.monotonic() < until:
        ask = ["sacct", "-n", "-P", "-X", "-j", number, "-o", "State,End"]
        said = subprocess.run(ask, env=person.env, capture_output=True, text=True, check=True).stdout
        if said and "PENDING" not in said and "RUNNING" not in said and "Unknown" not in said:
            return number
        time.sleep(0.3)
    raise AssertionError(f"job {number} did not end: {said}")


def judged(person: SlurmPerson, job: str) -> dict[str, Any]:
    return dict(json.loads(person.run("triage", job, "--json").stdout))


@pytest.mark.slurm
def test_a_foreign_job_is_judged_by_its_log_and_by_what_slurm_knows(
    person: SlurmPerson, slurm_workdir: Path
) -> None:
    folder = slurm_workdir / "foreign"
    folder.mkdir(exist_ok=True)
    raised = ended(
        person, folder, 'python3 -c \'raise OSError(28, "No space left on device", "/scratch/ckpt")\''
    )
    found = judged(person, raised)
    assert (found["category"], found["action"]) == ("storage_full", "hold"), found
    assert found["evidence"][0]["file"].endswith(f"{raised}.out")
    assert "No space left on device" in found["evidence"][0]["text"]

    # Its output is gone: Slurm's word is all there is, and enough.
    cancelled = ended(person, folder, "scancel $SLURM_JOB_ID; sleep 30", "--output=/dev/null")
    assert judged(person, cancelled)["category"] == "user_cancelled"

    well = ended(person, folder, "echo step 10 loss 0.5; echo done")
    found = judged(person, well)
    assert (found["category"], found["action"]) == ("healthy", "none"), found


@pytest.mark.slurm
def test_a_job_that_slurm_does_not_know_is_said_so(person: SlurmPerson) -> None:
    done = person.run("triage", "99999999", check=False)
    assert done.returncode == 7 and "neither a run of ours nor a job that Slurm knows" in done.stderr
