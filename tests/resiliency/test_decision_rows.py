"""The decision table: each row is what the policy does, every rule has a row, the page says the same."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from resiliency import policy
from resiliency.decision_rows import FIRST, PLACES, Row, rows
from resiliency.diagnosis import Verdict
from resiliency.policy import Budgets, PastAttempt, decide
from resiliency.taxonomy import CATEGORIES

ROOT = Path(__file__).parents[2]
ROWS = list(rows())


@pytest.mark.parametrize("name", CATEGORIES)
def test_a_first_failure(name: str) -> None:
    verdict = Verdict(name, "why", confidence=0.95, node="n1", signature=name)
    past = PastAttempt(name, name, 5, node="n1")
    found = [decide(verdict, [past], Budgets(), capacity).action.value for _, capacity in PLACES.values()]
    assert dict(zip(PLACES, found, strict=True)) == dict(zip(PLACES, FIRST[name], strict=True))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.verdict.category}: {row.situation}")
def test_row(row: Row) -> None:
    found = decide(row.verdict, row.history, row.budgets, row.capacity)
    assert (found.action.value, found.rule, found.exclude) == (row.action, row.rule, row.exclude)
    assert row.history[-1].category == row.verdict.category


def test_every_rule_has_a_row() -> None:
    text = Path(policy.__file__).read_text(encoding="utf-8")
    fixed = set(re.findall(r'"((?:budget|in-job|straggler|same)[:-][a-z-]+)"', text))
    assert len(fixed) >= 14, "the search itself works"
    assert fixed <= {row.rule for row in ROWS}


def test_the_page_is_the_table() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/decision-table.py"), "--check"], text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr
