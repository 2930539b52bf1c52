"""docs/accounting.md has every kind and every figure as the code defines them, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from metrics.accounting.figures import DEFINITIONS
from metrics.accounting.kinds import GROUPS, KINDS
from metrics.accounting.outages import INTERRUPTED, PLANNED
from resiliency.taxonomy import CATEGORIES

DOCS = (Path(__file__).parents[3] / "docs" / "accounting.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """Cells of the table under a heading, without its head."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", DOCS, re.M | re.S)
    assert section is not None
    lines = [line for line in section[1].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_kinds_are_those_of_the_code() -> None:
    told = [[f"`{kind.name}`", kind.group or "nothing", kind.meaning] for kind in KINDS.values()]
    assert rows("Kinds of time") == told


def test_figures_are_those_of_the_code() -> None:
    told = [[f"`{row.name}`", row.unit, row.text, row.source] for row in DEFINITIONS.values()]
    assert rows("Figures") == told


def test_every_overhead_has_a_figure() -> None:
    assert {name for name in DEFINITIONS if name.startswith("overhead_")} == {f"overhead_{g}" for g in GROUPS}


def test_what_is_no_failure_is_said() -> None:
    assert set(CATEGORIES) >= PLANNED | INTERRUPTED
    for name in PLANNED | INTERRUPTED:
        assert f"`{name}`" in DOCS
