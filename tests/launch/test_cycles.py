"""Cycles of one attempt on emulated nodes: what fails is started again, swapped or done without.

Real agents and real processes; only the nodes are emulated.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import CLUSTER, RunDir, until

#: Writes down where it is; does harm once, when told to; steps quickly.
RANK = """
import json, os, signal, sys, time
from pathlib import Path
out, harm, culprit, steps = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rank, cycle, world = (int(os.environ[n]) for n in ("RANK", "TRAINMASTER_CYCLE", "WORLD_SIZE"))
name = f"{cycle}.{rank}.{os.environ['TRAINMASTER_NODE']}"
here = os.environ["TRAINMASTER_NODE_DIR"]
Path(here, "kept").touch() if cycle == 0 else None
(out / name).write_text(json.dumps({"world": world, "kept": Path(here, "kept").exists(),
    "master": os.environ.get("MASTER_ADDR", ""), "pid": os.getpid()}))
done, once = out / f"done.{rank}", out / "harmed"
step = int(done.read_text()) if done.exists() else 0
while step < steps:
    step += 1
    time.sleep(0.05)
    if rank == culprit and step >= 5 and not (once.exists() and harm != "always"):
        once.touch()
        if harm in ("raise", "always"):
            raise ValueError(f"harm at step {step}")
        if harm == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if harm == "wait":
            time.sleep(600)
    done.write_text(str(step))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "rank.py"
    path.write_text(RANK)
    return path


def stage(run_dir: RunDir, program: Path, out: Path, harm: str, *, culprit: int = 0, **more: Any) -> None:
    out.mkdir()
    argv = [sys.executable, str(program), str(out), harm, str(culprit), "20"]
    run_dir.stage(argv=argv, **{"restarts_in_job": 3, "grace_s": 2, **more})


def cycles_of(run_dir: RunDir) -> list[dict[str, Any]]:
    return [dict(event.data) for event in run_dir.events("cycle.started")]


def agent_of(node: str) -> int:
    """Process id of a node's agent."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        mine = any(word.startswith(f"{CLUSTER}/".encode()) for word in words)
        if mine and b"launch.agent" in words and node.encode() in words:
            return int(entry.name)
    raise AssertionError(f"no agent of {node}")


@pytest.mark.parametrize("harm", ["raise", "kill"])
def test_a_rank_that_fails_is_started_again_in_the_same_allocation(
    run_dir: RunDir, program: Path, tmp_path: Path, harm: str
) -> None:
    stage(run_dir, program, tmp_path / "out", harm)
    assert run_dir.run() == 0
    assert [c["cycle"] for c in cycles_of(run_dir)] == [0, 1]
    incident, decision = run_dir.one("incident"), run_dir.one("decision")
    assert incident.data["kind"] == "rank_end" and incident.data["rank"] == 0
    assert decision.data["action"] == "restart_in_job" and decision.data["in_job"]
    first, last = run_dir.events("cycle.ended")
    assert first.data["continued"] and not last.data["continued"]
    assert first.data["codes"] == {"137" if harm == "kill" else "1": 1}
    kept = json.loads((tmp_path / "out" / "1.0.local-0").read_text())["kept"]
    assert kept, "what lies in the node's directory outlives a cycle"
    assert run_dir.one("attempt.finished").data["category"] == "healthy"


def test_a_failing_rank_takes_all_nodes_into_the_next_cycle(
    run_dir: RunDir, program: Path, tmp_path: Path
) -> None:
    stage(run_dir, program, tmp_path / "out", "kill", culprit=1, nodes=2, grace_s=1)
    assert run_dir.run(nodes="local-0,local-1") == 0
    names = sorted(path.name for path in (tmp_path / "out").glob("1.*"))
    assert names == ["1.0.local-0", "1.1.local-1"]
    assert run_dir.one("incident").data["node"] == "local-1"


def test_restarts_are_used_up(run_dir: RunDir, program: Path, tmp_path: Path) -> None:
    stage(run_dir, program, tmp_path / "out", "always", restarts_in_job=1)
    assert run_dir.run() == 1
    assert len(cycles_of(run_dir)) == 2
    assert run_dir.one("attempt.finished").data["decision"] == "requeue"


def test_a_lost_node_is_replaced_by_the_spare(run_dir: RunDir, program: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    stage(run_dir, program, out, "wait", culprit=1, nodes=2, spare_nodes=1, min_nodes=None)
    segment = run_dir.start(nodes="local-0,local-1,local-2")
    until((out / "harmed").exists)
    os.kill(agent_of("local-1"), signal.SIGKILL)
    assert segment.wait() == 0
    assert [c["nodes"] for c in cycles_of(run_dir)] == [["local-0", "local-1"], ["local-0", "local-2"]]
    swapped = run_dir.one("node.swapped").data
    assert (swapped["out"], swapped["in"]) == ("local-1", "local-2")
    assert cycles_of(run_dir)[0]["spares"] == ["local-2"]
    assert run_dir.one("node.lost").data["node"] == "local-1"


def test_without_a_spare_it_goes_on_smaller_if_it_may(run_dir: RunDir, program: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    stage(run_dir, program, out, "wait", culprit=1, nodes=2, min_nodes=1)
    segment = run_dir.start(nodes="local-0,local-1")
    until((out / "harmed").exists)
    os.kill(agent_of("local-1"), signal.SIGKILL)
    assert segment.wait() == 0
    assert [c["nodes"] for c in cycles_of(run_dir)] == [["local-0", "local-1"], ["local-0"]]
    assert run_dir.one("node.shrunk").data["world"] == 1
    assert json.loads((out / "1.0.local-0").read_text())["world"] == 1


def test_without_either_the_allocation_is_given_back_at_once(
    run_dir: RunDir, program: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    stage(run_dir, program, out, "wait", culprit=1, nodes=2)
    segment = run_dir.start(nodes="local-0,local-1")
    until((out / "harmed").exists)
    os.kill(agent_of("local-1"), signal.SIGKILL)
    assert segment.wait() not in (0, 75)
    assert len(cycles_of(run_dir)) == 1
    finished = run_dir.one("attempt.finished").data
    assert "local-1" in finished["reason"]


def test_a_lost_spare_disturbs_nobody(run_dir: RunDir, program: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    stage(run_dir, program, out, "none", nodes=1, spare_nodes=1)
    segment = run_dir.start(nodes="local-0,local-1")
    until((out / "0.0.local-0").exists)
    os.kill(agent_of("local-1"), signal.SIGKILL)
    assert segment.wait() == 0
    assert len(cycles_of(run_dir)) == 1


def test_told_to_stop_nothing_is_started_again(run_dir: RunDir, program: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    stage(run_dir, program, out, "wait")
    segment = run_dir.start()
    until((out / "harmed").exists)
    segment.send(signal.SIGUSR2)
    segment.wait()
    assert len(cycles_of(run_dir)) == 1 and not run_dir.events("incident")
    assert run_dir.one("attempt.finished").data["category"] == "time_limit"
