"""What a rehearsal finds of an attempt on this host, and harms: that, and nothing beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch import faulting, processes

#: An agent or supervisor as far as its command line goes; with a child in a session of its own.
PROGRAM = """
import subprocess, sys, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""


class Started:
    def __init__(self, root: Path, module: str, *argv: str, env: dict[str, str] | None = None) -> None:
        package, name = module.split(".")
        (root / package).mkdir(exist_ok=True)
        (root / package / "__init__.py").touch()
        (root / package / f"{name}.py").write_text(PROGRAM)
        self.popen = subprocess.Popen(
            [sys.executable, "-m", module, *argv],
            cwd=root, env={**os.environ, "PYTHONPATH": str(root), **(env or {})},
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.popen.stdout is not None
        self.child = int(self.popen.stdout.readline())

    def end(self) -> None:
        for pid in (self.popen.pid, self.child):
            if processes.alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.popen.communicate()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Started]]:
    found: list[Started] = []
    yield found
    for one in found:
        one.end()


def agent(
    root: Path, started: list[Started], attempt: str, *more: str, env: dict[str, str] | None = None
) -> int:
    words = ("--run-dir", str(root), "--stage", "train", "--link", "1", "--attempt", attempt, *more)
    started.append(Started(root, "launch.agent", *words, env=env))
    return started[-1].popen.pid


def test_agents_of_an_attempt_are_found_by_node(tmp_path: Path, started: list[Started]) -> None:
    mine = agent(tmp_path, started, "here/1.0", "--node", "local-0")
    on_slurm = agent(tmp_path, started, "here/1.0", env={"SLURMD_NODENAME": "a3"})
    agent(tmp_path, started, "here/2.0", "--node", "local-0")
    assert faulting.agents("here/1.0", tmp_path) == {"local-0": mine, "a3": on_slurm}
    assert faulting.agents("here/1.0", tmp_path / "other") == {}


def test_the_supervisor_of_a_link_is_found(tmp_path: Path, started: list[Started]) -> None:
    words = ("--run-dir", str(tmp_path), "--stage", "train", "--link", "2", "--home", "x")
    started.append(Started(tmp_path, "orchestrator.segment", *words))
    assert faulting.supervisor(tmp_path, "train", 2) == started[0].popen.pid
    assert faulting.supervisor(tmp_path, "train", 1) is None


def test_a_node_dies_with_all_that_it_started_and_alone(tmp_path: Path, started: list[Started]) -> None:
    agent(tmp_path, started, "here/1.0", "--node", "local-0")
    agent(tmp_path, started, "here/1.0", "--node", "local-1")
    victim, other = started
    assert faulting.kill_node(victim.popen.pid) == 2
    end = time.monotonic() + 10
    while processes.alive(victim.popen.pid) or processes.alive(victim.child):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert processes.alive(other.popen.pid) and processes.alive(other.child)
