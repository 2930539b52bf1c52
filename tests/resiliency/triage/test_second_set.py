"""The second set of labelled cases (short, other words and frameworks than the first): the same aims."""

from __future__ import annotations

from pathlib import Path

import pytest

from resiliency.triage import score

SECOND = Path(__file__).resolve().parents[2] / "data" / "triage" / "second"


@pytest.fixture(scope="module")
def card() -> score.Scorecard:
    return score.judge(score.labelled(SECOND))


def test_all_are_judged(card):
    assert len(card.judged) == 26


@pytest.mark.parametrize("what", ["category", "action", "node"])
def test_at_least_95_percent_right(card, what):
    right, asked = card.share(what)
    assert asked and right >= score.AIM * asked, "\n".join(card.lines())


def test_no_wrong_exclusion(card):
    assert card.wrong_exclusions == []
