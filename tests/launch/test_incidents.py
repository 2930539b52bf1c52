"""What an incident is taken for and what is decided, from agents' words and the run's journal."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from launch import incidents
from launch.allocation import Allocation
from launch.config import read_stage_config
from launch.journaling import SafeJournal
from launch.outcome import RankEnd
from launch.segment import Segment
from launch.team import Team
from resiliency import contract

from .conftest import CLUSTER, RUN_ID, RunDir

CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:3307"


def team(*ends: RankEnd, nodes: str = "ab", spares: str = "") -> Team:
    made = Team.of([*nodes, *spares])
    for node in made.members:
        made.take(node, {"kind": "hello", "node": node})
    made.begin(0, list(nodes))
    for node in nodes:
        mine = [end.as_data() for end in ends if end.node == node]
        made.take(node, {"kind": "ended", "cycle": 0, "ends": mine, "step": 12})
    return made


def segment(run_dir: RunDir, **launch: Any) -> Segment:
    run_dir.stage(argv=["x"], nodes=2, restarts_in_job=2, **launch)
    run_dir.queue(1, "17")
    config = read_stage_config(run_dir.paths.stage_config("work"))
    allocation = Allocation("local", "17", 0, "a,b", "127.0.0.1")
    attempt = allocation.attempt(CLUSTER)
    journal = SafeJournal(
        run_dir.paths.journal, run=RUN_ID, writer="supervisor", defaults={"stage": "work", "attempt": attempt}
    )
    it = Segment(config, run_dir.paths, allocation, 1, journal, lambda: None)
    journal.append("attempt.started", {"token": contract.token(RUN_ID, "work", 1), "link": 1, "job_id": "17"})
    journal.append("attempt.gate", {"verdict": "go"})
    return it


def test_all_well_is_no_incident() -> None:
    well = [RankEnd(0, 0, 1.0, node="a"), RankEnd(1, 75, 1.0, node="b")]
    assert incidents.rank_end(team(*well)) is None


def test_the_rank_that_went_first_is_named_and_one_that_followed_is_not_the_cause(run_dir: RunDir) -> None:
    followed = RankEnd(0, 1, 10.0, CLOSED, node="a")
    killed = RankEnd(1, 139, 10.1, node="b")
    seen = team(followed, killed)
    incident = incidents.rank_end(seen)
    assert incident is not None and incident.kind == "rank_end"
    it = segment(run_dir)
    decision = incidents.decide(it, seen, incident, seen.ends(), 12)
    verdict = run_dir.one("verdict").data
    assert (verdict["rank"], verdict["node"]) == (1, "b") and "139" in verdict["reason"]
    assert decision.stays and decision.action.value == "restart_in_job"
    ended = run_dir.one("cycle.ended").data
    assert ended["continued"] and ended["step"] == 12 and ended["codes"] == {"1": 1, "139": 1}
    order = [event.type for event in run_dir.events() if event.writer == "supervisor"][2:]
    assert order[0] == "incident" and order.index("verdict") < order.index("decision")


def test_the_same_failure_at_the_same_step_stops_within_one_allocation(run_dir: RunDir) -> None:
    it = segment(run_dir)
    words = []
    for cycle in (0, 1):
        seen = team(RankEnd(0, 1, time.time(), "ValueError: the same", node="a"))
        seen.cycle = it.cycle = cycle
        incident = incidents.rank_end(seen)
        assert incident is not None
        words.append(incidents.decide(it, seen, incident, seen.ends(), 12))
    assert words[0].stays
    assert (words[1].stays, words[1].action.value, words[1].rule) == (
        False,
        "stop",
        "same-signature-same-step",
    )


def test_restarts_are_counted(run_dir: RunDir) -> None:
    it = segment(run_dir)
    seen = team(RankEnd(0, 1, time.time(), "ValueError: another", node="a"))
    seen.cycle = it.cycle = 2
    incident = incidents.rank_end(seen)
    assert incident is not None
    assert not incidents.decide(it, seen, incident, seen.ends(), 12).stays


def test_in_shadow_it_is_said_and_not_done(run_dir: RunDir) -> None:
    it = segment(run_dir, recovery={"shadow": True})
    seen = team(RankEnd(0, 1, time.time(), "ValueError: x", node="a"))
    incident = incidents.rank_end(seen)
    assert incident is not None
    decision = incidents.decide(it, seen, incident, seen.ends(), 12)
    told = run_dir.one("decision").data
    assert told["shadow"] and told["action"] == "restart_in_job" and not decision.stays


@pytest.mark.parametrize(
    ("spares", "left_s", "shadow", "rule"),
    [
        ("s", None, False, None),
        ("", None, False, "straggler:no-spare"),
        ("s", 1, False, "straggler:no-time-left"),
        ("s", None, True, "straggler:swap"),
    ],
)
def test_a_slow_rank_ends_the_cycle_only_if_the_policy_swaps_it_out(
    run_dir: RunDir, spares: str, left_s: float | None, shadow: bool, rule: str | None
) -> None:
    it = segment(run_dir, startup_s=30)
    it.config.recovery["shadow"] = shadow
    it.allocation = replace(it.allocation, time_limit_s=left_s)
    seen = team(spares=spares)
    slow = incidents.Incident("straggler", "rank 1 on b takes 2.00 times", 1.0, 2.0, "b", 1, swap=True)
    assert incidents.worth_a_restart(it, seen, slow) is (rule is None)
    said = [event.data for event in run_dir.events("decision")]
    assert [(data["rule"], data["shadow"]) for data in said] == ([] if rule is None else [(rule, shadow)])
    assert not run_dir.events("cycle.ended")
