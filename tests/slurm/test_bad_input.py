"""What a person is told when an experiment does not fit the cluster, or the cluster does not answer."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.slurm.harness import SlurmPerson, attempts, counter, environment


@pytest.fixture
def person(slurm_cluster, slurm_env: dict[str, str], slurm_workdir: Path) -> SlurmPerson:
    return SlurmPerson(slurm_workdir, environment(slurm_env))


@pytest.mark.parametrize(
    ("resources", "says"),
    [
        ({"nodes": 99}, ["nodes", "99", "8"]),
        ({"partition": "lowe"}, ["partition", "lowe", "low"]),
        ({"account": "nobody-pays"}, ["account", "nobody-pays", "lab"]),
        ({"partition": "short", "time": "01:00:00"}, ["time", "short", "5"]),
        ({"gpus_per_node": 64}, ["gpus_per_node", "64", "8"]),
    ],
    ids=["more nodes than there are", "no such partition", "no such account", "over the limit", "GPUs"],
)
def test_what_the_cluster_cannot_do_is_refused_before_anything_is_submitted(
    person: SlurmPerson, resources: dict, says: list[str]
) -> None:
    experiment = counter()
    experiment["stages"]["count"]["resources"].update(resources)
    path = person.write(experiment)
    for verb in ("validate", "submit"):
        done = person.run(verb, str(path), "--cluster", "alpha", check=False)
        assert done.returncode == 3, done.stdout + done.stderr
        assert all(word in done.stderr for word in says), done.stderr
        assert "next:" in done.stderr
    assert not (person.workdir / "runs").exists() or not list((person.workdir / "runs").iterdir())


def test_what_only_the_scheduler_knows_stops_the_stage_with_its_words(person: SlurmPerson) -> None:
    experiment = counter()
    experiment["stages"]["count"]["resources"]["partition"] = "lowe"
    path = person.write(experiment)
    done = person.run("submit", str(path), "--cluster", "alpha", "--offline", "--json", check=False)
    assert done.returncode == 4
    run = json.loads(done.stdout)["run"]
    seen = person.status(run)
    assert seen["status"] == "stopped" and seen["stages"][0]["rule"] == "rejected-by-scheduler"
    assert "partition" in seen["stages"][0]["reason"]


def test_a_controller_that_is_down_is_named_and_the_run_goes_on_when_it_is_back(
    person: SlurmPerson, slurm_cluster
) -> None:
    path = person.write(counter(steps=5))
    slurm_cluster.kill_controller()
    offline = person.run("submit", str(path), "--cluster", "alpha", "--offline", "--json", check=False)
    assert offline.returncode == 4
    assert "slurmctld" in offline.stderr and "tick" in offline.stderr
    doctor = person.run("doctor", "--cluster", "alpha", check=False)
    assert doctor.returncode == 1 and "FAIL" in doctor.stdout
    slurm_cluster.start_controller()
    run = json.loads(offline.stdout)["run"]
    assert person.finish(run)["status"] == "complete"
    assert len(set(person.jobs_of(run))) == len(person.jobs_of(run))


@pytest.mark.slow
def test_a_login_node_without_sacct_and_scontrol_will_do(
    slurm_cluster, slurm_env: dict[str, str], slurm_workdir: Path
) -> None:
    tools = slurm_workdir / "bin"
    tools.mkdir()
    for name in ("sbatch", "squeue", "scancel", "srun", "sinfo"):
        (tools / name).symlink_to(shutil.which(name) or "")
    for name in ("bash", "sh", "env", "cat", "sleep", "id", "ls"):
        (tools / name).symlink_to(shutil.which(name) or "")
    env = {**environment(slurm_env), "PATH": str(tools)}
    person = SlurmPerson(slurm_workdir, env)
    run = person.submit(counter(steps=10))
    done = person.finish(run)
    assert done["status"] == "complete", person.story(run)
    assert attempts(done)[0]["exit_code"] == 0
    doctor = person.run("doctor", "--cluster", "alpha", check=False).stdout
    assert "sacct does not answer" in doctor


@pytest.mark.slow
def test_a_limit_on_queued_jobs_is_waited_for_and_said(
    slurm_cluster, slurm_env: dict[str, str], slurm_workdir: Path
) -> None:
    """The QOS `capped` of the dev cluster takes three jobs of a user at once."""
    person = SlurmPerson(slurm_workdir, environment(slurm_env), qos="capped")
    experiment = counter(steps=10)
    count = experiment["stages"].pop("count")
    for number in range(4):
        experiment["stages"][f"s{number}"] = count
    done = person.run("submit", str(person.write(experiment)), "--cluster", "alpha", "--json")
    run = json.loads(done.stdout)["run"]
    assert "waiting for room in the queue" in done.stderr
    assert person.finish(run, timeout_s=240)["status"] == "complete"


def test_an_unwritable_log_directory_on_the_cluster_is_a_launch_failure(person: SlurmPerson) -> None:
    run = person.submit(counter(steps=500, args=("--step-s", "0.2")))
    person.until(run, lambda s: attempts(s) and attempts(s)[0]["state"] == "RUNNING")
    run_dir = Path(person.status(run)["run_dir"])
    os.rename(run_dir / "stages" / "count" / "logs", run_dir / "stages" / "count" / "gone")
    person.run("cancel", run)
    assert person.finish(run)["status"] == "cancelled"
    time.sleep(0.1)
    assert person.run("logs", run, check=False).returncode == 7
