"""Values of events as SQLite can hold them. Pure; ``tests/metrics/test_project.py``."""

from __future__ import annotations

from typing import Any, Final

Row = dict[str, Any]
INT: Final = 2**63


def whole(value: Any) -> int | None:
    """A whole number that SQLite can hold, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if -INT < value < INT else None


def number(value: Any) -> Any:
    """A number, or the text that stands for one JSON cannot write (nan, inf); None for the rest."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if abs(value) < 1e308 else None
    return value if value in ("nan", "inf", "-inf") else None


def word(value: Any) -> str | None:
    return None if value is None else str(value)
