"""What is taken for a hang, and who is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resiliency.hang import Culprit, History, RankView, Settings, culprits, limit, stalled
from scripts.bench import hang_ranks, hangs

SETTINGS = Settings(floor=10.0, factor=3.0, first=100.0)


def rank(n: int, **more: Any) -> RankView:
    known: dict[str, Any] = {
        "node": f"n{n // 4}", "section": "step", "step": 7, "beats": 20, "age_s": 11.0, "state": "S",
        "slowest": {"step": 1.0}, "collectives": 9, "in_collective": True,
    }  # fmt: skip
    return RankView(n, **{**known, **more})


def history(*views: RankView, **slowest: float) -> History:
    found = History(dict(slowest))
    found.learn(views)
    return found


def ranks(count: int = 8, **more: Any) -> list[RankView]:
    return [rank(n, **more) for n in range(count)]


def with_(views: Sequence[RankView], n: int, **more: Any) -> list[RankView]:
    return [replace(one, **more) if one.rank == n else one for one in views]


# -- settings and limits -----------------------------------------------------------------------


def test_settings_have_the_experiment_file_s_defaults() -> None:
    from orchestrator.spec.resources import Hang

    assert Settings.read({}) == Settings.read(Hang().model_dump()) == Settings()
    assert Settings.read({"floor": 3, "factor": None, "detect": False}) == Settings(False, 3.0)


def test_a_limit_is_the_factor_times_the_slowest_pass_but_the_floor_at_least() -> None:
    assert limit("step", history(step=50.0), SETTINGS) == 150.0
    assert limit("step", history(step=0.1), SETTINGS) == 10.0


def test_a_section_without_history_has_the_first_limit() -> None:
    assert limit("checkpoint", history(step=1.0), SETTINGS) == 100.0
    assert limit("step", history(step=1.0), SETTINGS, passed=False) == 100.0  # compiles again
    assert limit("step", history(step=60.0), SETTINGS, passed=False) == 180.0
    assert limit("setup", history(), Settings(floor=200.0, first=100.0)) == 200.0


@given(
    st.lists(st.floats(0.0, 1e5), min_size=1), st.floats(0.1, 1e3), st.floats(1.5, 20.0), st.floats(0.1, 1e4)
)
def test_no_limit_is_tighter_than_what_was_seen_to_end_well(
    passes: list[float], floor: float, factor: float, first: float
) -> None:
    """Whatever the history: each pass of it, seen again, would be no hang."""
    settings = Settings(True, floor, factor, first)
    learned = History()
    for n, seconds in enumerate(passes):
        learned.learn([rank(n, slowest={"step": seconds})])
    for seconds in passes:
        views = [rank(n, age_s=seconds, slowest={"step": 0.0}) for n in range(4)]
        assert stalled(views, learned, settings) is None


def test_history_is_of_all_ranks_and_only_grows() -> None:
    found = history(rank(0, slowest={"step": 2.0}), rank(1, slowest={"step": 5.0, "eval": 1.0}))
    found.learn([rank(2, slowest={"step": 3.0})])
    assert found.slowest == {"step": 5.0, "eval": 1.0}


# -- whether -----------------------------------------------------------------------------------


def test_all_over_their_limits_is_a_stall() -> None:
    views = with_(ranks(), 3, in_collective=False, age_s=12.5)
    found = stalled(views, history(*views), SETTINGS)
    assert found is not None and found.everyone
    assert (found.section, found.age_s, found.limit_s, found.late_s) == ("step", 11.0, 10.0, 1.0)
    assert found.ranks == tuple(range(8))


def test_one_rank_within_its_limit_keeps_all_from_being_stalled() -> None:
    """It may well be what the others wait for: rank 0 that writes a checkpoint, a rank that compiles."""
    for more in ({"age_s": 9.9}, {"section": "checkpoint", "age_s": 90.0}, {"slowest": {}, "age_s": 90.0}):
        views = with_(ranks(age_s=95.0), 0, **more)
        assert stalled(views, history(*ranks()), SETTINGS) is None, more


def test_a_long_section_is_measured_by_itself_and_late_is_counted_from_its_limit() -> None:
    views = with_(ranks(age_s=95.0), 0, section="checkpoint", slowest={"checkpoint": 30.0, "step": 1.0})
    found = stalled(views, history(*views), SETTINGS)
    assert found is not None and (found.limit_s, found.late_s, found.section) == (90.0, 5.0, "step")


def test_without_detection_nothing_is_a_hang() -> None:
    assert stalled(ranks(age_s=1e6), history(step=1.0), replace(SETTINGS, detect=False)) is None
    assert stalled([], history(), SETTINGS) is None


def test_the_dead_and_those_that_are_done_keep_nobody_from_being_stalled() -> None:
    views = with_(with_(ranks(), 1, section="done", age_s=1.0), 2, state="Z", age_s=1.0)
    found = stalled(views, history(*views), SETTINGS)
    assert found is not None and 1 not in found.ranks and 2 not in found.ranks
    assert stalled([rank(0, state="Z")], history(step=1.0), SETTINGS) is None  # its end is told by its code


def test_a_process_that_does_not_end_after_its_work_is_a_hang_of_its_own() -> None:
    assert stalled(ranks(section="done", age_s=99.0), history(step=1.0), SETTINGS) is None
    assert stalled(ranks(section="done", age_s=101.0), history(step=1.0), SETTINGS) is not None


def test_one_left_behind_by_others_that_go_on_is_told() -> None:
    views = with_(ranks(age_s=0.5, step=20), 5, step=18, age_s=12.0)
    found = stalled(views, history(*views), SETTINGS)
    assert found is not None and not found.everyone and found.ranks == (5,)
    assert culprits(views)[0].rank == 5


@pytest.mark.parametrize("step", [19, 20, None])
def test_one_that_is_late_but_hardly_behind_may_be_what_the_others_are_about_to_wait_for(
    step: int | None,
) -> None:
    views = with_(ranks(age_s=0.5, step=20), 5, step=step, age_s=12.0)
    assert stalled(views, history(*views), SETTINGS) is None


def test_what_was_not_heard_is_no_evidence_against_one_rank() -> None:
    views = with_(ranks(age_s=0.5, step=20), 5, step=2, age_s=12.0, stale_s=8.0)
    assert stalled(views, history(*views), SETTINGS) is None


# -- who ---------------------------------------------------------------------------------------


def first(views: Sequence[RankView]) -> Culprit | None:
    found = culprits(views)
    assert sum(one.confidence for one in found) <= 1.0 or found[0].confidence > 0.96
    return found[0] if found else None


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"in_collective": False, "age_s": 10.5}, "outside the collective"),
        ({"in_collective": False, "section": "data"}, "in data for 11.0 s, outside"),
        ({"step": 6}, "is at step 6, others are at step 7"),
        ({"step": None, "in_collective": False}, "is at no step yet"),
        ({"state": "T"}, "stopped"),
        ({"state": "Z"}, "dead"),
        ({"state": ""}, "dead"),
        ({"section": "done", "in_collective": False}, "ended its work"),
        ({"collectives": 8}, "earlier collective"),
        ({"collectives": 10}, "went past"),
        ({"step": 8, "collectives": 10}, "past the collective"),
        ({"state": "D"}, "state D"),
    ],
)
def test_the_one_the_others_wait_for_is_named(more: dict[str, Any], why: str) -> None:
    # Rank 0 was late first: that is no reason to name it.
    views = with_(with_(ranks(), 0, age_s=30.0), 5, **more)
    found = first(views)
    assert found is not None and (found.rank, found.node) == (5, "n1") and why in found.why


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"section": "eval", "age_s": 9.0}, "in eval for 9.0 s, the others in step"),
        ({"beats": 19}, "has passed 19"),
        ({"state": "R"}, "state R"),
    ],
)
def test_without_marked_collectives_there_are_weaker_signs(more: dict[str, Any], why: str) -> None:
    found = first(with_(ranks(in_collective=False), 2, **more))
    assert found is not None and found.rank == 2 and why in found.why and found.confidence <= 0.6


def test_stacks_speak_where_records_are_weak() -> None:
    frames = dict.fromkeys(range(8), "all_reduce (distributed_c10d.py:2810)") | {3: "tokenize (data.py:7)"}
    alike = ranks(in_collective=False)
    [found] = culprits(alike, frames=frames)
    assert found.rank == 3 and "tokenize (data.py:7), outside the collective" in found.why
    assert culprits(with_(alike, 2, state="R"), frames=frames)[0].rank == 3
    assert culprits(with_(ranks(), 2, in_collective=False), frames=frames)[0].rank == 2
    assert culprits(alike, frames=dict.fromkeys(range(8), "all_reduce")) == []
    assert culprits(alike, frames={3: "tokenize"}) == []


def test_where_all_are_alike_nobody_is_named() -> None:
    assert culprits(ranks()) == []
    assert culprits(ranks(in_collective=False)) == []
    assert culprits([]) == []
    assert culprits(with_(ranks(2, state="?"), 1, state="R")) == []


def test_where_most_are_outside_the_one_inside_is_not_the_one_that_waits() -> None:
    assert culprits(with_(ranks(in_collective=False), 3, in_collective=True)) == []


def test_of_several_each_has_its_share_and_the_one_behind_comes_first() -> None:
    views = with_(with_(ranks(), 1, in_collective=False), 6, in_collective=False, collectives=8)
    found = culprits(views)
    assert [one.rank for one in found] == [6, 1] and found[0].confidence == pytest.approx(0.45)


def test_a_single_rank_is_its_own_culprit() -> None:
    assert [one.rank for one in culprits([rank(0)])] == [0]


def test_a_rank_without_a_record_never_got_as_far() -> None:
    nodes = {n: f"n{n // 4}" for n in range(8)}
    [found] = culprits([one for one in ranks() if one.rank != 6], nodes)
    assert (found.rank, found.node, found.why) == (6, "n1", "never began to report")


@given(st.integers(0, 10**6))
def test_a_culprit_that_records_can_tell_is_named_whatever_the_seed(seed: int) -> None:
    case = hangs.simulate(seed)
    if case.kind in ("inside", "skips"):
        case = hangs.simulate(seed, kind="compute")
    found = culprits(case.views)
    assert found and found[0].rank == case.culprit, (case.kind, found)


def test_of_a_hundred_seeded_hangs_95_are_named_right() -> None:
    right = 0
    for seed in range(100):
        case = hangs.simulate(seed)
        found = culprits(case.views)
        right += bool(found) and found[0].rank == case.culprit
    assert right >= 95


# -- real processes ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["compute", "checkpoint", "stopped"])
def test_eight_real_ranks_one_of_which_goes_on_no_more(kind: str) -> None:
    outcome = hang_ranks.hang(seed=4, kind=kind, floor=1.0)
    assert outcome.stall is not None and outcome.stall.everyone
    assert outcome.right, outcome


def test_a_stack_outside_any_collective_speaks_where_two_ranks_look_the_same() -> None:
    views = ranks(2, step=29)
    frames = {
        0: "DistributedDataParallel._distributed_broadcast_coalesced (torch/nn/parallel/distributed.py:2363)",
        1: "<lambda> (train.py:124)",
    }
    found = culprits(views, {0: "a1", 1: "a2"}, frames)
    assert [one.rank for one in found] == [1] and "train.py:124" in found[0].why
    both = {0: frames[0], 1: "Variable._engine_run_backward (torch/autograd/graph.py:824)"}
    assert not any(one.confidence > 0.7 for one in culprits(views, {0: "a1", 1: "a2"}, both))
