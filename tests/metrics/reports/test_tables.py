"""Tables of a summary: their columns are the documented ones, their cells the accounting's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from metrics.reports import comparing
from metrics.reports.tables import COLUMNS, iso, tables

from .conftest import ADVICE, Make

ROOT = Path(__file__).resolve().parents[3]


def test_every_column_is_in_the_dictionary_and_nothing_else() -> None:
    page = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
    told: dict[str, dict[str, str]] = {}
    table = ""
    for line in page.splitlines():
        if match := re.fullmatch(r"### `(\w+)`", line):
            table = match[1]
        elif table and (match := re.fullmatch(r"\| `(\w+)` \| (.+) \|", line)):
            told.setdefault(table, {})[match[1]] = match[2]
    assert told == {**COLUMNS, "compare": comparing.COLUMNS}


def test_cells_are_those_of_the_run_computed_by_hand(make: Make) -> None:
    figures, waterfall, failures, advice = tables(make(), ADVICE)
    assert [one.name for one in (figures, waterfall, failures, advice)] == list(COLUMNS)
    assert all(
        len(row) == len(table.columns)
        for table in (figures, waterfall, failures, advice)
        for row in table.rows
    )
    times = {row["kind"]: row["seconds"] for row in waterfall.records()}
    assert times["detecting"] == 4.0 and times["recomputing"] == 99.0
    (failure,) = failures.records()
    assert (failure["category"], failure["node"], failure["lost_steps"]) == ("gpu_fault", "n2", 100)
    assert failure["onset_at"] == "1970-01-01T00:06:06.000Z" and failure["counted"] == 1
    lost = next(row for row in figures.records() if row["name"] == "lost_steps")
    assert (lost["value"], lost["dimension"], lost["key"]) == (100, "all", "")
    assert all(row["definition"] and row["window"] for row in figures.records())


def test_a_dimension_adds_its_groups(make: Make) -> None:
    figures, waterfall, *_ = tables(make(), ADVICE, "node")
    nodes = {row["key"] for row in figures.records() if row["dimension"] == "node"}
    assert nodes == {"n1", "n2"}
    assert {row["dimension"] for row in waterfall.records()} >= {"all", "node"}
    with pytest.raises(KeyError):
        tables(make(), ADVICE, "colour")


@pytest.mark.parametrize(("at", "told"), [(None, None), (0.0, "1970-01-01T00:00:00.000Z"), (1e30, None)])
def test_moments(at: float | None, told: str | None) -> None:
    assert iso(at) == told
    assert iso(1_767_225_600.9996) == "2026-01-01T00:00:01.000Z"
