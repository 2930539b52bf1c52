"""docs/ledger.md describes every table, column and view, and nothing that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

from metrics.ledger import Ledger

DOCS = Path(__file__).parents[2] / "docs" / "ledger.md"


def schema(tmp_path: Path) -> dict[str, list[str]]:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        names = ledger.rows("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        return {
            row[0]: [column[1] for column in ledger.rows(f"PRAGMA table_info({row[0]})")]
            for row in names
            if not row[0].startswith("sqlite_")
        }


def test_every_table_and_column_is_described(tmp_path: Path) -> None:
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^#|\Z)", DOCS.read_text(), re.M | re.S))
    known = schema(tmp_path)
    assert set(sections) == set(known)
    for table, columns in known.items():
        words = set(re.findall(r"`(\w+)`", sections[table]))
        missing = set(columns) - words
        assert not missing, f"{table}: {missing}"
