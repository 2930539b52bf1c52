"""metrics.stats.repairs: out, back, and what followed."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.stats.repairs import STATES, Outage, repairs

DAY = 86400.0


def states(outages: list[Outage], failures: list[float], now: float) -> list[str]:
    return [one.state for one in repairs("n1", outages, failures, now)]


def test_four_ways_it_can_go() -> None:
    outages = [
        Outage(0 * DAY, 1 * DAY, "xid 79"),
        Outage(10 * DAY, 11 * DAY, "swapped GPU"),
        Outage(50 * DAY, 51 * DAY, "cable"),
        Outage(60 * DAY, None, "slow"),
    ]
    found = repairs("n1", outages, [9 * DAY], 70 * DAY)
    assert [(one.state, one.failed_at) for one in found] == [
        ("relapsed", 9 * DAY),
        ("well", None),
        ("cut", None),
        ("out", None),
    ]
    assert found[0].node == "n1" and found[0].reason == "xid 79"
    assert (found[3].out_at, found[3].back_at) == (60 * DAY, None)


def test_the_window_is_half_open() -> None:
    back = [Outage(0.0, DAY, "x")]
    assert states(back, [DAY], 30 * DAY) == ["relapsed"]
    assert states(back, [15 * DAY - 1], 30 * DAY) == ["relapsed"]
    assert states(back, [15 * DAY], 30 * DAY) == ["well"]
    assert states(back, [], 15 * DAY) == ["well"]
    assert states(back, [], 15 * DAY - 1) == ["watched"]


def test_what_fails_while_it_is_out_says_nothing() -> None:
    assert states([Outage(0.0, 5 * DAY, "x")], [2 * DAY], 40 * DAY) == ["well"]


def test_the_failure_that_takes_it_out_again_is_a_relapse() -> None:
    outages = [Outage(0.0, DAY, "x"), Outage(3 * DAY, 4 * DAY, "x")]
    assert states(outages, [3 * DAY], 40 * DAY) == ["relapsed", "well"]


def test_the_future_is_not_known() -> None:
    assert states([Outage(0.0, 10 * DAY, "x")], [], 5 * DAY) == ["out"]
    assert states([Outage(0.0, DAY, "x")], [9 * DAY], 5 * DAY) == ["watched"]


def test_reasons_that_overlap_are_one_time_out() -> None:
    outages = [Outage(4 * DAY, 9 * DAY, "b"), Outage(0.0, 5 * DAY, "a"), Outage(1 * DAY, 2 * DAY, "a")]
    (found,) = repairs("n1", outages, [], 100 * DAY)
    assert (found.out_at, found.back_at, found.reason) == (0.0, 9 * DAY, "a; b")
    (still,) = repairs("n1", [Outage(0.0, None, "a"), Outage(5 * DAY, 6 * DAY, "b")], [], 100 * DAY)
    assert (still.state, still.back_at) == ("out", None)


def test_a_shorter_window() -> None:
    (found,) = repairs("n1", [Outage(0.0, DAY, "x")], [5 * DAY], 30 * DAY, window_days=3.0)
    assert found.state == "well"


def test_never_out() -> None:
    assert repairs("n1", [], [1.0, 2.0], 10.0) == ()


@pytest.mark.parametrize(
    ("outages", "failures", "now", "window"),
    [
        ([Outage(5.0, 4.0, "x")], [], 10.0, 14.0),
        ([Outage(math.nan, 4.0, "x")], [], 10.0, 14.0),
        ([Outage(1.0, math.nan, "x")], [], 10.0, 14.0),
        ([], [math.nan], 10.0, 14.0),
        ([], [], math.inf, 14.0),
        ([], [], 10.0, 0.0),
    ],
)
def test_bad_input(outages: list[Outage], failures: list[float], now: float, window: float) -> None:
    with pytest.raises(ValueError, match=r"out at|no number|over 0 days"):
        repairs("n1", outages, failures, now, window)


spans = st.tuples(st.floats(0, 1e7), st.none() | st.floats(0, 1e6)).map(
    lambda span: Outage(span[0], None if span[1] is None else span[0] + span[1], "x")
)


@settings(max_examples=80)
@given(st.lists(spans, max_size=8), st.lists(st.floats(0, 2e7), max_size=8), st.floats(1, 2e7))
def test_times_out_never_overlap_and_each_has_a_state(
    outages: list[Outage], failures: list[float], now: float
) -> None:
    found = repairs("n1", outages, failures, now)
    assert len(found) <= len(outages)
    assert bool(found) == bool(outages)
    for one, after in pairwise(found):
        assert one.state == "out" or (one.back_at or 0.0) < after.out_at
    for one in found:
        assert one.state in STATES
        assert (one.failed_at is not None) == (one.state == "relapsed")
