"""Cycles of one attempt on emulated nodes: what fails is started again, swapped or done without.

Real agents and real processes; only the nodes are emulated.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from .conftest import RunDir, until
from .cycling import agent_of, cycles_of, stage


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
