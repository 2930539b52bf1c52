"""The labelled cases: the aims, and that a case is judged by its files alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from resiliency.taxonomy import CATEGORIES, Action
from resiliency.triage import score
from resiliency.triage.api import triage_paths

CASES = Path(__file__).resolve().parents[2] / "data" / "triage" / "cases"


@pytest.fixture(scope="module")
def card() -> score.Scorecard:
    return score.judge(score.labelled(CASES))


def test_there_are_forty_cases(card):
    assert len(card.judged) == 40


@pytest.mark.parametrize("what", ["category", "action", "node", "rank", "evidence"])
def test_at_least_95_percent_right(card, what):
    right, asked = card.share(what)
    assert right >= score.AIM * asked, "\n".join(card.lines())


def test_no_wrong_exclusion(card):
    assert card.wrong_exclusions == []


def test_verdicts_speak_the_taxonomy(card):
    actions = {a.value for a in Action}
    for one in card.judged:
        assert one.verdict["domain"] == CATEGORIES[one.verdict["category"]].domain
        assert one.verdict["action"] in actions
        assert one.verdict["role"] == "root"


def test_the_name_of_the_directory_and_the_label_play_no_part(card, tmp_path):
    for one in card.judged[::8]:
        copy = tmp_path / f"x{len(one.name)}{one.name[::-1]}"
        shutil.copytree(CASES / one.name, copy)
        (copy / "expected.json").unlink()
        again = triage_paths([copy]).as_json()
        assert (again["category"], again["node"], again["action"]) == (
            one.verdict["category"],
            one.verdict["node"],
            one.verdict["action"],
        )


@pytest.mark.parametrize("name", ["d11", "d12", "d14", "d17"])
def test_without_the_kernel_log_no_node_is_excluded_unless_the_program_proves_it(name, tmp_path):
    copy = tmp_path / "case"
    shutil.copytree(CASES / name, copy, ignore=shutil.ignore_patterns("dmesg-*", "expected.json"))
    verdict = triage_paths([copy])
    if verdict.action == "requeue_excluding":
        assert any("ECC" in e["text"] or "NVLink" in e["text"] for e in verdict.evidence)
