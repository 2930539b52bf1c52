"""metrics.stats.rates: published values, scipy's bounds, and what must hold for any count."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from metrics.stats.rates import Estimate, failure_rate, job_mttf_hours, mttf, per_1000_node_days, share


def test_llama_3() -> None:
    """419 unexpected interruptions in 54 days on 2,048 nodes of 8 (arXiv 2407.21783, 3.3.4)."""
    assert mttf(54 * 24.0, 419).value == pytest.approx(3.09, abs=0.005)
    assert per_1000_node_days(419, 2048 * 54.0).value == pytest.approx(3.79, abs=0.005)


@pytest.mark.parametrize(("gpus", "hours"), [(16384, 1.80), (131072, 0.225), (1024, 28.8), (8, 3692.3)])
def test_a_job_on_many_nodes(gpus: int, hours: float) -> None:
    assert job_mttf_hours(gpus // 8, 6.50) == pytest.approx(hours, rel=0.002)


def test_a_job_where_nothing_fails() -> None:
    assert job_mttf_hours(10, 0.0) == math.inf


@pytest.mark.parametrize("failures", [1, 2, 3, 10, 419, 25_000])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_bounds_are_scipys(failures: int, level: float) -> None:
    alpha, hours = 1 - level, 1296.0
    found = mttf(hours, failures, level)
    assert found.value == pytest.approx(hours / failures, rel=1e-15)
    assert found.low == pytest.approx(2 * hours / stats.chi2.ppf(1 - alpha / 2, 2 * failures + 2), rel=1e-10)
    assert found.high == pytest.approx(2 * hours / stats.chi2.ppf(alpha / 2, 2 * failures), rel=1e-10)
    assert (found.level, found.n) == (level, failures)


def test_a_textbook_interval() -> None:
    """Ten failures in 1000 h at 90 %: 59.0 to 184.3 h (chi-square 33.924 with 22, 10.851 with 20 degrees)."""
    found = mttf(1000.0, 10, 0.90)
    assert found.low == pytest.approx(2000 / 33.924, rel=1e-4)
    assert found.high == pytest.approx(2000 / 10.851, rel=1e-4)


def test_without_failures_only_a_lower_bound() -> None:
    found = mttf(1000.0, 0, 0.95)
    assert (found.value, found.high, found.n) == (None, None, 0)
    assert found.low == pytest.approx(1000 / -math.log(0.05), rel=1e-12)  # 333.8: the rule of three
    rate = failure_rate(0, 1000.0, 0.95)
    assert (rate.value, rate.low) == (0.0, 0.0)
    assert rate.high == pytest.approx(-math.log(0.05) / 1000, rel=1e-12)


def test_nothing_watched() -> None:
    for found in (mttf(0.0, 0), mttf(0.0, 3), failure_rate(3, 0.0), per_1000_node_days(3, 0.0)):
        assert (found.value, found.low, found.high) == (None, None, None)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    # Newcombe, Statistics in Medicine 17 (1998), table I, score method.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (1, 29, 0.0061, 0.1718)],
)
def test_shares(successes: int, trials: int, low: float, high: float) -> None:
    found = share(successes, trials)
    assert found.value == successes / trials
    assert found.low == pytest.approx(low, abs=5e-5)
    assert found.high == pytest.approx(high, abs=5e-5)
    theirs = stats.binomtest(successes, trials).proportion_ci(0.95, method="wilson")
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), rel=1e-10)


def test_shares_at_the_ends() -> None:
    assert (share(0, 5).low, share(5, 5).high) == (0.0, 1.0)
    assert share(0, 20).high == pytest.approx(0.1611, abs=5e-5)  # Newcombe's fourth
    assert share(0, 0) == Estimate(None, None, None, 0.95, 0)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: mttf(-1.0, 0), "observed time must not be negative"),
        (lambda: mttf(math.nan, 0), "observed time must not be negative"),
        (lambda: mttf(math.inf, 1), "observed time must not be negative"),
        (lambda: mttf(1.0, -1), "whole number"),
        (lambda: mttf(1.0, 1.5), "whole number"),  # type: ignore[arg-type]
        (lambda: mttf(1.0, 1, 1.0), "confidence level"),
        (lambda: failure_rate(-1, 1.0), "whole number"),
        (lambda: per_1000_node_days(1, -5.0), "observed time must not be negative"),
        (lambda: job_mttf_hours(0, 6.5), "at least one node"),
        (lambda: job_mttf_hours(1, -6.5), "must not be negative"),
        (lambda: job_mttf_hours(1, math.nan), "must not be negative"),
        (lambda: share(3, 2), "more successes than trials: 3 of 2"),
        (lambda: share(-1, 2), "whole number"),
        (lambda: share(0, -2), "must not be negative"),
    ],
)
def test_bad_input(call, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()


counts, times = st.integers(0, 3000), st.floats(1e-3, 1e9)


@settings(max_examples=60)
@given(times, counts, st.floats(1e-6, 1e6))
def test_another_unit_of_time_scales_all_three(time: float, failures: int, unit: float) -> None:
    one, other = mttf(time, failures), mttf(time * unit, failures)
    for ours, theirs in ((one.value, other.value), (one.low, other.low), (one.high, other.high)):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert theirs == pytest.approx(ours * unit, rel=1e-9)


@settings(max_examples=60)
@given(times, counts)
def test_another_failure_lowers_value_and_bounds(time: float, failures: int) -> None:
    one, other = mttf(time, failures), mttf(time, failures + 1)
    assert one.low is not None and other.low is not None and other.value is not None
    assert other.low < other.value < (other.high or 0)
    if failures:
        assert one.value is not None and other.value < one.value
        assert other.low < one.low
        assert one.high is not None and other.high is not None and other.high < one.high


@settings(max_examples=60)
@given(st.integers(0, 500), st.integers(1, 500))
def test_a_share_lies_in_its_interval(successes: int, more: int) -> None:
    found = share(successes, successes + more)
    assert found.value is not None and found.low is not None and found.high is not None
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0
    wider = share(successes, successes + more, 0.99)
    assert wider.low is not None and wider.low <= found.low
