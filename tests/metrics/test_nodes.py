"""Slurm's compressed node lists."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.ledger.nodes import names


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", []),
        (None, []),
        ("None assigned", []),
        ("node1", ["node1"]),
        ("n[01-03,07],gpu1", ["n01", "n02", "n03", "n07", "gpu1"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("n[1-2]-ib", ["n1-ib", "n2-ib"]),
        (["a", "b,c[1-2]"], ["a", "b", "c1", "c2"]),
        ("a,a", ["a"]),
        ("n[1-999999999]", ["n[1-999999999]"]),  # nonsense stays text, and costs no memory
        ("n[1-2", ["n[1-2"]),
        (7, []),
    ],
)
def test_names(value: Any, expected: list[str]) -> None:
    assert names(value) == expected


@given(st.text(alphabet="n[]-,0123456789 ", max_size=30))
def test_any_text_gives_an_answer(text: str) -> None:
    assert isinstance(names(text), list)
