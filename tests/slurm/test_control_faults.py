"""Exactly once on a real Slurm: a frozen controller, no accounting, another cluster, a killed submitter."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.slurm.harness import SlurmPerson as Person
from tests.slurm.harness import attempts, counter, environment

DEV_CLUSTER = Path(__file__).resolve().parents[2] / "scripts/dev-cluster"


@pytest.fixture
def person(slurm_cluster, slurm_env: dict[str, str], slurm_workdir: Path) -> Person:
    return Person(slurm_workdir, environment(slurm_env))


@pytest.mark.slow
def test_a_controller_frozen_during_submit_makes_one_job_not_two(person: Person, slurm_cluster) -> None:
    path = person.write(counter("frozen", steps=10))
    slurm_cluster.freeze()
    done = person.run("submit", str(path), "--cluster", "alpha", "--offline", "--json", check=False)
    assert done.returncode == 4, done.stderr  # the answer was lost, and it says so
    run = json.loads(done.stdout)["run"]
    assert "tick" in done.stderr
    thaw = threading.Timer(1.0, slurm_cluster.thaw)
    thaw.start()
    finished = person.finish(run, timeout_s=120)
    thaw.join()
    assert finished["status"] == "complete"
    assert max(Counter(person.jobs_of(run)).values()) == 1


@pytest.mark.slow
def test_a_controller_frozen_in_mid_sbatch_is_asked_again_and_its_job_found(
    slurm_cluster, slurm_env: dict[str, str], slurm_workdir: Path
) -> None:
    """The answer is lost, and the job was accepted: it must be found, not submitted again."""
    tools = slurm_workdir / "bin"
    tools.mkdir()
    freeze = [sys.executable, str(DEV_CLUSTER), "freeze-controller", "--dir", str(slurm_cluster.state_dir)]
    wrapper = tools / "sbatch"
    wrapper.write_text(f'#!/bin/bash\n{shlex.join(freeze)} >/dev/null\nexec {shutil.which("sbatch")} "$@"\n')
    wrapper.chmod(0o755)
    env = environment(slurm_env)
    person = Person(slurm_workdir, {**env, "PATH": f"{tools}:{env['PATH']}"})
    path = person.write(counter("midway", steps=10))
    done = person.run("submit", str(path), "--cluster", "alpha", "--offline", "--json", check=False)
    assert done.returncode == 4, done.stderr
    outcome = json.loads(done.stdout)["runs"][0]["submissions"][0]
    assert outcome["word"] == "uncertain" and "tick" in done.stderr
    # Looked at while it is frozen: nothing may be concluded, and nothing is submitted.
    assert "accepted" not in person.run("tick", check=False).stdout
    slurm_cluster.thaw()
    wrapper.unlink()
    run = json.loads(done.stdout)["run"]
    finished = person.finish(run, timeout_s=120)
    assert finished["status"] == "complete", person.story(run)
    assert max(Counter(person.jobs_of(run)).values()) == 1
    journal = "".join(f.read_text() for f in (Path(finished["run_dir"]) / "journal").glob("login-*"))
    assert '"via":"lookup"' in journal


@pytest.mark.slow
def test_a_run_completes_while_accounting_is_down_and_its_history_is_whole(
    person: Person, slurm_cluster
) -> None:
    slurm_cluster.stop_accounting()
    run = person.submit(counter("noacct", steps=20))
    done = person.finish(run)
    assert done["status"] == "complete"
    assert attempts(done)[0]["exit_code"] == 0
    slurm_cluster.start_accounting()
    assert person.status(run)["status"] == "complete"
    assert (
        "0 problems" in person.run("ledger", "check").stdout or person.run("ledger", "check").returncode == 0
    )


def test_a_submit_to_another_cluster_of_the_same_accounting(person: Person, slurm_workdir: Path) -> None:
    person.profiles(
        {
            "alpha": {  # the name the harness submits to; the jobs go to beta
                "scheduler": "slurm",
                "cluster": "beta",
                "partition": "low",
                "runs_dir": str(slurm_workdir / "runs"),
                "settle_s": 3,
                "signal_early_s": 15,
            }
        }
    )
    run = person.submit(counter("multi", steps=10))
    done = person.finish(run)
    assert done["status"] == "complete"
    assert attempts(done)[0]["attempt"].startswith("beta/")
    assert attempts(done)[0]["nodes"].startswith("b")


@pytest.mark.slow
def test_twenty_submitters_killed_at_twenty_points_leave_one_job_a_link(
    slurm_cluster, slurm_env: dict[str, str], slurm_workdir: Path
) -> None:
    person = Person(slurm_workdir, environment(slurm_env), settle_s=1)
    killed = 0
    for seed in range(1, 21):
        path = person.write(counter(f"crash{seed}", steps=60, args=("--step-s", "0.1")))
        argv = ("submit", str(path), "--cluster", "alpha", "--offline", "--json")
        first = person.run(*argv, check=False, env={"TRAINMASTER_CRASH_AT": str(seed)})
        killed += first.returncode == -9
        again = person.run(*argv)  # the same command again: brings the same run forward
        assert json.loads(again.stdout)["run"].startswith(f"crash{seed}-")
    assert killed >= 15, "the crash points were not reached"
    end = time.monotonic() + 240
    while "no unfinished runs" not in person.run("tick", check=False).stdout:
        assert time.monotonic() < end, person.run("status").stdout
        time.sleep(1)
    ask = ["squeue", "-h", "-t", "all", "-o", "%j"]
    jobs = Counter(
        name
        for name in subprocess.run(
            ask, env=person.env, capture_output=True, text=True, check=True
        ).stdout.split()
        if name.startswith("crash")
    )
    assert jobs and max(jobs.values()) == 1, jobs
    # No link was lost either: each experiment has one run, and it is complete.
    runs = json.loads(person.run("status", "--all", "--json").stdout)["runs"]
    assert sorted(r["name"] for r in runs) == sorted(f"crash{seed}" for seed in range(1, 21))
    assert {r["status"] for r in runs} == {"complete"}


def test_two_submits_and_ticks_at_once_make_one_run(person: Person) -> None:
    path = person.write(counter("twice", steps=10))
    argv = [
        sys.executable,
        "-m",
        "orchestrator",
        "submit",
        str(path),
        "--cluster",
        "alpha",
        "--json",
    ]
    both = [
        subprocess.Popen(argv, env=person.env, cwd=person.workdir, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    runs = {json.loads(process.communicate(timeout=120)[0])["run"] for process in both}
    assert len(runs) == 1
    run = runs.pop()
    assert person.finish(run)["status"] == "complete"
    assert max(Counter(person.jobs_of(run)).values()) == 1
