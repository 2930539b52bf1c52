"""models.copies: the newest whole state, and who gets it from whom."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from models.copies import Found, Seat, choose, partner


def seats(*nodes: str) -> list[Seat]:
    return [Seat(rank, node) for rank, node in enumerate(nodes)]


def copy(node: str, owner: int, step: int, lineage: str = "x", digest: str = "d") -> Found:
    return Found(node, f"{lineage}-{owner}-{step % 2}.own", step, lineage, owner, digest)


def test_own_copies_stay_where_they_are() -> None:
    found = [copy("a", 0, 10), copy("b", 0, 10), copy("a", 1, 10), copy("b", 1, 10)]
    choice = choose(found, seats("a", "b"), "d", after=5)
    assert choice is not None
    assert [(s.owner, s.holder, s.copy.node) for s in choice.sources] == [(0, 0, "a"), (1, 1, "b")]


def test_a_spare_gets_what_a_survivor_keeps() -> None:
    found = [copy("a", 0, 10), copy("a", 1, 10)]
    choice = choose(found, seats("a", "spare"), "d", after=5)
    assert choice is not None
    assert [(s.owner, s.holder) for s in choice.sources] == [(0, 0), (1, 0)]


def test_the_newest_that_is_complete_not_the_newest() -> None:
    found = [copy("a", 0, 20), copy("a", 0, 10), copy("b", 1, 10)]
    choice = choose(found, seats("a", "b"), "d", after=5)
    assert choice is not None
    assert choice.step == 10
    assert choose(found, seats("a", "b"), "d", after=10) is None


def test_never_of_two_lineages_or_another_layout_or_a_node_that_is_gone() -> None:
    mixed = [copy("a", 0, 10, "x"), copy("b", 1, 10, "y")]
    assert choose(mixed, seats("a", "b"), "d", after=0) is None
    whole = [copy("a", 0, 10), copy("b", 1, 10)]
    assert choose(whole, seats("a", "b"), "other", after=0) is None
    assert choose(whole, seats("a", "c"), "d", after=0) is None
    assert choose(whole, seats("a", "b", "c"), "d", after=0) is None


@given(
    st.lists(
        st.builds(
            copy,
            st.sampled_from("abc"),
            st.integers(0, 3),
            st.integers(1, 4),
            st.sampled_from("xy"),
        ),
        max_size=30,
    )
)
def test_against_trying_all(found: list[Found]) -> None:
    here = seats("a", "a", "b", "b")
    usable = [c for c in found if c.node in "ab"]
    complete = [
        (step, lineage)
        for step, lineage in itertools.product(range(1, 5), "xy")
        if {c.owner for c in usable if (c.step, c.lineage) == (step, lineage)} == {0, 1, 2, 3}
    ]
    choice = choose(found, here, "d", after=0)
    assert (choice and choice.step) == (max(complete)[0] if complete else None)
    for source in choice.sources if choice else ():
        assert source.copy.owner == source.owner
        assert here[source.holder].node == source.copy.node
        assert (source.copy.step, source.copy.lineage) == (choice.step, choice.lineage)


def test_partners_are_on_the_next_node_in_a_ring() -> None:
    here = seats("z", "z", "a", "a", "m", "m")
    assert [partner(here, rank) for rank in range(6)] == [2, 3, 4, 5, 0, 1]
    assert partner(seats("a", "a"), 0) is None
    uneven = seats("a", "a", "a", "b")
    assert [partner(uneven, rank) for rank in range(4)] == [3, 3, 3, 0]
