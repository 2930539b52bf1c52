"""metrics.stats.gamma against scipy, to 1e-10 of the value, over nine orders of shape."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from metrics.stats.gamma import MAX_SHAPE, chi_square_quantile, gamma_quantile, lower, upper

SHAPES = (1e-3, 0.01, 0.1, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 19.9, 20, 20.1, 33, 100, 1000, 12345.6, 1e5)
FACTORS = (1e-6, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.9, 0.99, 0.999, 1, 1.001, 1.01, 1.1, 1.5, 2, 3, 5, 10, 30, 100)
TAILS = (1e-12, 1e-6, 1e-3, 0.025, 0.05, 0.3, 0.5, 0.6, 0.9, 0.975, 0.999, 1 - 1e-9)
DENORMAL = 1e-290  # below, scipy and we both lose digits


@pytest.mark.parametrize("shape", SHAPES)
def test_both_tails_are_scipys(shape: float) -> None:
    for factor in FACTORS:
        x = shape * factor
        assert lower(shape, x) == pytest.approx(special.gammainc(shape, x), rel=1e-10, abs=DENORMAL)
        assert upper(shape, x) == pytest.approx(special.gammaincc(shape, x), rel=1e-10, abs=DENORMAL)


@pytest.mark.parametrize("shape", SHAPES)
def test_quantiles_are_scipys(shape: float) -> None:
    for p in TAILS:
        ours, theirs = gamma_quantile(p, shape), stats.gamma.ppf(p, shape)
        assert ours == pytest.approx(theirs, rel=1e-10, abs=DENORMAL)
        assert gamma_quantile(p, shape, rate=4.0) == pytest.approx(theirs / 4.0, rel=1e-10, abs=DENORMAL)


@pytest.mark.parametrize("degrees", [1, 2, 3, 7, 30, 199, 838, 20_000])
def test_chi_square_quantiles_are_scipys(degrees: int) -> None:
    for p in TAILS:
        assert chi_square_quantile(p, degrees) == pytest.approx(stats.chi2.ppf(p, degrees), rel=1e-10)


def test_poisson_tails() -> None:
    """That a Poisson variable of mean m is k or more is P(k, m)."""
    for mean in (0.2, 3.0, 40.0):
        for k in (1, 2, 5, 30, 90):
            assert lower(k, mean) == pytest.approx(stats.poisson.sf(k - 1, mean), rel=1e-10)


def test_a_million_failures() -> None:
    """Beyond scipy's accuracy (it is 2e-10 off here); the value is mpmath's, with 40 digits."""
    assert lower(1e6, 990_000.0) == pytest.approx(5.446644693010808670771526e-24, rel=1e-11)
    assert lower(1e6, 995253.7719775002) == pytest.approx(1.0000000000000004e-06, rel=1e-11)
    assert gamma_quantile(1e-6, 1e6) == pytest.approx(995253.7719775002, rel=1e-12)


def test_ends() -> None:
    assert (lower(2.0, 0.0), upper(2.0, 0.0)) == (0.0, 1.0)
    assert (lower(2.0, math.inf), upper(2.0, math.inf)) == (1.0, 0.0)
    assert lower(1e8, 1.0) == 0.0
    assert gamma_quantile(1e-3, 1e-3) == 0.0  # 1e-3000: no float has it
    assert gamma_quantile(0.5, 1.0) == pytest.approx(math.log(2.0), rel=1e-15)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: lower(0.0, 1.0), "shape must be over 0"),
        (lambda: lower(-1.0, 1.0), "shape must be over 0"),
        (lambda: upper(math.nan, 1.0), "shape must be over 0"),
        (lambda: upper(2 * MAX_SHAPE, 1.0), r"at most 1e\+08"),
        (lambda: lower(1.0, -1e-9), "x must not be negative"),
        (lambda: lower(1.0, math.nan), "x must not be negative"),
        (lambda: gamma_quantile(0.0, 1.0), "between 0 and 1"),
        (lambda: gamma_quantile(1.0, 1.0), "between 0 and 1"),
        (lambda: gamma_quantile(math.nan, 1.0), "between 0 and 1"),
        (lambda: gamma_quantile(0.5, 1.0, rate=0.0), "rate must be over 0"),
        (lambda: gamma_quantile(0.5, 0.0), "shape must be over 0"),
        (lambda: chi_square_quantile(0.5, 0.0), "shape must be over 0"),
    ],
)
def test_bad_input(call, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()


@settings(max_examples=100)
@given(st.floats(0.01, 1e5), st.floats(1e-9, 1 - 1e-9))
def test_the_quantile_is_the_inverse(shape: float, p: float) -> None:
    x = gamma_quantile(p, shape)
    if x > DENORMAL:
        assert lower(shape, x) == pytest.approx(p, rel=1e-9)
        assert lower(shape, x) + upper(shape, x) == pytest.approx(1.0, abs=1e-15)


@settings(max_examples=100)
@given(st.floats(0.01, 1e5), st.floats(0.0, 2e5), st.floats(0.0, 100.0))
def test_more_x_is_more_probability(shape: float, x: float, more: float) -> None:
    assert lower(shape, x) <= lower(shape, x + more) * (1 + 1e-12)
    assert upper(shape, x) * (1 + 1e-12) >= upper(shape, x + more)
