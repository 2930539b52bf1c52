"""The category table against the list that labelled cases use, and its own promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from resiliency.taxonomy import CATEGORIES, Action, Budget, Category, category

LABELS: dict[str, list[str]] = json.loads((Path(__file__).parents[1] / "data" / "taxonomy.json").read_text())


def test_domains_and_categories_are_those_of_the_labelled_cases() -> None:
    ours: dict[str, list[str]] = {}
    for row in CATEGORIES.values():
        ours.setdefault(row.domain, []).append(row.name)
    assert ours == LABELS


def test_an_unheard_of_category_is_unknown() -> None:
    assert category("from a newer version") is CATEGORIES["unknown"]


@pytest.mark.parametrize("row", CATEGORIES.values(), ids=lambda row: row.name)
def test_only_a_node_s_proven_fault_excludes_it(row: Category) -> None:
    assert row.node_fault == (row.action is Action.REQUEUE_EXCLUDING)


@pytest.mark.parametrize(
    "name",
    ["gpu_oom", "host_oom", "storage_full", "storage_quota", "config_error", "code_error", "data_error"],
)
def test_what_never_evicts_a_node(name: str) -> None:
    assert not CATEGORIES[name].node_fault


@pytest.mark.parametrize("name", ["time_limit", "preempted", "requeued", "planned_rollover", "node_down"])
def test_what_costs_no_retry(name: str) -> None:
    assert CATEGORIES[name].budget is Budget.FREE


@pytest.mark.parametrize("row", CATEGORIES.values(), ids=lambda row: row.name)
def test_every_row_can_be_said_to_a_person(row: Category) -> None:
    assert row.phrase and not row.phrase.endswith(".")
    if row.budget is Budget.TERMINAL:
        assert row.action in (Action.STOP, Action.HOLD, Action.NONE)
