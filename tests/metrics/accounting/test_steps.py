"""Which steps were worth their time, when they were done, and what stood between them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.accounting.course import Part, Point, lay, split, time_of
from metrics.accounting.facts import CycleFacts, Stall
from metrics.accounting.steps import Bounds, Reach, bounds
from metrics.accounting.training import base_of
from metrics.accounting.words import Word, word_of


def kinds(cycles: list[Reach], **stage: bool) -> list[str]:
    """Of each cycle, its steps from one after its base to the highest, a letter each."""
    return [
        "".join(bound.kind(step)[0] for step in range((one.base or 0) + 1, (one.reached or 0) + 1))
        for one, bound in zip(cycles, bounds(cycles, **stage), strict=True)
    ]


def test_a_step_is_lost_when_a_later_cycle_went_on_below_it() -> None:
    """p productive (also provisional: the two are told apart below), l lost, r recomputed."""
    first, second = Reach(0, 6, 4), Reach(4, 8, 8)
    assert kinds([first, second]) == ["ppppll", "rrpp"]
    # A third one goes back further than both: what the second kept is lost as well.
    assert kinds([first, second, Reach(2, 9, 9)]) == ["ppllll", "llll", "rrrrrrp"]
    # A cycle that did no step says nothing about where the others stand.
    assert kinds([first, Reach(None, None, None), second]) == ["ppppll", "", "rrpp"]


def test_new_steps_are_provisional_until_saved_and_lost_once_the_stage_is_over() -> None:
    (bound,) = bounds([Reach(0, 6, 4)])
    assert [bound.kind(step) for step in (4, 5)] == ["productive", "provisional"]
    (bound,) = bounds([Reach(0, 6, 4)], terminal=True)
    assert [bound.kind(step) for step in (4, 5)] == ["productive", "lost"]
    (bound,) = bounds([Reach(0, 6, None)], terminal=True, complete=True)
    assert [bound.kind(step) for step in (1, 6)] == ["productive", "productive"]


def test_a_later_save_holds_what_earlier_cycles_kept() -> None:
    first, second = bounds([Reach(0, 6, None), Reach(5, 9, 8)])
    assert [first.kind(step) for step in (5, 6)] == ["productive", "lost"]
    assert [second.kind(step) for step in (6, 8, 9)] == ["recomputing", "productive", "provisional"]


def test_lost_steps_are_the_highest_reached_less_the_one_gone_on_from() -> None:
    assert Bounds(keep=4).lost_steps(Reach(0, 6, 4)) == 2
    assert Bounds(keep=2).lost_steps(Reach(4, 6, None)) == 2  # steps 3 and 4 were an earlier cycle's
    assert Bounds().lost_steps(Reach(0, 6, None)) == 0
    assert Bounds(saved=4, frozen=True).lost_steps(Reach(0, 6, 4)) == 2


_reach = st.tuples(st.integers(0, 9), st.integers(0, 9), st.none() | st.integers(0, 9))


@given(st.lists(_reach, max_size=6), st.booleans(), st.booleans())
def test_of_steps_done_more_than_once_all_but_the_last_time_are_lost(
    told: list[tuple[int, int, int | None]], terminal: bool, complete: bool
) -> None:
    cycles = [Reach(base, base + more, saved) for base, more, saved in told]
    limits = bounds(cycles, terminal=terminal, complete=complete)
    for step in range(1, 19):
        mine = [
            b.kind(step)
            for c, b in zip(cycles, limits, strict=True)
            if (c.base or 0) < step <= (c.reached or 0)
        ]
        assert all(kind == "lost" for kind in mine[:-1])


def word(step: int, **more: object) -> Word:
    found = word_of(1.0, {"step": step, **more})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("resumed", "first", "reached", "saved", "base"),
    [
        (7, 9, 20, 10, 7),  # it says so
        (None, 1, 20, None, 0),  # from scratch
        (None, 30, 0, None, 0),  # nobody did a step before
        (None, 12, 20, 10, 10),  # the newest save below its first word
        (None, 8, 20, 10, 0),  # it lies below every save
        (None, 12, 20, None, 11),  # no save ever: no further back than it tells
        (None, None, 20, 10, None),  # it did no step
    ],
)
def test_where_a_cycle_went_on_from(
    resumed: int | None, first: int | None, reached: int, saved: int | None, base: int | None
) -> None:
    said = None if first is None else word(first)
    assert base_of(CycleFacts(0, resumed=resumed), said, reached, saved) == base


def test_stalls_stand_where_a_save_places_them_else_at_the_end() -> None:
    spent = ({"step": 0, "load": 9_000}, {"step": 8_000, "checkpoint": 1_500, "eval": 500})
    found = lay([Point(0, 0, spent[0]), Point(10_000, 8, spent[1])], [Stall(5_000, 4, 1_000, True)])
    assert found == [
        Part("steps", 0, 4_000, 0, 4),
        Part("checkpoint_stall", 4_000, 5_000),
        Part("steps", 5_000, 9_000, 4, 8),
        Part("checkpoint_stall", 9_000, 9_500),  # told by spent, but not where
        Part("evaluation", 9_500, 10_000),
    ]
    assert [time_of(found, step) for step in (1, 4, 5, 8, 9)] == [1_000, 4_000, 6_000, 9_000, None]


def test_without_sections_only_saves_are_seen() -> None:
    found = lay([Point(0, 0), Point(10_000, 9)], [Stall(0, 3, 1_000, True), Stall(0, 9, 700, True)])
    assert [(part.kind, part.end - part.start) for part in found] == [
        ("steps", 3_000),
        ("checkpoint_stall", 1_000),
        ("steps", 6_000),  # the save of step 9 comes after it
    ]


def test_data_is_waited_for_once_steps_are_done_and_built_before() -> None:
    before, after = {"data": 5_000, "model": 1_000}, {"data": 6_000, "model": 2_000, "step": 3_000}
    later = {**after, "data": 7_000, "step": 5_000}
    found = lay([Point(0, 0, before), Point(5_000, 1, after), Point(8_000, 3, later)], [])
    assert [(part.kind, part.end - part.start) for part in found] == [
        ("steps", 3_000),
        ("init", 2_000),
        ("steps", 2_000),
        ("data_stall", 1_000),
    ]


def test_what_a_program_does_besides_steps_is_its_work_when_it_never_does_one() -> None:
    found = lay([Point(0, 0, {"eval": 1}), Point(5_000, 100, {"eval": 5_001})], [])
    assert found == [Part("steps", 0, 5_000, 0, 100)]


_point = st.tuples(
    st.integers(0, 500), st.integers(0, 20), st.dictionaries(st.sampled_from("sed"), st.integers(0, 900))
)


@given(st.lists(_point, min_size=2, max_size=5), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 300))))
def test_parts_follow_one_another_from_the_first_point_to_the_last(
    told: list[tuple[int, int, dict[str, int]]], saves: list[tuple[int, int]]
) -> None:
    names = {"s": "step", "e": "eval", "d": "data"}
    at = step = 0
    course = []
    for gap, steps, spent in told:
        at, step = at + gap, step + steps
        course.append(Point(at, step, {names[name]: value for name, value in spent.items()}))
    stalls = [Stall(0, step, took, True) for step, took in sorted(saves)]
    parts = lay(course, stalls)
    pieces = [piece for part in parts for piece in split(part, range(0, 100, 3))]
    for found in (parts, pieces):
        assert sum(part.end - part.start for part in found) == course[-1].at - course[0].at
        assert all(one.end == two.start for one, two in pairwise(found))
        assert all(part.end >= part.start for part in found)
