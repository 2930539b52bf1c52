"""The summary of a scope: every figure, the waterfall, the failures, and the same by any dimension.

Everything comes from the ledger's rows; reports only print it. ``tests/metrics/accounting/test_summary.py``.
"""

from __future__ import annotations

import time
from typing import Any

from metrics.ledger.store import Ledger

from . import speed
from .groups import Groups, Rows
from .reading import Reading
from .sums import failure_figures, time_figures
from .values import DIMENSIONS, Failure, Group, Scope, Slice, Summary

__all__ = ["DIMENSIONS", "Failure", "Group", "Scope", "Slice", "Summary", "summarise"]


def summarise(ledger: Ledger, scope: Scope | None = None) -> Summary:
    """The figures of a scope (None: of everything). Raises NotFound for a run that the ledger lacks."""
    return _Summing(Reading(ledger, scope or Scope())).summary()


class _Summing:
    """One scope's rows, read once, summed as often as asked."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.window = _window(reading)
        self.rows = Rows(reading)

    def summary(self) -> Summary:
        sums = self.rows.sums(self.rows.spent)
        failures = self.rows.failures
        figures = (
            *time_figures(sums, self.window),
            *failure_figures(sums, failures, self.window, self.rows.pending(failures)),
            *speed.figures(self._speed(), sums, self.window),
        )
        groups = Groups(self.rows, self.window)
        return Summary(self.reading.scope, self.window, figures, sums.waterfall(), tuple(failures), groups.by)

    def _speed(self) -> speed.Speed:
        reading, scope = self.reading, self.reading.scope
        where = reading.where + (" AND a.stage = :stage" if scope.stage is not None else "")
        found = speed.read(reading.ledger, where, reading.values, scope.since, scope.until)
        if reading.run is not None:
            found.stated = speed.stated(reading.ledger, reading.run, scope.stage)
        return found


def _window(reading: Reading) -> str:
    scope = reading.scope
    first, last = reading.extent()
    begin = scope.since if scope.since is not None else first
    end = scope.until if scope.until is not None else scope.now if scope.now is not None else last
    what = [f"run {reading.run}" if reading.run else "all runs"]
    what += [f"stage {scope.stage}"] if scope.stage else []
    what += [f"cluster {scope.cluster}"] if scope.cluster else []
    what += [f"user {scope.user}"] if scope.user else []
    what += ["with rehearsals"] if scope.rehearsals and reading.run is None else []
    if begin is None or end is None:
        return f"{', '.join(what)}: no time at all"
    return f"{', '.join(what)}, {_iso(begin)} to {_iso(end)}"


def _iso(at: Any) -> str:
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    except (OverflowError, ValueError, OSError):
        return f"{at:g}"
