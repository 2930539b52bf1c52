"""Tables as text: quoting, formulas, what is no number, what is no markup."""

from __future__ import annotations

import csv
import io
import json

import pytest

from metrics.reports.formats import as_csv, as_data, as_markdown, shown
from metrics.reports.tables import Table, tables

from .conftest import ADVICE, Make

HOSTILE = Table(
    "hostile",
    ("a", "b"),
    (
        ("=HYPERLINK(1)", 'says "x", y'),
        ("-1+1|cmd", "two\nlines"),
        (None, 1.5),
        ("<script>|`x`", float("nan")),
    ),
)


def test_csv_is_read_back_and_runs_no_formula() -> None:
    text = as_csv(HOSTILE)
    assert text.startswith("a,b\r\n")
    assert list(csv.reader(io.StringIO(text, newline="")))[1:] == [
        ["'=HYPERLINK(1)", 'says "x", y'],
        ["'-1+1|cmd", "two\nlines"],
        ["", "1.5"],
        ["<script>|`x`", "nan"],
    ]


def test_numbers_below_zero_stay_numbers() -> None:
    assert as_csv(Table("t", ("a",), ((-1.5,),))) == "a\r\n-1.5\r\n"


def test_json_has_every_table_and_no_nan(make: Make) -> None:
    summary = make()
    found = as_data(summary, [*tables(summary, ADVICE), HOSTILE])
    text = json.dumps(found, allow_nan=False)
    assert set(json.loads(text)) == {"window", "figures", "waterfall", "failures", "advice", "hostile"}
    assert found["hostile"][3] == {"a": "<script>|`x`", "b": None}


def test_markdown_keeps_its_tables_whole_whatever_a_cell_holds(make: Make) -> None:
    page = as_markdown(make(), [HOSTILE, Table("none", ("a",), ())])
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert rows[1] == "| --- | --- |" and len(rows) == 6
    assert rows[3] == "| -1+1\\|cmd | two lines |" and rows[5] == "| &lt;script>\\|\\`x\\` | nan |"
    assert page.rstrip().endswith("none")


@pytest.mark.parametrize(
    ("cell", "text"), [(None, "-"), (0.123456, "0.1235"), (12345.6, "12,346"), (7, "7"), ("x", "x")]
)
def test_cells_for_a_person(cell: object, text: str) -> None:
    assert shown(cell) == text  # type: ignore[arg-type]
