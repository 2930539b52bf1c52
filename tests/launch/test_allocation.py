"""Allocations of both schedulers, and Slurm's node lists."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from launch.allocation import expand_nodelist, identify
from resiliency.errors import UsageError

SLURM = {
    "SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "a[1-2]", "SLURMD_NODENAME": "a1",
    "SLURM_JOB_CPUS_PER_NODE": "64(x2),32",
}  # fmt: skip


def test_a_first_run_has_no_restart_count() -> None:
    found = identify("slurm", SLURM)
    assert (found.job_id, found.restart_count, found.nodes) == ("12", 0, ("a1", "a2"))
    assert (found.address, found.cpus_per_node, found.time_limit_s) == ("a1", 32, None)
    assert found.attempt("alpha") == "alpha/12.0"


def test_a_requeued_run_counts() -> None:
    times = {"SLURM_JOB_START_TIME": "100", "SLURM_JOB_END_TIME": "160"}
    found = identify("slurm", {**SLURM, **times, "SLURM_RESTART_COUNT": "2"})
    assert (found.attempt("alpha"), found.time_limit_s) == ("alpha/12.2", 60.0)


def test_a_local_job_inside_a_slurm_allocation_is_local() -> None:
    local = {"TRAINMASTER_LOCAL_JOB_ID": "3", "TRAINMASTER_LOCAL_NODELIST": "local-0,local-1"}
    found = identify("local", {**SLURM, **local})
    assert (found.job_id, found.nodes, found.address) == ("3", ("local-0", "local-1"), "127.0.0.1")


@pytest.mark.parametrize("scheduler", ["slurm", "local"])
def test_outside_an_allocation(scheduler: str) -> None:
    with pytest.raises(UsageError, match="not in an allocation"):
        identify(scheduler, {})


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("n1", ["n1"]),
        ("n1,n2", ["n1", "n2"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("gpu[008-010],cpu2", ["gpu008", "gpu009", "gpu010", "cpu2"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
    ],
)
def test_node_lists(text: str, nodes: list[str]) -> None:
    assert list(expand_nodelist(text)) == nodes


def test_without_submitit_scontrol_is_asked(tmp_path: Path) -> None:
    fake = tmp_path / "scontrol"
    fake.write_text('#!/bin/sh\ntest "$3" = "x[1-2]" && printf "x1\\nx2\\n"\n')
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    code = (
        "import sys; sys.modules['submitit.slurm.slurm'] = None\n"
        "from launch.allocation import expand_nodelist; print(expand_nodelist('x[1-2]'))"
    )
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout.strip() == "('x1', 'x2')"


def test_plain_names_cost_no_import() -> None:
    code = (
        "import sys; from launch.allocation import expand_nodelist; expand_nodelist('a,b');"
        "print('submitit' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
