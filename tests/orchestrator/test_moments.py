"""Moments as people type them."""

from __future__ import annotations

import time

import pytest

from orchestrator.moments import moment
from resiliency.errors import UsageError


def test_spans_lie_before_or_after_now() -> None:
    assert moment("36h", 1000.0, "--x") == 1000.0 + 36 * 3600
    assert moment(" 2w ", 1e7, "--x", back=True) == 1e7 - 14 * 86400
    assert moment("1.5d", 0.0, "--x") == 1.5 * 86400


def test_dates_are_local_time() -> None:
    assert moment("2026-12-24T12:30", 0.0, "--x") == time.mktime((2026, 12, 24, 12, 30, 0, 0, 0, -1))


@pytest.mark.parametrize("text", ["", "h", "3y", "-1d", "2026-13-01", "9999999d", "1e3h", "tomorrow"])
def test_anything_else_is_refused_by_its_option(text: str) -> None:
    with pytest.raises(UsageError, match="--since"):
        moment(text, 0.0, "--since")
