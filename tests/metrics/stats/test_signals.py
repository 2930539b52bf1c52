"""metrics.stats.signals: bounds from the fleet, what is high, what is not known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.stats.signals import LEAST_NODES, QUANTILE, SIGNALS, bounds, check, score


def test_the_papers_seven() -> None:
    assert list(SIGNALS) == [
        "excl_jobid_count",
        "xid_cnt",
        "tickets",
        "out_count",
        "multi_node_node_fails",
        "single_node_node_fails",
        "single_node_node_failure_rate",
    ]
    assert [signal.name for signal in SIGNALS.values() if not signal.counts] == ["excl_jobid_count"]


def test_bounds_are_the_fleets_98_percent() -> None:
    fleet = [{"xid_cnt": float(at), "tickets": 0.0} for at in range(1, 101)]
    assert bounds(fleet) == {"xid_cnt": 98.0, "tickets": 0.0}


def test_too_few_nodes_give_no_bound() -> None:
    few = [{"xid_cnt": 1.0}] * (LEAST_NODES - 1)
    assert bounds(few) == {}
    assert bounds([*few, {"xid_cnt": 1.0}]) == {"xid_cnt": 1.0}
    nothing = score({"xid_cnt": 9.0}, {})
    assert (nothing.high, nothing.known, nothing.value) == ((), ("xid_cnt",), None)


def test_a_value_at_the_bound_is_not_high() -> None:
    limits = {"xid_cnt": 2.0, "tickets": 0.0, "excl_jobid_count": 1.0}
    found = score({"tickets": 1, "xid_cnt": 2, "excl_jobid_count": 5}, limits)
    assert found.high == (("excl_jobid_count", 5, 1.0), ("tickets", 1, 0.0))
    assert found.value == 1  # exclusions by users are shown and do not count
    assert found.known == ("excl_jobid_count", "xid_cnt", "tickets")
    assert found.absent == tuple(SIGNALS)[3:]


def test_what_is_not_known_is_not_zero() -> None:
    assert score({}, {"xid_cnt": 0.0}).value is None
    assert score({}, {"xid_cnt": 0.0}).absent == tuple(SIGNALS)
    assert score({"excl_jobid_count": 9.0}, {"excl_jobid_count": 0.0}).value is None


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_bad_values(value: float) -> None:
    with pytest.raises(ValueError, match="n1: tickets must not be negative"):
        check("n1", {"tickets": value})


def test_unknown_names() -> None:
    with pytest.raises(ValueError, match=r"n1: no such signal: 'ecc' \(known: excl_jobid_count, xid_cnt"):
        check("n1", {"ecc": 1})


@given(st.lists(st.floats(0, 1e6), min_size=LEAST_NODES, max_size=300))
def test_at_most_two_in_a_hundred_are_high(values: list[float]) -> None:
    fleet = [{"xid_cnt": value} for value in values]
    limits = bounds(fleet)
    high = sum(score(one, limits).value or 0 for one in fleet)
    assert high <= (1 - QUANTILE) * len(fleet) + 1e-9
