"""What came of taking a node out: back, and well or not. Pure functions. ``tests/metrics/stats/test_repairs.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

RELAPSE_DAYS = 14.0


@dataclass(frozen=True)
class Repair:
    """One time out. Unix seconds; ``back_at`` None: still out. ``state``: ``out``, ``relapsed`` (failed again
    within the window, at ``failed_at``), ``well`` (the window passed without), ``watched`` (not over yet)."""

    node: str
    out_at: float
    back_at: float | None
    state: str
    failed_at: float | None
    reason: str


def repairs(
    node: str,
    outages: Sequence[tuple[float, float | None, str]],
    failures: Sequence[float],
    now: float,
    window_days: float = RELAPSE_DAYS,
) -> tuple[Repair, ...]:
    """Each outage (out, back or None, reason) judged by the failures (Unix seconds) after it."""
    raise NotImplementedError
