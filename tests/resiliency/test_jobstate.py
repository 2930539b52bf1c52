"""Slurm's words for a job, as its commands spell them."""

from __future__ import annotations

import json

import pytest

from resiliency import jobstate
from resiliency.jobstate import JobRecord, normalise


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("RUNNING", "RUNNING"),
        ("CANCELLED by 1000", "CANCELLED"),
        ("cancelled+", "CANCELLED"),
        ("OUT_OF_ME+", "UNKNOWN"),  # cut by a column's width: nothing may be concluded
        ("  NODE_FAIL\n", "NODE_FAIL"),
        ("", "UNKNOWN"),
        ("   ", "UNKNOWN"),
        ("A_WORD_OF_A_LATER_SLURM", "UNKNOWN"),
    ],
)
def test_normalise(text: str, word: str) -> None:
    assert normalise(text) == word


def test_the_sets_do_not_overlap() -> None:
    sets = (jobstate.PENDING, jobstate.ACTIVE, jobstate.ENDED)
    assert len(frozenset().union(*sets)) == sum(map(len, sets))


@pytest.mark.parametrize("state", sorted(jobstate.PENDING | jobstate.ACTIVE | {"UNKNOWN"}))
def test_unknown_counts_as_live(state: str) -> None:
    assert JobRecord("7", 0, state).live


@pytest.mark.parametrize("state", sorted(jobstate.ENDED | {"GONE"}))
def test_ended(state: str) -> None:
    assert JobRecord("7", 0, state).ended


def test_a_record_can_be_journaled() -> None:
    data = JobRecord("7", 1, "FAILED", name="n", comment="c", exit_code=1, nodes="n[1-2]").as_data()
    assert "comment" not in data and "name" not in data
    assert json.loads(json.dumps(data)) == data
    assert JobRecord(**data) == JobRecord("7", 1, "FAILED", exit_code=1, nodes="n[1-2]")
