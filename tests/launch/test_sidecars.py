"""Roles beside the stage's own: a dead replica is started again, the stage goes on, nothing is left."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from .conftest import RunDir, until
from .cycling import cycles_of, stage

SERVER = """
import os, sys, time
from pathlib import Path
out = Path(sys.argv[1]); name = os.environ["TRAINMASTER_ROLE"] + "." + os.environ["TRAINMASTER_REPLICA"]
starts = out / ("starts." + name)
number = len(starts.read_text()) if starts.exists() else 0
with starts.open("a") as file: file.write("x")
(out / ("new." + name)).write_text(str(os.getpid()))
os.replace(out / ("new." + name), out / ("pid." + name))
print("serving", name, os.environ.get("FLAVOUR"), flush=True)
if sys.argv[2] == "dies": sys.exit(3)
time.sleep(600)
"""


def server(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return path


def role(tmp_path: Path, how: str = "lives", **more: Any) -> dict[str, Any]:
    argv = [sys.executable, str(server(tmp_path)), str(tmp_path / "out"), how]
    return {"name": "helper", "run": argv, "env": {"FLAVOUR": "vanilla"}, **more}


def test_a_dead_replica_is_started_again_and_the_others_and_the_stage_go_on(
    run_dir: RunDir,
    program: Path,
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    stage(run_dir, program, out, "none", steps=60, roles=[role(tmp_path, replicas=2)])
    segment = run_dir.start()
    until((out / "pid.helper.0").exists)
    until((out / "pid.helper.1").exists)
    os.kill(int((out / "pid.helper.1").read_text()), signal.SIGKILL)
    assert segment.wait() == 0
    assert (out / "starts.helper.0").read_text() == "x" and (out / "starts.helper.1").read_text() == "xx"
    assert len(cycles_of(run_dir)) == 1 and not run_dir.events("incident")
    ended = [e.data for e in run_dir.events("role.exited") if e.data["role"] == "helper"]
    assert [(e["replica"], e["exit_code"]) for e in ended] == [(1, 137)]
    logs = list(run_dir.paths.logs("work").glob("*.helper.log"))
    assert len(logs) == 1 and "serving helper.0 vanilla" in logs[0].read_text()


def test_it_stays_up_while_the_stage_is_restarted(
    run_dir: RunDir,
    program: Path,
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    stage(run_dir, program, out, "kill", roles=[role(tmp_path)])
    assert run_dir.run() == 0
    assert len(cycles_of(run_dir)) == 2
    assert (out / "starts.helper.0").read_text() == "x"


def test_one_that_cannot_live_is_given_up_without_harm(
    run_dir: RunDir,
    program: Path,
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    stage(run_dir, program, out, "none", steps=60, roles=[role(tmp_path, "dies", restarts=1)])
    assert run_dir.run() == 0
    assert (out / "starts.helper.0").read_text() == "xx"
    assert "its 1 restarts are used up" in run_dir.started[0].text()


def test_an_essential_one_takes_the_stage_with_it(
    run_dir: RunDir,
    program: Path,
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    helper = role(tmp_path, "dies", restarts=0, essential=True)
    stage(run_dir, program, out, "none", steps=400, roles=[helper], restarts_in_job=0)
    assert run_dir.run() == 3
    assert "role helper ended with 3" in run_dir.one("incident").data["detail"]


def test_on_every_node_or_on_the_first(run_dir: RunDir, program: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    everywhere = {**role(tmp_path, nodes="all"), "name": "each"}
    stage(run_dir, program, out, "none", nodes=2, steps=40, roles=[role(tmp_path), everywhere])
    assert run_dir.run(nodes="local-0,local-1") == 0
    started = [
        (e.data["role"], e.node) for e in run_dir.events("role.started") if e.data["role"] != "command"
    ]
    assert sorted(started) == [("each", "local-0"), ("each", "local-1"), ("helper", "local-0")]
