"""`scripts/dev-cluster` itself: what it promises to people who rehearse on it, and to tests."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import SlurmCluster

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
pytestmark = pytest.mark.slurm


def submit(cluster: SlurmCluster, where: Path, script: str, *options: str, name: str = "") -> str:
    """sbatch as lab1; the job id."""
    argv = ["sbatch", "--parsable", "-o", "%j.out", *options]
    text = f"#!/bin/bash\n{script}\n"
    done = cluster.run_as("lab1", argv, cwd=where, stdin=text, check=True, cluster=name or "alpha")
    return done.stdout.strip().split(";")[0]


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = 60) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.1)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


# --- on the cluster the tests share ---------------------------------------------------------------


def test_up_again_starts_nothing_and_leaves_jobs_alone(
    slurm_cluster: SlurmCluster, slurm_workdir: Path
) -> None:
    job = submit(slurm_cluster, slurm_workdir, "sleep 300")
    slurm_cluster.wait_for_job(job, "RUNNING")
    record = json.loads(slurm_cluster.verb("up", "--json").stdout)
    assert record["up"] is True
    assert record["started"] == []
    assert slurm_cluster.job_state(job) == "RUNNING"


def test_up_with_other_node_counts_says_to_take_it_down_first(slurm_cluster: SlurmCluster) -> None:
    done = slurm_cluster.verb("up", "--nodes", "77", check=False)
    assert done.returncode == 6
    assert "77" in done.stderr
    assert "down" in done.stderr
    assert slurm_cluster.status()["up"] is True


def test_a_job_sees_the_fake_gpus_it_asked_for_and_no_others(
    slurm_cluster: SlurmCluster, slurm_workdir: Path
) -> None:
    script = "echo $CUDA_VISIBLE_DEVICES; srun sh -c 'echo $CUDA_VISIBLE_DEVICES'"
    job = submit(slurm_cluster, slurm_workdir, script, "--gres=gpu:2")
    slurm_cluster.wait_for_job(job, "COMPLETED")
    lines = (slurm_workdir / f"{job}.out").read_text().split()
    assert lines == ["0,1", "0,1"]
    shown = slurm_cluster.run_as("root", ["scontrol", "show", "node", "a1"]).stdout
    assert "Gres=gpu:fake:" in shown


def test_both_clusters_are_reached_with_dash_m(slurm_cluster: SlurmCluster) -> None:
    done = slurm_cluster.run_as("lab1", ["sinfo", "-M", "alpha,beta", "-h", "-o", "%P %N"])
    assert done.returncode == 0, done.stderr
    assert "low* a[1-" in done.stdout
    assert "low* b[1-" in done.stdout
    argv = ["sbatch", "-M", "beta", "--parsable", "-o", "/dev/null", "--wrap", "true"]
    job = slurm_cluster.run_as("lab2", argv, check=True).stdout.strip()
    assert job.endswith(";beta")
    slurm_cluster.wait_for_job(job.split(";")[0], "COMPLETED", cluster="beta")


@pytest.mark.parametrize("user", ["root", "lab1", "lab2"])
def test_every_user_may_submit_to_both_accounts_and_all_qos(slurm_cluster: SlurmCluster, user: str) -> None:
    for account in ("lab", "robots"):
        for qos in ("normal", "urgent", "capped"):
            argv = ["sbatch", "--test-only", "-A", account, "-q", qos, "--wrap", "true"]
            done = slurm_cluster.run_as(user, argv)
            assert done.returncode == 0, done.stderr


def test_the_high_partition_preempts_the_low_one_by_requeue(
    slurm_cluster: SlurmCluster, slurm_workdir: Path
) -> None:
    low = submit(slurm_cluster, slurm_workdir, "sleep 300", "-p", "low", "-w", "a1", "--exclusive")
    slurm_cluster.wait_for_job(low, "RUNNING")
    script = "sleep 300"
    high = submit(slurm_cluster, slurm_workdir, script, "-p", "high", "-w", "a1", "--exclusive")
    slurm_cluster.wait_for_job(high, "RUNNING")
    slurm_cluster.wait_for_job(low, "PENDING")


def test_limits_of_the_short_and_tiny_partitions_are_accepted_and_pend(
    slurm_cluster: SlurmCluster, slurm_workdir: Path
) -> None:
    long = submit(slurm_cluster, slurm_workdir, "true", "-p", "short", "-t", "60")
    wide = submit(slurm_cluster, slurm_workdir, "true", "-p", "tiny", "-N", "2")
    show = ["squeue", "-h", "-o", "%r", "-j"]
    for job, reason in ((long, "PartitionTimeLimit"), (wide, "PartitionNodeLimit")):
        wait_until(
            lambda job=job, reason=reason: (  # type: ignore[misc]
                reason in slurm_cluster.run_as("lab1", [*show, job]).stdout
            ),
            f"job {job} pending for {reason}",
        )


def test_a_killed_node_takes_its_tasks_with_it_and_comes_back_idle(
    slurm_cluster: SlurmCluster, slurm_workdir: Path
) -> None:
    # The second sleep has an empty environment and no parent: it can only be found as a descendant
    script = "srun --label bash -c 'sleep 300 & env -i sleep 300 & jobs -p; wait'"
    job = submit(slurm_cluster, slurm_workdir, script, "-N2", "-w", "a1,a2", "--no-requeue")
    output = slurm_workdir / f"{job}.out"
    wait_until(lambda: output.exists() and len(output.read_text().split("\n")) >= 5, "4 pids")
    rows = [line.split(": ") for line in output.read_text().splitlines()]
    tasks = {rank: [int(pid) for r, pid in rows if r == rank] for rank in ("0", "1")}
    slurm_cluster.kill_node("a2")
    assert not any(is_alive(pid) for pid in tasks["1"])
    assert all(is_alive(pid) for pid in tasks["0"])
    assert "slurmd of a2 is stopped" in slurm_cluster.status()["problems"]
    slurm_cluster.start_node("a2")
    slurm_cluster.heal()
    status = slurm_cluster.status()
    assert status["up"] is True
    assert status["clusters"][0]["nodes"]["a2"] == "idle"
    assert not any(is_alive(pid) for pid in tasks["0"])


def test_killing_only_the_daemon_leaves_the_tasks_running(
    slurm_cluster: SlurmCluster, slurm_workdir: Path
) -> None:
    job = submit(slurm_cluster, slurm_workdir, "echo $$; exec sleep 300", "-w", "a1")
    output = slurm_workdir / f"{job}.out"
    wait_until(lambda: output.exists() and output.read_text().endswith("\n"), "the job's pid")
    pid = int(output.read_text())
    slurm_cluster.kill_node("a1", daemon_only=True)
    assert is_alive(pid)
    slurm_cluster.start_node("a1")
    assert is_alive(pid)
    assert slurm_cluster.job_state(job) == "RUNNING"


def test_a_frozen_controller_answers_nobody_until_it_is_thawed(slurm_cluster: SlurmCluster) -> None:
    slurm_cluster.freeze()
    again = slurm_cluster.verb("freeze-controller")
    assert "already" in again.stdout
    with pytest.raises(subprocess.TimeoutExpired):
        slurm_cluster.run_as("lab1", ["squeue"], timeout_s=2)
    status = slurm_cluster.status()
    assert status["clusters"][0]["controller"] == "frozen"
    assert status["clusters"][1]["controller"] == "running"
    slurm_cluster.thaw()
    slurm_cluster.thaw()
    assert slurm_cluster.run_as("lab1", ["squeue"]).returncode == 0


def test_a_killed_controller_comes_back_and_a_frozen_one_can_be_killed(
    slurm_cluster: SlurmCluster,
) -> None:
    slurm_cluster.freeze("beta")
    slurm_cluster.kill_controller("beta")
    assert slurm_cluster.run_as("lab1", ["scontrol", "ping"], cluster="beta").returncode == 1
    assert slurm_cluster.verb("status", check=False).returncode == 3
    slurm_cluster.start_controller("beta")
    assert slurm_cluster.run_as("lab1", ["sinfo"], cluster="beta").returncode == 0


@pytest.mark.slow
def test_without_slurmdbd_sacct_fails_and_submitting_works(
    slurm_cluster: SlurmCluster, slurm_workdir: Path
) -> None:
    slurm_cluster.stop_accounting()
    slurm_cluster.stop_accounting()
    assert slurm_cluster.run_as("lab1", ["sacct"]).returncode != 0
    job = submit(slurm_cluster, slurm_workdir, "true", "--comment=token-17")
    slurm_cluster.wait_for_job(job, "COMPLETED")
    slurm_cluster.start_accounting()
    ask = ["sacct", "-X", "-n", "-P", "-j", job, "-o", "state,comment"]
    wait_until(
        lambda: slurm_cluster.run_as("lab1", ask).stdout.strip() == "COMPLETED|token-17",
        "the record sent later",
    )


@pytest.mark.slow
def test_a_failing_prolog_drains_the_node_and_holds_the_job(
    slurm_cluster: SlurmCluster, slurm_workdir: Path
) -> None:
    slurm_cluster.fail_prolog("a1")
    assert slurm_cluster.status()["failing_hooks"] == ["prolog-a1"]
    job = submit(slurm_cluster, slurm_workdir, "true", "-w", "a1")
    ask = ["squeue", "-h", "-o", "%r", "-j", job]
    wait_until(lambda: "requeued held" in slurm_cluster.run_as("lab1", ask).stdout, "the job to be held")
    reasons = slurm_cluster.run_as("lab1", ["sinfo", "-R", "-h", "-o", "%E %N"]).stdout
    assert "Prolog error a1" in reasons
    slurm_cluster.clear_prolog("a1")
    assert slurm_cluster.status()["up"] is True
    slurm_cluster.run_as("lab1", ["scontrol", "release", job], check=True)
    slurm_cluster.wait_for_job(job, "COMPLETED")


@pytest.mark.slow
def test_a_failing_health_check_drains_the_node_with_its_reason(
    slurm_cluster: SlurmCluster,
) -> None:
    slurm_cluster.verb("fail-health", "a2")
    ask = ["sinfo", "-R", "-h", "-o", "%E|%N"]
    wait_until(lambda: "fake GPU fault|a2" in slurm_cluster.run_as("lab1", ask).stdout, "a2 to be drained")
    slurm_cluster.verb("clear-health", "a2")
    assert slurm_cluster.status()["up"] is True


def test_env_prints_what_a_shell_needs(slurm_cluster: SlurmCluster) -> None:
    for name, node in (("alpha", "a1"), ("beta", "b1")):
        lines = slurm_cluster.verb("env", name).stdout
        script = f'{lines}\nsinfo -h -N -n "$1" -o %N | sort -u'
        done = slurm_cluster.run_as("lab1", ["bash", "-c", script, "-", node])
        assert done.stdout.strip() == node, done.stderr
    unknown = slurm_cluster.verb("env", "gamma", check=False)
    assert unknown.returncode == 2
    assert "alpha, beta" in unknown.stderr


def test_an_unknown_node_is_named_with_those_there_are(slurm_cluster: SlurmCluster) -> None:
    done = slurm_cluster.verb("kill-node", "c3po", check=False)
    assert done.returncode == 2
    assert "c3po" in done.stderr
    assert "a1 to a" in done.stderr


def test_all_sockets_are_bound_to_loopback(slurm_cluster: SlurmCluster) -> None:
    settings = json.loads((slurm_cluster.state_dir / "settings.json").read_text())
    ports = range(settings["port_base"], settings["port_base"] + 700)
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        address, port = words[1].split(":")
        if words[3] == "0A" and int(port, 16) in ports:
            found += 1
            assert address == "0100007F", f"port {int(port, 16)} listens on {address}"
    assert found >= 4 + settings["nodes"]


def test_an_ordinary_user_may_look_and_is_told_that_the_rest_needs_root(
    slurm_cluster: SlurmCluster, slurm_workdir: Path
) -> None:
    # From a copy outside the repository, with the system's Python and no site packages: standard
    # library only
    shutil.copytree(SCRIPTS, slurm_workdir / "scripts")
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin")
    assert python
    command = [python, "-I", "-S", slurm_workdir / "scripts/dev-cluster"]
    where = ["--dir", str(slurm_cluster.state_dir)]
    for argv, code in ((["status"], 0), (["env", "beta"], 0), (["up"], 4), (["down"], 4)):
        done = slurm_cluster.run_as("lab1", [*command, *argv, *where])
        assert done.returncode == code, done.stdout + done.stderr
        assert ("needs root" in done.stderr) == (code == 4)


# --- on a cluster of its own ----------------------------------------------------------------------


def processes_of(root: Path) -> list[int]:
    """Pids of everything that a dev cluster at `root` has started and that is alive."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if f"{root}/".encode() in text and is_alive(int(entry.name)):
                found.append(int(entry.name))
    return found


