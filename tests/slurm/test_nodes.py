"""Nodes that are kept out, on a real Slurm: queued links are told, exit 16 runs elsewhere."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from metrics.ledger.nodes import names
from tests.slurm.harness import SlurmPerson, attempts, counter, environment


@pytest.fixture
def person(slurm_cluster, slurm_env: dict[str, str], slurm_workdir: Path) -> SlurmPerson:
    return SlurmPerson(slurm_workdir, environment(slurm_env))


def told(person: SlurmPerson, job: str) -> list[str]:
    """Slurm's own word on which nodes a job is kept off."""
    done = subprocess.run(
        ["scontrol", "show", "job", job], env=person.env, capture_output=True, text=True, check=True
    )
    line = next(part for part in done.stdout.split() if part.startswith("ExcNodeList="))
    value = line.split("=", 1)[1]
    return [] if value == "(null)" else names(value)


@pytest.mark.slurm
def test_exit_16_runs_elsewhere_and_a_person_s_word_reaches_queued_links(person: SlurmPerson) -> None:
    line = "if mkdir {stage_dir}/once; then echo $TRAINMASTER_NODE > {stage_dir}/first; exit 16; fi; sleep 20"
    experiment = {
        "name": "elsewhere",
        "stages": {
            "count": {
                "kind": "command",
                "run": ["bash", "-c", line],
                "resources": {"nodes": 1, "time": "00:03:00", "mem": "200M"},
                "chain": {"startup": "5s", "save_time": "2s", "signal_lead": "10s", "lookahead": 3},
            }
        },
    }
    run = person.submit(experiment)
    seen = person.until(run, lambda s: any(a["state"] == "RUNNING" and a["link"] == 2 for a in attempts(s)))
    first = (Path(seen["run_dir"]) / "stages" / "count" / "first").read_text().strip()
    second = next(a for a in attempts(seen) if a["link"] == 2)
    assert second["nodes"] != first
    job = next(link["job_ids"][0] for link in seen["stages"][0]["links"] if link["link"] == 3)
    assert told(person, job) == [first]

    other = next(n for n in ("a7", "a8") if n != first)
    done = person.run("nodes", "exclude", other, "--reason", "fan", "--cluster", "alpha", "--json")
    assert json.loads(done.stdout)["excluded"] == [other]
    assert sorted(told(person, job)) == sorted([first, other])
    person.run("nodes", "readmit", other, "--cluster", "alpha")
    assert told(person, job) == [first]
    assert person.finish(run)["status"] == "complete", person.story(run)


@pytest.mark.slurm
def test_more_than_may_be_kept_out_is_not_and_it_is_said(person: SlurmPerson) -> None:
    """The partition has so many nodes; a stage of nearly all of them keeps what it needs."""
    rows = subprocess.run(
        ["sinfo", "-h", "-p", "low", "-o", "%D"], env=person.env, capture_output=True, text=True, check=True
    )
    count = sum(map(int, rows.stdout.split()))
    person.run("nodes", "exclude", "a1", "a2", "--reason", "fan", "--cluster", "alpha")
    path = person.write(counter("wide", steps=3, nodes=count - 1))
    done = person.run("submit", str(path), "--cluster", "alpha")
    assert f"{count - 1} of {count} nodes are needed" in done.stderr
    run = next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("submitted"))
    job = person.status(run)["stages"][0]["links"][0]["job_ids"][0]
    assert len(told(person, job)) == 1
    person.run("cancel", run)
    person.finish(run)
