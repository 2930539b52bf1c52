"""metrics.stats.advice: against a simulated run, a brute-force minimum and sums by hand."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from metrics.stats.advice import CauseCost, checkpoint_interval, expected_ettr, first_to_fix, spares
from resiliency.daly import daly

HOUR, MINUTE = 3600.0, 60.0


def simulated(interval: float, stall: float, mtbf: float, recovery: float, hours: float, seed: int) -> float:
    """Share of time that is new training: save, fail, go back to the last save, recover (may fail too)."""
    dice = random.Random(seed)
    now, kept, end = 0.0, 0.0, hours * HOUR
    failure = dice.expovariate(1 / mtbf)
    while now < end:
        if now + interval + stall <= failure:
            now += interval + stall
            kept += interval
            continue
        while True:
            now, failure = failure, failure + dice.expovariate(1 / mtbf)
            if now + recovery <= failure:
                break
        now += recovery
    return kept / now


@pytest.mark.parametrize(
    ("interval", "stall", "mtbf", "recovery"),
    [(30 * MINUTE, 20.0, 6 * HOUR, 300.0), (HOUR, 300.0, 3 * HOUR, 600.0), (5 * MINUTE, 5.0, HOUR, 900.0)],
)
def test_ettr_is_what_a_simulated_run_gets(
    interval: float, stall: float, mtbf: float, recovery: float
) -> None:
    seen = simulated(interval, stall, mtbf, recovery, hours=60_000, seed=1)
    assert expected_ettr(interval, stall, mtbf, recovery) == pytest.approx(seen, abs=0.004)


def test_ettr_by_hand() -> None:
    """τ = M, nothing else costs: 1 / (e - 1)."""
    assert expected_ettr(100.0, 0.0, 100.0, 0.0) == pytest.approx(1 / (math.e - 1), rel=1e-14)
    assert expected_ettr(1.0, 0.0, 1e12, 0.0) == pytest.approx(1.0, abs=1e-9)
    assert expected_ettr(90.0, 10.0, 1e12, 0.0) == pytest.approx(0.9, abs=1e-9)
    assert expected_ettr(1e6, 0.0, 1.0, 0.0) == 0.0


def test_a_save_in_the_background_delays_what_it_protects() -> None:
    plain = expected_ettr(600.0, 1.0, 20 * HOUR, 300.0)
    late = expected_ettr(600.0, 1.0, 20 * HOUR, 300.0, persist_s=120.0)
    assert plain - late == pytest.approx(plain * 120.0 / (20 * HOUR), rel=0.01)


def test_interval_of_five_minutes_a_save_and_a_day_between_failures() -> None:
    found = checkpoint_interval(4 * HOUR, 5 * MINUTE, 24 * HOUR, 10 * MINUTE, 18 * HOUR, 34 * HOUR)
    assert found.best / MINUTE == pytest.approx(116.7, abs=0.05)
    assert found.best_low == pytest.approx(daly(5 * MINUTE, 18 * HOUR))
    assert found.best_high == pytest.approx(daly(5 * MINUTE, 34 * HOUR))
    assert found.ettr_now == pytest.approx(expected_ettr(4 * HOUR, 300.0, 24 * HOUR, 600.0))
    assert found.ettr_best > found.ettr_now + 0.01
    assert found.worth
    assert found.text == (
        f"a save every 4 h gives an expected ETTR of {found.ettr_now:.3f}; every 1.94 h {found.ettr_best:.3f}"
        " (stall 5 min, a failure every 1 d); best within the bounds of the time between failures:"
        f" {found.best_low / HOUR:.3g} h to {found.best_high / HOUR:.3g} h"
    )


def test_an_interval_within_the_bounds_is_left() -> None:
    found = checkpoint_interval(80 * MINUTE, 5 * MINUTE, 24 * HOUR, 600.0, 10 * HOUR, 60 * HOUR)
    assert not found.worth
    assert found.text.endswith("; leave it")
    without = checkpoint_interval(80 * MINUTE, 5 * MINUTE, 24 * HOUR, 600.0)
    assert without.worth and without.best_low is None and "bounds" not in without.text


def test_no_failures_yet_is_a_lower_bound_only() -> None:
    found = checkpoint_interval(3 * HOUR, 60.0, 24 * HOUR, 300.0, low_s=10 * HOUR)
    assert found.best_high is None and not found.worth
    assert f"from {found.best_low / MINUTE:.3g} min on" in found.text


def test_a_small_gain_is_left() -> None:
    found = checkpoint_interval(HOUR, 0.1, 1000 * HOUR, 60.0)
    assert found.ettr_best - found.ettr_now < 0.001
    assert not found.worth


def test_no_shorter_than_a_save_takes_until_it_counts() -> None:
    assert checkpoint_interval(HOUR, 0.01, HOUR, 60.0, persist_s=120.0).best == 120.0
    assert checkpoint_interval(HOUR, 0.0, HOUR, 60.0).best == pytest.approx(daly(1e-3, HOUR))


@settings(max_examples=60)
@given(st.floats(1.0, 300.0), st.floats(4 * HOUR, 1000 * HOUR), st.floats(0.0, HOUR))
def test_nothing_beats_the_best(stall: float, mtbf: float, recovery: float) -> None:
    """Daly's optimum against the model's own minimum, by search."""
    found = checkpoint_interval(HOUR, stall, mtbf, recovery)
    grid = [found.best * 1.05**power for power in range(-40, 41)]
    best = max(expected_ettr(one, stall, mtbf, recovery) for one in grid)
    assert found.ettr_best >= best - 1e-4


@settings(max_examples=60)
@given(
    st.floats(1.0, 1e5), st.floats(0.0, 1e3), st.floats(1.0, 1e7), st.floats(0.0, 1e5), st.floats(1e-3, 1e3)
)
def test_ettr_has_no_unit_and_lies_between_0_and_1(
    interval: float, stall: float, mtbf: float, recovery: float, unit: float
) -> None:
    one = expected_ettr(interval, stall, mtbf, recovery)
    assert 0.0 <= one <= 1.0
    other = expected_ettr(interval * unit, stall * unit, mtbf * unit, recovery * unit)
    assert other == pytest.approx(one, rel=1e-9, abs=1e-290)


# --- spares ---------------------------------------------------------------------------------------


def lost(nodes: int, held: int, mean: float) -> float:
    """Share of nodes idle or waiting, summed state by state."""
    chances = stats.poisson.pmf(range(200), mean)
    idle = (held - away if away <= held else nodes for away in range(200))
    return sum(one * chance for one, chance in zip(idle, chances, strict=True)) / (nodes + held)


@pytest.mark.parametrize(
    ("nodes", "per_1000", "hours"), [(8, 6.5, 24.0), (256, 6.5, 24.0), (2048, 6.5, 24.0), (64, 50.0, 72.0)]
)
def test_spares_are_the_number_that_loses_least(nodes: int, per_1000: float, hours: float) -> None:
    mean = nodes * per_1000 / 1000 * hours / 24
    found = spares(nodes, per_1000, hours)
    by_hand = [lost(nodes, held, mean) for held in range(80)]
    assert found.spares == by_hand.index(min(by_hand))
    assert found.lost_with == pytest.approx(min(by_hand), rel=1e-9)
    assert found.lost_without == pytest.approx(by_hand[0], rel=1e-9)
    assert found.missing == pytest.approx(mean, rel=1e-12)
    assert found.short == pytest.approx(stats.poisson.sf(found.spares, mean), rel=1e-9)


def test_a_large_job_needs_some_and_a_small_one_none() -> None:
    """2,048 nodes at the published rate and a day to mend: 13 are away on average."""
    large = spares(2048, 6.5, 24.0)
    assert large.missing == pytest.approx(13.312)
    assert 20 <= large.spares <= 30
    assert large.lost_without > 0.99 and large.lost_with < 0.01
    assert spares(8, 6.5, 24.0).spares == 0
    assert large.text == (
        f"{large.spares} of {2048 + large.spares} nodes as spares: 13 are away on average, more than that"
        f" {100 * large.short:.3g} % of the time; held idle {large.idle_node_hours_per_day:.3g} node-hours a"
        f" day; idle or waiting in all {100 * large.lost_with:.3g} % of the allocation, without spares 100 %"
    )


def test_no_failures_no_spares() -> None:
    for found in (spares(100, 0.0, 24.0), spares(100, 6.5, 0.0)):
        assert (found.spares, found.missing, found.short, found.lost_with) == (0, 0.0, 0.0, 0.0)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5000), st.floats(0.1, 100.0), st.floats(1.0, 200.0))
def test_spares_never_make_it_worse(nodes: int, per_1000: float, hours: float) -> None:
    found = spares(nodes, per_1000, hours)
    assert 0.0 <= found.lost_with <= found.lost_without <= 1.0
    assert 0.0 <= found.idle_node_hours_per_day <= 24.0 * found.spares


# --- causes ---------------------------------------------------------------------------------------


def test_the_dearest_cause_first() -> None:
    causes = [CauseCost("oom", 2, 20.0), CauseCost("gpu", 10, 300.0), CauseCost("none", 1, 0.0)]
    first, second = first_to_fix(causes, 10_000.0)
    assert (first.cause, first.share_of_cost, first.share_of_allocation) == ("gpu", 300 / 320, 0.03)
    assert first.text == (
        "gpu: 300.0 node-hours, 94% of what failures cost; without it goodput is 3 points higher"
    )
    assert second.text == (
        "oom: 20.0 node-hours, 6% of what failures cost; without it goodput is 0.2 points higher"
        " (only 2 of them: may be chance)"
    )


def test_no_causes() -> None:
    assert first_to_fix([], 100.0) == ()
    assert first_to_fix([CauseCost("a", 1, 0.0)], 0.0) == ()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: expected_ettr(0.0, 1.0, 1.0, 1.0), "must be over 0"),
        (lambda: expected_ettr(1.0, 1.0, math.inf, 1.0), "must be over 0"),
        (lambda: expected_ettr(1.0, -1.0, 1.0, 1.0), "must not be negative"),
        (lambda: checkpoint_interval(1.0, 1.0, math.nan, 1.0), "must be over 0"),
        (lambda: checkpoint_interval(1.0, 1.0, 10.0, -1.0), "must not be negative"),
        (lambda: checkpoint_interval(1.0, 1.0, 10.0, 1.0, low_s=11.0), "bounds"),
        (lambda: checkpoint_interval(1.0, 1.0, 10.0, 1.0, high_s=9.0), "bounds"),
        (lambda: spares(0, 6.5, 24.0), "at least one node"),
        (lambda: spares(1, -6.5, 24.0), "must not be negative"),
        (lambda: spares(1, 6.5, math.nan), "must not be negative"),
        (lambda: spares(10**9, 1e6, 1e6), "more nodes away than"),
        (lambda: first_to_fix([CauseCost("a", -1, 1.0)], 1.0), "a: -1 failures"),
        (lambda: first_to_fix([CauseCost("a", 1, -1.0)], 1.0), "a: 1 failures, -1.0 node-hours"),
        (lambda: first_to_fix([], -1.0), "must not be negative"),
    ],
)
def test_bad_input(call, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()
