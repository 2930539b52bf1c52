"""resiliency.daly: published optima, and the bounds that keep them sensible."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resiliency.daly import Facts, choose, daly, differs, mtbf_s, young

HOUR, MINUTE = 60.0, 1.0


@pytest.mark.parametrize(
    ("mtbf", "by_young", "by_daly"),
    [(24 * HOUR, 120.0, 116.7), (6 * HOUR, 60.0, 56.7), (15 * MINUTE, 12.2, 9.14)],
)
def test_five_minutes_a_save(mtbf: float, by_young: float, by_daly: float) -> None:
    assert young(5, mtbf) == pytest.approx(by_young, abs=0.06)
    assert daly(5, mtbf) == pytest.approx(by_daly, abs=0.06)


def test_a_save_that_takes_longer_than_failures_leave() -> None:
    assert daly(30, 15) == 15
    assert daly(100, 15) == 15


@given(st.floats(0.01, 100), st.floats(60, 1e6))
def test_close_to_the_minimum_of_the_waste(delta: float, mtbf: float) -> None:
    """Waste per time of a Poisson process, Daly's complete model with no restart cost."""

    def waste(work: float) -> float:
        return mtbf * (math.exp((work + delta) / mtbf) - 1) / work

    if delta < mtbf / 2:
        found = waste(daly(delta, mtbf))
        assert found <= min(waste(daly(delta, mtbf) * factor) for factor in (0.7, 0.85, 1.2, 1.5)) * 1.0001


@pytest.mark.parametrize(("gpus", "hours"), [(16384, 1.80), (131072, 0.225)])
def test_the_published_failure_rate(gpus: int, hours: float) -> None:
    assert mtbf_s(gpus // 8) / 3600 == pytest.approx(hours, rel=0.005)


def test_what_is_seen_moves_the_rate() -> None:
    prior = mtbf_s(10)
    assert mtbf_s(10, failures=0, exposure_s=prior) == pytest.approx(2 * prior)
    assert mtbf_s(10, failures=5, exposure_s=3600) < prior / 5
    hour = mtbf_s(10, failures=1000, exposure_s=1000 * 3600)
    assert hour == pytest.approx(3600, rel=0.5)


def test_bounds() -> None:
    day = 86400.0
    facts = Facts(stall=0.5, duration=4.0, step=0.25, mtbf=day)
    assert choose(facts).seconds == pytest.approx(daly(0.5, day))
    assert choose(facts).steps == round(daly(0.5, day) / 0.25)
    bounded = {
        "most": (Facts(0.5, 4, 0.25, day, most=60), 60),
        "third": (Facts(0.5, 4, 0.25, day, left=90), 30),
        "twice": (Facts(0.5, 40, 0.25, day, left=90), 80),
        "a step": (Facts(0.001, 0, 900, 60), 900),
    }
    for name, (given_, seconds) in bounded.items():
        assert choose(given_).seconds == pytest.approx(seconds), name
    assert choose(bounded["a step"][0]).steps == 1


def test_small_changes_are_noise() -> None:
    assert not differs(100, 115)
    assert differs(100, 130)
    assert differs(100, 70)
