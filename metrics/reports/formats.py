"""Tables as CSV, JSON and Markdown. ``tests/metrics/reports/test_formats.py``."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from metrics.accounting.values import Summary

from .tables import Cell, Table

#: A spreadsheet takes text that begins with one of these for a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def as_csv(table: Table) -> str:
    """RFC 4180, with a header. Text that a spreadsheet would run as a formula begins with an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(table.columns)
    writer.writerows([_csv(cell) for cell in row] for row in table.rows)
    return out.getvalue()


def _csv(cell: Cell) -> Cell:
    if isinstance(cell, str) and cell.startswith(_FORMULA):
        return "'" + cell
    return "" if cell is None else cell


def as_data(summary: Summary, tables: Iterable[Table]) -> dict[str, Any]:
    """For JSON, which knows neither NaN nor infinity: such a number is null."""

    def plain(cell: Cell) -> Cell:
        return None if isinstance(cell, float) and not math.isfinite(cell) else cell

    found: dict[str, Any] = {"window": summary.window}
    for table in tables:
        found[table.name] = [{k: plain(v) for k, v in record.items()} for record in table.records()]
    return found


def as_markdown(summary: Summary, tables: Iterable[Table]) -> str:
    """A page: figures with their bounds and definitions, where the time went, failures."""
    parts = [f"# Report\n\n{_md(summary.window)}\n"]
    for table in tables:
        parts.append(f"\n## {table.name.capitalize()}\n\n")
        if not table.rows:
            parts.append("none\n")
            continue
        columns = [c for c in table.columns if any(r[c] not in (None, "") for r in table.records())]
        parts.append(_row(columns) + _row(["---"] * len(columns)))
        parts += [_row([_md(shown(record[c])) for c in columns]) for record in table.records()]
    return "".join(parts)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def _md(text: str) -> str:
    safe = text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")
    return " ".join(safe.split())


def shown(cell: Cell) -> str:
    """A cell for a person: four digits of a number are enough."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 10_000 else f"{cell:.4g}"
    return str(cell)
