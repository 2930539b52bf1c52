"""Lengths of time, as people and Slurm write them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.spec.durations import LONGEST_S, clock, parse_seconds, parse_time


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("04:00:00", 14400),
        ("00:01:00", 60),
        ("36:00:00", 129600),
        ("1-12:00", 129600),
        ("1-00:00:30", 86430),
        ("2-12", 216000),
        (90, 5400),
        ("90", 5400),
        (0.5, 30),
        ("90s", 90),
        ("10m", 600),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("1d", 86400),
    ],
)
def test_a_wall_time_is_read(written: object, seconds: int) -> None:
    assert parse_time(written) == seconds


@pytest.mark.parametrize(
    "written",
    ["", "soon", "00:00:00", 0, -5, True, None, "1:2:3:4", "00:61:00", "1-25:00", "10 m", 1e12, [1]],
)
def test_what_is_no_wall_time_is_refused(written: object) -> None:
    with pytest.raises(ValueError):
        parse_time(written)


def test_two_part_clock_times_are_refused_with_both_readings() -> None:
    with pytest.raises(ValueError, match='"04:00:00" or "00:04:00"'):
        parse_time("04:00")


def test_bare_numbers_are_seconds_for_spans_and_minutes_for_limits() -> None:
    assert (parse_seconds(30), parse_time(30)) == (30, 1800)
    assert parse_seconds("2m") == 120
    assert parse_seconds(0) == 0


@given(st.integers(1, LONGEST_S))
def test_what_is_written_back_reads_the_same(seconds: int) -> None:
    assert parse_time(clock(seconds)) == seconds


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_a_value_error(text: str) -> None:
    for parse in (parse_time, parse_seconds):
        with contextlib.suppress(ValueError):
            assert 0 <= parse(text) <= LONGEST_S
