"""metrics.stats.lemons: planted lemons are found, luck is not called one, and small fleets are not judged."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.stats.lemons import NodeRecord, Policy, power, rank
from tests.metrics.stats.fleets import LEMONS, Found, looked_at, records

SEEDS = range(6)


def pooled(**how) -> tuple[float, float, float]:
    """(precision, recall, share of the healthy that is called) over the seeds."""
    found: list[Found] = [looked_at(seed, **how) for seed in SEEDS]
    hits, wrong = sum(one.hits for one in found), sum(one.wrong for one in found)
    planted = sum(len(one.truth) for one in found)
    return hits / max(1, hits + wrong), hits / planted, wrong / sum(one.ranking.nodes for one in found)


# --- 2,000 nodes, 24 lemons -----------------------------------------------------------------------


def test_ninety_days_are_enough_for_those_that_fail_ten_to_twenty_times_as_often() -> None:
    """90 days at the published rate: a healthy node has 0.6 failures, a lemon 6 to 12."""
    precision, recall, flagged = pooled(days=90.0, times=(10.0, 20.0))
    assert precision >= 0.85
    assert recall >= 0.80
    assert flagged <= 0.01


def test_four_weeks_are_enough_for_those_that_fail_twenty_to_forty_times_as_often() -> None:
    precision, recall, flagged = pooled(days=28.0, times=(20.0, 40.0))
    assert precision >= 0.83  # 0.855 over twenty seeds
    assert recall >= 0.80
    assert flagged <= 0.01


def test_four_weeks_are_too_short_for_ten_times_as_often_and_nobody_is_called_instead() -> None:
    """0.18 failures of a healthy node, 1.8 of a lemon: 29 healthy nodes fail twice by luck."""
    precision, recall, flagged = pooled(days=28.0, times=(10.0, 20.0))
    assert precision >= 0.85
    assert 0.2 <= recall <= 0.6
    assert flagged <= 0.001


def test_nodes_that_are_not_alike_and_not_always_busy() -> None:
    """Healthy rates spread by a half, half to all of 120 days allocated."""
    precision, recall, flagged = pooled(days=120.0, spread=4.0, busy=(0.5, 1.0))
    assert precision >= 0.80
    assert recall >= 0.80
    assert flagged <= 0.01


@pytest.mark.parametrize("how", [{}, {"days": 28.0}, {"spread": 4.0}, {"nodes": 100}, {"nodes": 8}])
def test_without_lemons_hardly_anybody_is_called(how: dict) -> None:
    found = [looked_at(seed, lemons=0, **how) for seed in SEEDS]
    called = sum(one.wrong for one in found)
    assert called <= 0.0005 * sum(one.ranking.nodes for one in found)


def test_the_stated_share_of_wrong_ones_is_what_it_comes_to() -> None:
    """Expected by the model against counted, at three limits, over four fleets each."""
    for fdr in (0.02, 0.1, 0.3):
        found = [looked_at(seed, Policy(fdr=fdr)) for seed in range(4)]
        called, wrong = sum(len(one.called) for one in found), sum(one.wrong for one in found)
        assert wrong / called <= fdr + 3 * math.sqrt(fdr * (1 - fdr) / called)


def test_power_is_what_is_found() -> None:
    """The chance that is stated is on the careful side, by no more than a fifth."""
    for days, times in ((90.0, 15.0), (90.0, 10.0), (28.0, 30.0)):
        found = [looked_at(seed, days=days, times=(times, times)) for seed in SEEDS]
        seen = sum(one.hits for one in found) / (LEMONS * len(SEEDS))
        assert seen - 0.22 <= power(6.5, days, times) <= seen + 0.08


# --- what a person reads --------------------------------------------------------------------------


def fleet_with(*bad: NodeRecord) -> list[NodeRecord]:
    """99 nodes with half a failure each in 90 days."""
    return [NodeRecord(f"n{at:02}", 90.0, at % 2) for at in range(99)] + list(bad)


def test_evidence() -> None:
    found = rank(fleet_with(NodeRecord("lemon", 90.0, 9)))
    first = found.standings[0]
    assert (first.node, first.lemon, len(found.lemons)) == ("lemon", True, 1)
    assert found.fleet_rate == pytest.approx(1000 * 49 / (99 * 90), rel=0.03)
    assert first.expected == pytest.approx(49 / 99, rel=0.03)
    assert first.luck == pytest.approx(0.495**9 / math.factorial(9) * math.exp(-0.495) * 1.05, rel=0.35)
    assert first.low < first.rate < first.high
    assert first.rate == pytest.approx(100.0, rel=0.2)
    times = 9 / first.expected
    assert first.evidence == (
        f"9 failures in 90.0 node-days; a node of this fleet ({found.fleet_rate:.3g} per 1000 node-days)"
        f" has {first.expected:.2g}, {times:.3g} times as many",
        f"as many or more by luck: probability {first.luck:.2g}",
        f"rate {first.rate:.3g} per 1000 node-days (95%: {first.low:.3g} to {first.high:.3g}); over 4 times"
        f" the fleet's with probability {first.probability:.3g}",
    )


def test_signals_are_evidence_and_order_equals_but_call_nobody() -> None:
    def with_signals(one: NodeRecord) -> NodeRecord:
        values = {"xid_cnt": 0.0, "tickets": 1.0, "excl_jobid_count": 3.0}
        return NodeRecord(one.node, one.node_days, one.failures, values)

    fleet = [with_signals(one) for one in fleet_with()]
    loud = NodeRecord("z", 90.0, 0, {"xid_cnt": 5.0, "tickets": 1.0, "excl_jobid_count": 9.0})
    found = rank([*fleet, loud])
    assert found.lemons == ()
    order = [one.node for one in found.standings if one.failures == 0]
    assert order[0] == "z"
    (standing,) = (one for one in found.standings if one.node == "z")
    assert standing.score.value == 1
    assert standing.evidence[-3:] == (
        "excl_jobid_count 9, 98% of nodes have at most 3 (jobs whose users excluded the node; shown only, a"
        " weak sign)",
        "xid_cnt 5, 98% of nodes have at most 0 (different Xid errors of its GPUs)",
        "not known: out_count, multi_node_node_fails, single_node_node_fails, single_node_node_failure_rate",
    )


def test_ranking_holds_every_node_and_the_sums() -> None:
    found = rank(fleet_with(NodeRecord("lemon", 90.0, 9)))
    assert (found.nodes, found.failures, len(found.standings)) == (100, 58, 100)
    assert found.node_days == pytest.approx(9000.0)
    chances = [one.probability for one in found.standings]
    assert chances == sorted(chances, reverse=True)
    assert [one.fdr for one in found.standings] == sorted(one.fdr for one in found.standings)
    assert found.notes == (
        f"a node that fails 10 times as often as the fleet is called with probability"
        f" {power(found.fleet_rate, 90.0, 10.0):.2g} after 90 node-days (the median)",
    )


# --- small, empty, absurd -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fleet",
    [
        [],
        [NodeRecord("a", 30.0, 50)],
        [NodeRecord("a", 30.0, 50), NodeRecord("b", 30.0, 0)],
        [NodeRecord("a", 30.0, 50), NodeRecord("b", 30.0, 0), NodeRecord("c", 30.0, 0)],
    ],
)
def test_a_fleet_of_up_to_three_is_not_judged(fleet: list[NodeRecord]) -> None:
    found = rank(fleet)
    assert found.lemons == ()
    assert len(found.standings) == len(fleet)
    assert found.notes[0] == (
        f"{len(fleet)} node{'' if len(fleet) == 1 else 's'} watched: too few to tell a lemon from its fleet,"
        " nobody is called (at least 4)"
    )


def test_eight_nodes_one_of_them_hopeless() -> None:
    found = rank([NodeRecord(f"n{at}", 60.0, at % 2) for at in range(7)] + [NodeRecord("bad", 60.0, 20)])
    assert [one.node for one in found.lemons] == ["bad"]
    assert "drawn towards the published 6.5" in found.notes[0]


def test_a_few_days_say_nothing() -> None:
    """Five failures on one of four nodes in a day: the others were not watched for long enough to differ."""
    found = rank([NodeRecord("bad", 1.0, 5), *(NodeRecord(f"n{at}", 1.0, 0) for at in range(3))])
    assert found.lemons == ()
    assert found.standings[0].node == "bad"


def test_no_failures_at_all() -> None:
    found = rank([NodeRecord(f"n{at}", 28.0, 0) for at in range(200)])
    assert found.lemons == ()
    assert found.fleet_low == 0.0
    assert 0.0 < found.fleet_rate < found.fleet_high
    assert max(one.probability for one in found.standings) < 0.02
    assert "as many or more" not in " ".join(found.standings[0].evidence)


def test_one_failure_is_never_a_lemon() -> None:
    found = rank([*(NodeRecord(f"n{at}", 5000.0, 0) for at in range(100)), NodeRecord("once", 0.001, 1)])
    assert found.lemons == ()


def test_nodes_without_any_time_are_said() -> None:
    found = rank(fleet_with(NodeRecord("ghost", 0.0, 7)))
    assert found.lemons == ()
    assert found.notes[0] == "1 node without any node-days cannot be judged (7 failures): ghost"
    (ghost,) = (one for one in found.standings if one.node == "ghost")
    assert (ghost.expected, ghost.luck) == (0.0, 1.0)
    assert ghost.evidence[0].startswith("7 failures in 0.0 node-days")


def test_a_fleet_where_every_node_fails_hourly() -> None:
    found = rank([NodeRecord(f"n{at}", 10.0, 240 + at % 7) for at in range(40)])
    assert found.lemons == ()
    assert found.fleet_rate == pytest.approx(24_300, rel=0.03)


@pytest.mark.parametrize(
    ("fleet", "says"),
    [
        ([NodeRecord("a", -1.0, 0)], "a: node-days must not be negative"),
        ([NodeRecord("a", math.nan, 0)], "a: node-days must not be negative"),
        ([NodeRecord("a", math.inf, 0)], "a: node-days must not be negative"),
        ([NodeRecord("a", 1.0, -1)], "a: failures must be a whole number"),
        ([NodeRecord("a", 1.0, 10**7)], "a: failures must be a whole number from 0 to 1000000"),
        ([NodeRecord("a", 1.0, 0), NodeRecord("a", 1.0, 0)], "node twice: a"),
        ([NodeRecord("a", 1.0, 0, {"xids": 1})], "a: no such signal: 'xids'"),
        ([NodeRecord("a", 1.0, 0, {"xid_cnt": -1})], "a: xid_cnt must not be negative"),
    ],
)
def test_bad_records(fleet: list[NodeRecord], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        rank(fleet)


def test_bad_policies() -> None:
    for bad in ({"factor": 0.5}, {"factor": math.inf}, {"fdr": 0.0}, {"fdr": 1.0}, {"level": 1.0}):
        with pytest.raises(ValueError, match="must"):
            Policy(**bad)
    with pytest.raises(ValueError, match="over 0"):
        power(0.0, 28.0, 10.0)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.0, 1e12) | st.floats(0.0, 100.0), st.integers(0, 10**6)), max_size=12),
    st.floats(1.0, 100.0),
    st.floats(0.001, 0.999),
)
def test_any_fleet_gets_an_answer(fleet: list[tuple[float, int]], factor: float, fdr: float) -> None:
    policy = Policy(factor=factor, fdr=fdr)
    found = rank([NodeRecord(str(at), days, n) for at, (days, n) in enumerate(fleet)], policy)
    assert sorted(one.node for one in found.standings) == sorted(str(at) for at in range(len(fleet)))
    for one in found.standings:
        assert 0.0 <= one.probability <= 1.0 and 0.0 <= one.fdr <= 1.0 and 0.0 <= one.luck <= 1.0
        assert one.low <= one.high
        assert one.evidence
        assert not one.lemon or (one.fdr <= fdr and one.failures >= 2 and len(fleet) >= 4)


def test_ten_thousand_nodes_in_a_second() -> None:
    fleet, _ = records(1, nodes=10_000, lemons=120, busy=(0.5, 1.0))
    start = time.process_time()
    rank(fleet)
    assert time.process_time() - start < 2.0  # 0.43 s on an idle core; twice the promise on a busy one