def free_port_base() -> int:
    for base in range(23_000, 32_000, 700):
        try:
            for offset in (0, 1, 2, 3, 101, 357):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", base + offset))
        except OSError:
            continue
        return base
    raise AssertionError("no free ports")


@pytest.fixture(scope="module")
def own(slurm_cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """A second, small cluster beside the shared one; `up` ran with its output in a pipe."""
    root = Path(f"/tmp/dev-cluster-test-{os.getpid()}")
    cluster = replace(slurm_cluster, state_dir=root)
    options = [
        "--nodes",
        "2",
        "--nodes-b",
        "0",
        "--gpus",
        "1",
        "--port-base",
        str(free_port_base()),
    ]
    try:
        # communicate() returns at the end of file: only once no daemon holds the pipe's other end
        cluster.verb("up", *options)
        yield cluster
    finally:
        cluster.verb("down", "--wipe")


def test_two_dev_clusters_live_side_by_side(own: SlurmCluster, slurm_cluster: SlurmCluster) -> None:
    nodes = own.run_as("root", ["sinfo", "-h", "-p", "low", "-o", "%N"]).stdout
    assert nodes.strip() == "a[1-2]"
    assert slurm_cluster.status()["up"] is True
    job = own.run_as(
        "lab1", ["sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 300"], cwd="/tmp"
    ).stdout.strip()
    own.wait_for_job(job, "RUNNING")
    slurm_cluster.kill_node("a1")  # the node of that name in the other cluster must not notice
    assert own.job_state(job) == "RUNNING"
    assert own.status()["up"] is True


def test_up_heals_dead_daemons_and_nodes(own: SlurmCluster) -> None:
    own.kill_node("a1")
    own.kill_controller()
    own.stop_accounting()
    record = json.loads(own.verb("up", "--json").stdout)
    assert set(record["started"]) == {"slurmdbd", "slurmctld alpha", "slurmd a1"}
    assert record["up"] is True


def test_down_stops_a_frozen_cluster_with_running_jobs_and_up_starts_it_again(
    own: SlurmCluster,
) -> None:
    argv = ["sbatch", "--parsable", "-o", "/dev/null", "-N2", "--wrap", "srun sleep 300"]
    job = own.run_as("lab1", argv, cwd="/tmp", check=True).stdout.strip()
    own.wait_for_job(job, "RUNNING")
    own.freeze()
    own.verb("down")
    assert processes_of(own.state_dir) == []
    again = own.verb("down")
    assert "nothing was running" in again.stdout
    assert own.verb("status", check=False).returncode == 3
    own.verb("up")
    assert own.job_state(job) == "CANCELLED"


def test_an_up_that_fails_half_way_leaves_nothing_running(own: SlurmCluster) -> None:
    own.verb("down")
    obstacle = own.state_dir / "run/alpha/slurmctld.pid"
    obstacle.mkdir()  # munge, MariaDB and slurmdbd start, the controller cannot
    failed = own.verb("up", check=False)
    assert failed.returncode == 1
    assert str(obstacle) in failed.stderr
    assert processes_of(own.state_dir) == []
    obstacle.rmdir()
    own.verb("up")


def test_a_port_in_use_is_named_before_anything_starts(own: SlurmCluster) -> None:
    own.verb("down")
    settings = json.loads((own.state_dir / "settings.json").read_text())
    port = settings["port_base"] + 2
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        failed = own.verb("up", check=False)
    assert failed.returncode == 6
    assert f"port {port}" in failed.stderr
    assert "--port-base" in failed.stderr
    assert processes_of(own.state_dir) == []


def test_wipe_removes_its_own_files_and_refuses_others(own: SlurmCluster) -> None:
    own.verb("down", "--wipe")
    assert not own.state_dir.exists()
    own.state_dir.mkdir()
    (own.state_dir / "thesis.tex").touch()
    for argv in (["up"], ["down", "--wipe"]):
        assert own.verb(*argv, check=False).returncode != 0
    assert (own.state_dir / "thesis.tex").exists()
    shutil.rmtree(own.state_dir)
