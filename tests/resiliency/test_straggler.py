"""Who is slow, and that honest jitter is nobody's fault."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resiliency.steprecord import RING
from resiliency.straggler import Digest, Settings, digest, slow

SETTINGS = Settings()


def times(rng: random.Random, ranks: int, *, steps: int = 50, sigma: float = 0.1) -> dict[int, list[float]]:
    """Lognormal times of a step, as machines have them: now and then one takes several times as long."""
    return {
        rank: [
            0.1 * rng.lognormvariate(0, sigma) * (5.0 if rng.random() < 0.02 else 1.0) for _ in range(steps)
        ]
        for rank in range(ranks)
    }


def test_settings_have_the_experiment_file_s_defaults() -> None:
    from orchestrator.spec.resources import Straggler

    assert Settings.read({}) == Settings.read(Straggler().model_dump()) == Settings()
    assert Settings.read({"action": "swap", "ratio": None, "window": 20}) == Settings("swap", 1.5, 20)


@given(st.integers(0, 10**6), st.integers(3, 64), st.floats(0.0, 0.4))
@settings(max_examples=200, deadline=None)
def test_honest_jitter_is_no_alarm(seed: int, ranks: int, sigma: float) -> None:
    assert slow(times(random.Random(seed), ranks, sigma=sigma), SETTINGS) == []


@given(st.integers(0, 10**6), st.integers(3, 64), st.floats(0.0, 0.06))
@settings(max_examples=200, deadline=None)
def test_a_rank_that_takes_1_6_times_as_long_is_named(seed: int, ranks: int, sigma: float) -> None:
    rng = random.Random(seed)
    given_ = times(rng, ranks, sigma=sigma)
    culprit = rng.randrange(ranks)
    given_[culprit] = [1.6 * one for one in given_[culprit]]
    [found] = slow(given_, SETTINGS)
    assert found.rank == culprit and found.ratio == pytest.approx(1.6, rel=0.1)
    assert found.peers == ranks - 1


def test_a_slow_node_s_ranks_are_all_named_the_slowest_first() -> None:
    given_ = times(random.Random(1), 16)
    given_[4] = [2.0 * one for one in given_[4]]
    given_[5] = [3.0 * one for one in given_[5]]
    assert [one.rank for one in slow(given_, SETTINGS)] == [5, 4]


def test_single_slow_steps_are_no_slow_rank() -> None:
    given_ = times(random.Random(2), 8)
    given_[3][:20] = [10.0] * 20
    assert slow(given_, SETTINGS) == []


def test_too_few_peers_or_steps_say_nothing() -> None:
    assert slow({0: [1.0] * 50, 1: [9.0] * 50}, SETTINGS) == []
    assert slow({n: [1.0 + 9 * (n == 0)] * 49 for n in range(8)}, SETTINGS) == []
    # A rank that just came has no window yet, and is no peer of those that have.
    assert slow({0: [9.0] * 50, 1: [1.0] * 50, 2: [1.0] * 5}, SETTINGS) == []
    assert slow({}, SETTINGS) == []


def test_the_window_is_the_newest_steps() -> None:
    recovered = {n: [1.0] * 50 for n in range(4)} | {2: [9.0] * 60 + [1.0] * 50}
    assert slow(recovered, SETTINGS) == []


def test_a_window_longer_than_a_record_waits_for_a_full_record() -> None:
    long = Settings(window=1000)
    assert long.needed == RING
    assert [o.rank for o in slow({n: [1.0 + (n == 0)] * RING for n in range(4)}, long)] == [0]


def test_digests_travel_in_the_times_stead() -> None:
    given_ = times(random.Random(3), 6)
    given_[1] = [2.0 * one for one in given_[1]]
    assert slow({n: digest(one) for n, one in given_.items()}, SETTINGS) == slow(given_, SETTINGS) != []
    assert digest([]) == Digest(0, 0.0, 0.0)


def test_ranks_with_different_work_are_not_compared() -> None:
    given_ = {n: [1.0 if n < 4 else 2.0] * 50 for n in range(8)}
    given_[6] = [4.0] * 50
    stages = {n: n // 4 for n in range(8)}
    assert [one.rank for one in slow(given_, SETTINGS, stages)] == [6]


def test_times_of_nothing_are_no_ratio() -> None:
    assert slow({n: [0.0] * 50 for n in range(4)} | {0: [1.0] * 50}, SETTINGS) == []
