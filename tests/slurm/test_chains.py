"""Chains on a real Slurm: what a user sees when jobs run, roll over, are lost, preempted or cancelled."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.slurm.harness import SlurmPerson as Person
from tests.slurm.harness import attempts, counter, environment, stage


@pytest.fixture
def person(slurm_cluster, slurm_env: dict[str, str], slurm_workdir: Path) -> Person:
    return Person(slurm_workdir, environment(slurm_env))


def running(status: dict, name: str = "count", step: int = 1) -> bool:
    return any(a["state"] == "RUNNING" and (a["step"] or 0) >= step for a in attempts(status, name))


def test_an_uninterrupted_run_completes_and_cancels_what_is_left_over(person: Person) -> None:
    run = person.submit(counter(steps=20))
    done = person.finish(run)
    assert done["status"] == "complete", person.story(run)
    first, *rest = attempts(done)
    assert (first["state"], first["exit_code"], first["step"]) == ("COMPLETED", 0, 20)
    assert all(a["cancelled_by_us"] and a["state"] == "CANCELLED" for a in rest)
    assert person.run("tick").stdout.strip() == "no unfinished runs"


@pytest.mark.slow
def test_a_stage_rolls_over_three_links_by_wall_time_and_loses_no_step(person: Person) -> None:
    experiment = counter(steps=400, time_limit="00:01:00", args=("--step-s", "0.25", "--every", "1000"))
    experiment["stages"]["count"]["chain"]["max_links"] = 6
    run = person.submit(experiment)
    done = person.finish(run, timeout_s=400)
    assert done["status"] == "complete", person.story(run)
    worked = [a for a in attempts(done) if a["gate"] == "go"]
    assert len(worked) >= 3
    assert [a["category"] for a in worked] == ["time_limit"] * (len(worked) - 1) + ["healthy"]
    # It saves only when told to stop: every link goes on exactly where the last one ended.
    assert [a["resumed_from"] for a in worked] == [0] + [a["step"] for a in worked[:-1]]
    assert worked[-1]["step"] == 400


@pytest.mark.slow
def test_a_killed_node_is_followed_by_the_next_link_and_its_row_is_kept(
    person: Person, slurm_cluster
) -> None:
    run = person.submit(counter(steps=60, nodes=2, args=("--step-s", "0.2", "--every", "5")))
    seen = person.until(run, lambda s: running(s, step=5))
    victim = slurm_hosts(person, attempts(seen)[0]["nodes"])[-1]
    slurm_cluster.kill_node(victim)
    done = person.finish(run, timeout_s=240)
    assert done["status"] == "complete", person.story(run)
    lost = attempts(done)[0]
    # Given back by its supervisor before Slurm says NODE_FAIL, or by Slurm when that was the batch host.
    assert lost["state"] in ("NODE_FAIL", "FAILED") and lost["category"] == "node_down"
    finisher = next(a for a in attempts(done) if a["category"] == "healthy")
    assert finisher["resumed_from"] >= 5
    assert victim not in slurm_hosts(person, finisher["nodes"])


@pytest.mark.slow
def test_preemption_by_the_high_partition_saves_and_goes_on(person: Person, slurm_cluster) -> None:
    run = person.submit(counter(steps=100, args=("--step-s", "0.2", "--every", "1000")))
    seen = person.until(run, lambda s: running(s, step=10))
    # Its own node, not all of them: one that an earlier test has killed may not be back yet.
    (node,) = slurm_hosts(person, attempts(seen)[0]["nodes"])
    ask = ["sbatch", "--parsable", "-p", "high", "-w", node, "--exclusive", "-t", "2"]
    ask += ["--wrap", "sleep 8"]
    high = subprocess.run(ask, env=person.env, capture_output=True, text=True, check=True, cwd=person.workdir)
    assert high.stdout.strip().isdigit()
    done = person.finish(run, timeout_s=240)
    assert done["status"] == "complete", person.story(run)
    worked = [a for a in attempts(done) if a["gate"] == "go"]
    assert worked[0]["state"] == "PREEMPTED" and worked[0]["category"] == "preempted"
    assert worked[1]["resumed_from"] == worked[0]["step"] >= 10


def test_scancel_by_the_user_stops_the_chain_and_is_not_retried(person: Person) -> None:
    run = person.submit(counter(steps=1000))
    seen = person.until(run, running)
    subprocess.run(["scancel", attempts(seen)[0]["job_id"]], env=person.env, check=True)
    done = person.finish(run)
    assert done["status"] == "cancelled"
    assert stage(done, "count")["rule"] == "user-cancelled"
    worked = [a for a in attempts(done) if a["gate"] == "go"]
    assert len(worked) == 1 and worked[0]["category"] == "user_cancelled"
    assert not [a for a in attempts(done) if a["state"] in ("PENDING", "RUNNING")]


def test_a_failing_config_stops_after_one_attempt_and_names_the_reason(person: Person) -> None:
    experiment = counter(args=("--config-error",))
    experiment["stages"]["after"] = {
        "kind": "command",
        "needs": "count",
        "run": ["true"],
        "resources": {"time": "00:05:00", "mem": "100M"},
    }
    run = person.submit(experiment)
    done = person.finish(run)
    assert done["status"] == "stopped"
    count, after = stage(done, "count"), stage(done, "after")
    assert len([a for a in count["attempts"] if a["gate"] == "go"]) == 1
    assert count["category"] == "config_error" and "hidden_size 65" in count["reason"]
    assert after["status"] == "stopped" and after["rule"] == "needs:count"
    assert not [a for a in after["attempts"] if a["gate"] == "go"]
    shown = person.run("status", run).stdout
    assert "hidden_size 65 cannot be split over 2 heads" in shown


@pytest.mark.slow
def test_a_requeued_job_shows_its_history_attempt_by_attempt(
    slurm_cluster, slurm_env: dict[str, str], slurm_workdir: Path
) -> None:
    person = Person(slurm_workdir, environment(slurm_env), requeue=True)
    run = person.submit(
        counter(
            steps=60,
            args=("--step-s", "0.2", "--every", "5"),
            chain={"lookahead": 1, "startup": "5s", "save_time": "2s", "signal_lead": "10s"},
        )
    )
    seen = person.until(run, lambda s: running(s, step=5))
    first = attempts(seen)[0]
    slurm_cluster.kill_node(first["nodes"])
    done = person.finish(run, timeout_s=240)
    assert done["status"] == "complete", person.story(run)
    rows = [a for a in attempts(done) if a["job_id"] == first["job_id"]]
    assert [(a["restart_count"], a["state"]) for a in rows] == [(0, "NODE_FAIL"), (1, "COMPLETED")]
    assert rows[1]["resumed_from"] >= 5


@pytest.mark.parametrize("requeue", [True, False], ids=["requeued and held", "given up"])
def test_a_prolog_failure_drains_the_node_and_the_work_goes_on_elsewhere(
    slurm_cluster, slurm_env: dict[str, str], slurm_workdir: Path, requeue: bool
) -> None:
    """Slurm holds a job that may be requeued (it is released), and ends one that may not."""
    person = Person(slurm_workdir, environment(slurm_env), requeue=requeue)
    slurm_cluster.fail_prolog("a1")
    run = person.submit(
        counter(
            steps=10,
            chain={"lookahead": 1, "startup": "5s", "save_time": "2s", "signal_lead": "10s"},
        )
    )
    done = person.finish(run, timeout_s=120)
    assert done["status"] == "complete", person.story(run)
    finisher = next(a for a in attempts(done) if a["category"] == "healthy")
    assert finisher["nodes"] != "a1"


def test_two_runs_at_once_do_not_mix(person: Person) -> None:
    one = person.submit(counter("one", steps=20))
    two = person.submit(counter("two", steps=30))
    assert person.finish(one)["status"] == person.finish(two)["status"] == "complete"
    assert attempts(person.status(one))[0]["step"] == 20
    assert attempts(person.status(two))[0]["step"] == 30


def slurm_hosts(person: Person, nodelist: str) -> list[str]:
    """Slurm's own expansion of a node list."""
    ask = ["scontrol", "show", "hostnames", nodelist]
    return subprocess.run(ask, env=person.env, capture_output=True, text=True, check=True).stdout.split()
