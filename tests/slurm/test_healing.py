"""A run that heals itself on a real Slurm: ranks that die, nodes that crash, with a spare and without."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from resiliency import journal
from resiliency.events import Event
from tests.launch.cycling import RANK
from tests.slurm.harness import ROOT, SlurmPerson, environment


@pytest.fixture
def person(slurm_cluster, slurm_env: dict[str, str], slurm_workdir: Path) -> SlurmPerson:
    return SlurmPerson(slurm_workdir, environment(slurm_env))


def experiment(
    person: SlurmPerson, name: str, harm: str, *, culprit: int = 1, steps: int = 40, **stage: Any
) -> dict[str, Any]:
    """Two nodes, a rank each; see ``tests/launch/cycling.py``."""
    program = person.workdir / "rank.py"
    program.write_text(RANK)
    out = person.workdir / name
    out.mkdir()
    resources = {"nodes": 2, "time": "00:05:00", "mem": "200M", **stage.pop("resources", {})}
    return {
        "name": name,
        "stages": {
            "work": {
                "kind": "command",
                "run": [sys.executable, str(program), str(out), harm, str(culprit), str(steps)],
                "env": {"PYTHONPATH": str(ROOT)},
                "resources": resources,
                "grace": "2s",
                "chain": {"startup": "5s", "save_time": "2s", "signal_lead": "10s"},
                **stage,
            }
        },
    }


def events(status: dict[str, Any], type_: str) -> list[Event]:
    found, _ = journal.read_run(Path(status["run_dir"]) / "journal")
    return [event for event in found if event.type == type_]


def wait_for(path: Path) -> None:
    until = time.monotonic() + 90
    while not path.exists():
        assert time.monotonic() < until, f"{path} does not come"
        time.sleep(0.2)


def node_of(out: Path, name: str) -> str:
    """The node on which a rank of a cycle ran."""
    return next(out.glob(f"{name}.*")).name.rpartition(".")[2]


@pytest.mark.slow
def test_a_killed_rank_costs_a_restart_not_an_allocation(person: SlurmPerson) -> None:
    run = person.submit(experiment(person, "killed", "kill"))
    done = person.finish(run)
    assert done["status"] == "complete", person.story(run)
    assert len({event.attempt for event in events(done, "attempt.started")}) == 1
    assert [event.data["cycle"] for event in events(done, "cycle.started")] == [0, 1]
    assert events(done, "incident")[0].data["rank"] == 1


@pytest.mark.slow
def test_a_crashed_node_is_replaced_by_the_spare_in_the_same_job(person: SlurmPerson, slurm_cluster) -> None:
    out = person.workdir / "spare"
    run = person.submit(experiment(person, "spare", "wait", resources={"spare_nodes": 1}))
    wait_for(out / "harmed")
    lost = node_of(out, "0.1")
    slurm_cluster.kill_node(lost)
    done = person.finish(run)
    assert done["status"] == "complete", person.story(run)
    swapped = events(done, "node.swapped")[0].data
    assert swapped["out"] == lost and swapped["in"] == node_of(out, "1.1")
    # Slurm shows the job in two pieces (RESIZING, then the rest); it is one allocation all the same.
    assert len({event.attempt for event in events(done, "attempt.started")}) == 1
    assert {a["restart_count"] for s in done["stages"] for a in s["attempts"]} == {0}


@pytest.mark.slow
def test_without_a_spare_the_next_link_starts_elsewhere(person: SlurmPerson, slurm_cluster) -> None:
    out = person.workdir / "nospare"
    run = person.submit(experiment(person, "nospare", "wait"))
    wait_for(out / "harmed")
    lost = node_of(out, "0.1")
    slurm_cluster.kill_node(lost)
    done = person.finish(run)
    assert done["status"] == "complete", person.story(run)
    first, second = events(done, "cycle.started")
    assert first.attempt != second.attempt and lost in first.data["nodes"]
    assert lost not in second.data["nodes"]
    jobs = [event.data["job_id"] for event in events(done, "attempt.started")]
    asked = subprocess.run(
        ["sacct", "-n", "-P", "-X", "-j", ",".join(jobs), "-o", "JobID,Start,End"],
        env=person.env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert len(asked.stdout.split()) == 2, asked.stdout
