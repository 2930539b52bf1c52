"""Tables of any columns, torn rows, times of every kind."""

from __future__ import annotations

from datetime import timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.importing.jobs import Reading, read
from orchestrator.importing.table import Table
from orchestrator.importing.times import seconds, zone_of
from resiliency.errors import TrainmasterError


def rows(*lines: str) -> tuple[list[dict[str, str]], dict[str, int]]:
    table = Table(lines, "x")
    return [dict(row) for _, row in table.rows()], dict(table.faults.counts)


@pytest.mark.parametrize("delimiter", ["|", "\t", ";", ",", "\x1f"])
def test_columns_come_in_any_order_with_any_delimiter(delimiter: str) -> None:
    lines = [delimiter.join(cells) for cells in (("End", "State", "JobID"), ("e", "FAILED", "7"))]
    assert rows(*lines) == ([{"end": "e", "state": "FAILED", "jobid": "7"}], {})


def test_rows_that_end_in_the_delimiter_and_headers_that_come_again() -> None:
    found, faults = rows("JobID|State|", "1|FAILED|", "", "State|JobID", "COMPLETED|2")
    assert [row["jobid"] for row in found] == ["1", "2"] and not faults


def test_torn_rows_are_counted_and_a_name_may_hold_the_delimiter() -> None:
    found, faults = rows(
        "Warning: slow", "JobID|JobName|State", "1|a", "2|a|b|FAILED", "3|x|y|nonsense", "4|c|TIMEOUT"
    )
    assert [(row["jobid"], row["jobname"]) for row in found] == [("2", "a|b"), ("4", "c")]
    assert faults == {"text before the header": 1, "row is cut short": 1, "row has too many columns": 1}


def test_no_header_is_an_error_with_the_command_to_use() -> None:
    with pytest.raises(TrainmasterError) as error:
        rows("1|FAILED")
    assert "sacct" in error.value.hint


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), max_size=6))
@settings(max_examples=60, deadline=None)
def test_whatever_a_dump_holds_every_row_is_read_or_counted(lines: list[str]) -> None:
    table = Table(["JobID|JobName|State|Submit|Start|End|NodeList|ExitCode", *lines], "x")
    jobs = read(table, Reading(timezone.utc))
    assert table.rows_read - len(jobs) <= sum(table.faults.counts.values())


@pytest.mark.parametrize(
    ("text", "zone", "at"),
    [
        ("2026-01-02T03:04:05", "UTC", 1767323045.0),
        ("2026-01-02T03:04:05", "Europe/Paris", 1767319445.0),
        ("2026-07-02T03:04:05", "Europe/Paris", 1782954245.0),
        ("2026-10-25T02:30:00", "Europe/Paris", 1792888200.0),  # shown twice: the first
        ("2026-01-02T03:04:05Z", "Europe/Paris", 1767323045.0),
        ("2026-01-02T03:04:05+02:00", "UTC", 1767315845.0),
        ("2026-01-02T03:04:05.250000", "UTC", 1767323045.25),
        ("1767323045", "Europe/Paris", 1767323045.0),
        ("Unknown", "UTC", None),
        ("None", "UTC", None),
        ("", "UTC", None),
        ("0", "UTC", None),
    ],
)
def test_times(text: str, zone: str, at: float | None) -> None:
    assert seconds(text, zone_of(zone)) == at


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01T00:00:00", "9999999999999", "0001-01-01T00:00:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        seconds(text, timezone.utc)
