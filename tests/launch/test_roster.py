"""Who trains next: places are kept, spares take lost ones', a smaller stage grows back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.roster import next_roster


@pytest.mark.parametrize(
    ("before", "usable", "count", "nodes", "swapped"),
    [
        ([], "abc", 2, "ab", []),
        ("ab", "abc", 2, "ab", []),
        ("ab", "bc", 2, "cb", [("a", "c")]),
        ("abc", "bcxy", 3, "xbc", [("a", "x")]),
        ("abc", "cxy", 3, "xyc", [("a", "x"), ("b", "y")]),
        ("abc", "ac", 2, "ac", []),
        ("abcd", "abd", 2, "ab", []),
        ("a", "ab", 2, "ab", []),
        ("ba", "ab", 2, "ba", []),
    ],
)
def test_places(before: str, usable: str, count: int, nodes: str, swapped: list[tuple[str, str]]) -> None:
    found = next_roster(list(before), list(usable), count)
    assert ("".join(found.nodes), list(found.swapped)) == (nodes, swapped)


def test_too_few_is_an_error() -> None:
    with pytest.raises(ValueError, match="fewer"):
        next_roster(["a", "b"], ["a"], 2)


NAMES = st.lists(st.sampled_from("abcdefgh"), unique=True)


@given(NAMES, NAMES, st.integers(1, 8))
def test_whatever_happens_the_roster_is_usable_and_complete(
    before: list[str], usable: list[str], count: int
) -> None:
    if len(usable) < count:
        return
    found = next_roster(before, usable, count)
    assert len(found.nodes) == len(set(found.nodes)) == count
    assert set(found.nodes) <= set(usable)
    for out, into in found.swapped:
        assert out in before and out not in usable and into in found.nodes and into not in before
    if len(before) == count:  # a node that stays keeps its place
        for index, node in enumerate(before):
            assert node not in usable or found.nodes[index] == node
