"""metrics.stats.prior: the fleet's own rate, with lemons in it, and what is known of one node."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from metrics.stats.prior import LEMON_MEAN, LEMON_SHAPE, Fleet, fit, posterior
from tests.metrics.stats.fleets import BASE, records

FLEET = Fleet(rate=BASE, low=BASE, high=BASE, shape=16.0, share=0.012, seen=1000.0)


def fitted(seed: int, **how) -> Fleet:
    return fit([(one.node_days, one.failures) for one in records(seed, **how)[0]])


@pytest.mark.parametrize("seed", range(3))
def test_lemons_do_not_move_the_fleets_rate(seed: int) -> None:
    """They have 15 % of all failures: the plain mean is that much too high."""
    fleet, _ = records(seed)
    plain = sum(one.failures for one in fleet) / sum(one.node_days for one in fleet)
    found = fitted(seed)
    assert plain > 1.12 * BASE
    assert found.rate == pytest.approx(BASE, rel=0.07)
    assert found.low < BASE < found.high
    assert found.share == pytest.approx(0.012, abs=0.006)


def test_a_single_node_with_most_failures_does_not_either() -> None:
    fleet = [(90.0, 1)] * 50 + [(90.0, 0)] * 50 + [(90.0, 2000)]
    assert fit(fleet).rate == pytest.approx(50 / 9000, rel=0.05)


def test_spread_of_healthy_nodes() -> None:
    assert fitted(1, lemons=0, spread=4.0, days=1000.0).shape == 4.0
    assert fitted(1, lemons=0, days=1000.0).shape >= 64.0


def test_bounds_hold_the_truth_as_often_as_they_say() -> None:
    """95 % intervals over 60 fleets of 50 nodes: by binomial luck at least 52 hold it (p > 0.005)."""
    held = 0
    for seed in range(60):
        found = fitted(seed, nodes=50, lemons=0, days=60.0)
        held += found.low <= BASE <= found.high
    assert held >= 52


def test_nothing_seen_is_the_published_rate() -> None:
    empty = fit([])
    assert empty.rate * 1000 == pytest.approx(6.5)
    assert (empty.low, empty.high, empty.seen) == (0.0, math.inf, 0.0)


def test_no_failures() -> None:
    found = fit([(100.0, 0)] * 30)
    assert 0.0 < found.rate < 1.0 / 3000
    assert found.low == 0.0
    assert found.high == pytest.approx(-math.log(0.025) / 3000, rel=0.02)


def mixture(failures: int, days: float, rate: float) -> float:
    """Unnormalised posterior density, written down anew."""
    healthy = stats.gamma.pdf(rate, FLEET.shape, scale=FLEET.rate / FLEET.shape)
    lemon = stats.gamma.pdf(rate, LEMON_SHAPE, scale=LEMON_MEAN * FLEET.rate / LEMON_SHAPE)
    prior = (1 - FLEET.share) * healthy + FLEET.share * lemon
    return float(prior * stats.poisson.pmf(failures, rate * days))


@pytest.mark.parametrize(("failures", "days"), [(0, 28.0), (1, 28.0), (3, 28.0), (4, 90.0), (12, 90.0)])
def test_the_posterior_is_the_integral(failures: int, days: float) -> None:
    def area(low: float, high: float, power: int = 0) -> float:
        return integrate.quad(
            lambda rate: rate**power * mixture(failures, days, rate), low, high, limit=400, epsabs=0
        )[0]

    found, bound = posterior(failures, days, FLEET), 4 * FLEET.rate
    whole = area(0, bound) + area(bound, 0.5)
    assert found.exceeds(bound) == pytest.approx(area(bound, 0.5) / whole, rel=1e-6)
    assert found.mean == pytest.approx((area(0, bound, 1) + area(bound, 0.5, 1)) / whole, rel=1e-6)
    assert found.exceeds(found.quantile(0.9)) == pytest.approx(0.1, rel=1e-6)


def test_a_node_that_nobody_watched_is_the_prior() -> None:
    found = posterior(0, 0.0, FLEET)
    assert found.mean == pytest.approx(BASE * (1 - 0.012 + 0.012 * LEMON_MEAN), rel=1e-12)


@settings(max_examples=80)
@given(st.integers(0, 200), st.floats(0.01, 1000.0), st.floats(1.0, 50.0))
def test_a_failure_more_is_never_better(failures: int, days: float, factor: float) -> None:
    one, other = posterior(failures, days, FLEET), posterior(failures + 1, days, FLEET)
    assert one.mean < other.mean
    assert one.exceeds(factor * BASE) <= other.exceeds(factor * BASE) + 1e-12


@settings(max_examples=80)
@given(st.integers(0, 200), st.floats(0.01, 1000.0), st.floats(0.01, 100.0))
def test_more_time_for_the_same_failures_is_never_worse(failures: int, days: float, more: float) -> None:
    one, other = posterior(failures, days, FLEET), posterior(failures, days + more, FLEET)
    assert other.exceeds(4 * BASE) <= one.exceeds(4 * BASE) + 1e-12
