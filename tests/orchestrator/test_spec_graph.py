"""Stages and their needs."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.spec import graph

names = st.sampled_from("abcdefg")
graphs = st.dictionaries(names, st.lists(names, max_size=3, unique=True), min_size=1)


@pytest.mark.parametrize(
    ("needs", "rings"),
    [
        ({"a": ["a"]}, [["a", "a"]]),
        ({"a": ["b"], "b": ["a"]}, [["a", "b", "a"]]),
        ({"a": ["b"], "b": ["c"], "c": ["b"]}, [["b", "c", "b"]]),
        ({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}, []),
        ({"a": ["b"], "b": ["a"], "c": ["d"], "d": ["c"]}, [["a", "b", "a"], ["c", "d", "c"]]),
        ({"a": ["nowhere"]}, []),
    ],
)
def test_circles_are_found_once_each(needs: dict[str, list[str]], rings: list[list[str]]) -> None:
    assert graph.cycles(needs) == rings


@given(graphs)
def test_a_graph_has_an_order_or_a_circle(needs: dict[str, list[str]]) -> None:
    rings = graph.cycles(needs)
    if rings:
        for ring in rings:
            assert all(other in needs[name] for name, other in itertools.pairwise(ring))
        with pytest.raises(ValueError):
            graph.in_order(needs)
    else:
        order = graph.in_order(needs)
        assert sorted(order) == sorted(needs)
        for name in needs:
            assert all(order.index(n) < order.index(name) for n in needs[name] if n in needs)


def test_the_order_of_the_file_is_kept_where_nothing_speaks_against_it() -> None:
    assert graph.in_order({"z": [], "a": [], "m": ["z"]}) == ["z", "a", "m"]


def test_a_chain_longer_than_the_recursion_limit_is_no_problem() -> None:
    needs = {f"s{n}": [f"s{n + 1}"] for n in range(3000)}
    assert graph.cycles(needs) == []
    assert len(graph.above("s0", needs)) == 3000
