"""What nodes report of their ranks, put together."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resiliency.fleet import Fleet, row
from resiliency.hang import History, Settings, limit, stalled
from resiliency.steprecord import Snapshot
from resiliency.straggler import Digest


def snapshot(rank: int = 3, **more: Any) -> Snapshot:
    known: dict[str, Any] = {
        "pid": 77, "beats": 12, "step": 5, "section": "step", "entered": 98.0, "beat": 98.0,
        "in_collective": True, "compute_times": (0.2, 0.3, 0.4),
        "slowest": {"step": 0.4567891}, "collectives": 9,
    }  # fmt: skip
    return Snapshot(rank, **{**known, **more})


def test_a_report_comes_back_as_it_was_meant() -> None:
    fleet = Fleet()
    sent = json.loads(json.dumps([row(snapshot(), now=100.0, state="S")]))
    fleet.update("n2", sent, now=5.0)
    [seen] = fleet.views(now=6.5)
    assert (seen.rank, seen.node, seen.section, seen.step, seen.beats) == (3, "n2", "step", 5, 12)
    assert (seen.age_s, seen.stale_s, seen.in_collective, seen.pid, seen.state) == (3.5, 1.5, True, 77, "S")
    assert seen.collectives == 9 and seen.slowest["step"] == pytest.approx(0.4567, rel=0.01)
    assert fleet.node_of(3) == "n2" and fleet.node_of(4) is None
    [compute] = fleet.compute_times().values()
    assert (compute.count, compute.median_s) == (3, pytest.approx(0.3))


@given(st.floats(0, 1e6))
def test_rounding_on_the_way_makes_no_limit_tighter(seconds: float) -> None:
    fleet, history = Fleet(), History()
    history.learn(fleet.update("n", [row(snapshot(slowest={"step": seconds}), 100.0)], 0.0))
    assert history.slowest["step"] >= seconds
    assert limit("step", history, Settings(floor=0.1, factor=1.5, first=1.0)) >= seconds


def test_a_short_row_is_enough() -> None:
    fleet = Fleet()
    fleet.update("n", [[0, 4, "eval", 2, 1.5, False, 0.25]], now=0.0)
    [seen] = fleet.views(0.0)
    assert (seen.section, seen.state, dict(seen.slowest)) == ("eval", "?", {})
    assert fleet.compute_times()[0] == Digest(0, 0.25, 0.0)


def test_columns_of_a_newer_agent_are_left_out() -> None:
    fleet = Fleet()
    fleet.update("n", [[*row(snapshot(), 100.0), "new", 1]], now=0.0)
    assert len(fleet.views(0.0)) == 1


@pytest.mark.parametrize(
    "bad", [[], [1, 2], ["x"] * 7, None, 5, "text", [0, 1, "s", 1, 1.0, 0, 1.0, 0, 0.0, 0, "?", 0, 7]]
)
def test_a_row_that_makes_no_sense_costs_that_row(bad: Any) -> None:
    fleet = Fleet()
    fleet.update("n", [bad, row(snapshot(1), 100.0)], now=0.0)
    assert [seen.rank for seen in fleet.views(0.0)] == [1]


def test_the_newest_word_counts_and_what_is_not_heard_is_no_progress() -> None:
    fleet = Fleet()
    for at, step in ((0.0, 5), (10.0, 50)):
        fleet.update("n0", [row(snapshot(0, step=step), 98.0)], at)
    fleet.update("n1", [row(snapshot(1, step=20), 98.0)], 0.0)
    assert (fleet.min_step, fleet.max_step) == (20, 50)
    assert [(seen.step, seen.age_s) for seen in fleet.views(12.0)] == [(50, 2.0), (20, 12.0)]


def test_a_node_that_falls_silent_while_the_others_wait_is_a_stall() -> None:
    fleet, history = Fleet(), History()
    history.learn(fleet.update("n1", [row(snapshot(1, in_collective=False), 98.0)], 0.0))
    history.learn(fleet.update("n0", [row(snapshot(0), 108.0)], 20.0))
    assert stalled(fleet.views(20.0), history, Settings(floor=8.0)) is not None


def test_a_rank_without_a_step_leaves_the_least_one_open() -> None:
    fleet = Fleet()
    assert fleet.max_step is None and fleet.min_step is None
    fleet.update("n", [row(snapshot(0), 98.0), row(snapshot(1, step=None), 98.0)], 0.0)
    assert (fleet.min_step, fleet.max_step) == (None, 5)


def test_the_slowest_pass_of_all_ranks() -> None:
    fleet = Fleet()
    rows = [row(snapshot(n, slowest={"step": float(n), "eval": 1.0}), 98.0) for n in range(1, 4)]
    fleet.update("n", rows, 0.0)
    assert fleet.slowest == pytest.approx({"step": 3.0, "eval": 1.0}, rel=0.01)
