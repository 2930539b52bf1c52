"""How agents are started under Slurm, and what srun's words teach."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from launch.allocation import Allocation
from launch.config import read_stage_config
from launch.rendezvous import derived_port, free_port, own_address
from launch.steps import Steps, agent_argv, srun_argv

from .conftest import RunDir

ALLOCATION = Allocation("slurm", "12", 0, "a[1-2]", "a1", cpus_per_node=64)


def test_srun_says_everything_a_site_may_have_set_otherwise(run_dir: RunDir) -> None:
    run_dir.stage(argv=["x"], nodes=2, cpus_per_node=None, srun_args=["--mpi=none", "--label"])
    argv = srun_argv(read_stage_config(run_dir.paths.stage_config("work")), ALLOCATION)
    assert argv[:4] == ["srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1"]
    for word in ("--kill-on-bad-exit=0", "--wait=0", "--export=ALL", "--input=none", "--cpus-per-task=64"):
        assert word in argv
    assert argv[-2:] == ["--mpi=none", "--label"]


def test_pyxis_takes_the_whole_step_into_the_container(run_dir: RunDir) -> None:
    run_dir.stage(argv=["x"], container={"runtime": "pyxis", "image": "docker://x"})
    argv = srun_argv(read_stage_config(run_dir.paths.stage_config("work")), ALLOCATION)
    assert "--container-image=docker://x" in argv


def test_agents_are_told_by_arguments_not_by_a_shell(run_dir: RunDir) -> None:
    run_dir.stage(argv=["x"])
    config = read_stage_config(run_dir.paths.stage_config("work"))
    argv = agent_argv(config, Path("/a b/$(x)"), 3, "alpha/12.0", "/py")
    assert argv[:5] == ["/py", "-m", "launch.agent", "--run-dir", "/a b/$(x)"]


def listened(tmp_path: Path, text: bytes) -> Steps:
    steps = Steps(("a1", "a2"), local=False)
    steps.listen(io.BytesIO(text))
    steps.close()
    return steps


def test_a_lost_node_is_srun_s_own_word(tmp_path: Path) -> None:
    steps = listened(tmp_path, b"srun: error: Node failure on a2\nsrun: Job step aborted\n")
    assert steps.lost_nodes == ["a2"] and steps.trouble


def test_a_task_that_failed_is_trouble_and_one_that_saved_is_not(tmp_path: Path) -> None:
    assert listened(tmp_path, b"srun: error: a2: task 1: Exited with exit code 1\n").trouble
    assert listened(tmp_path, b"srun: error: a[1-2]: tasks 0-1: Killed\n").trouble
    steps = listened(tmp_path, b"srun: error: a2: task 1: Exited with exit code 75\n\xff\xfe\n")
    assert not steps.trouble and not steps.lost_nodes


def test_a_preemption_is_told_apart_from_a_step_that_srun_ends(tmp_path: Path) -> None:
    word = b"slurmstepd-a1: error: *** STEP 3.0 ON a1 CANCELLED AT 2026-11-30T22:37:52"
    assert listened(tmp_path, word + b" DUE TO PREEMPTION ***\n").preempted
    assert not listened(tmp_path, word + b" ***\n").preempted


def test_ports_differ_between_jobs_and_a_taken_one_is_passed_over() -> None:
    import socket

    assert derived_port("a/1.0") != derived_port("a/2.0")
    with socket.socket() as taken:
        taken.bind(("", free_port("alpha/99.0")))
        taken.listen()
        other = free_port("alpha/99.0")
        assert other != taken.getsockname()[1] and 23_000 <= other < 32_000


def test_a_node_finds_its_own_address() -> None:
    assert own_address("127.0.0.1", 23_456) == "127.0.0.1"
    assert own_address("no.such.host.invalid", 23_456) == "no.such.host.invalid"


def test_what_cannot_be_swept_is_said_and_harms_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    Steps(("a1", "a2"), local=False).close(["a2"])
    assert "memory of a2 not swept" in capfd.readouterr().err
