"""Two summaries side by side. ``tests/metrics/reports/test_comparing.py``."""

from __future__ import annotations

from typing import Final

from metrics.accounting.values import Summary

from .tables import Cell, Table

#: Column → meaning; ``docs/reports.md`` is held to it.
COLUMNS: Final[dict[str, str]] = {
    "what": "`figure`, or `share`: of the wall-clock with queue time",
    "name": "name of the figure, or kind of time",
    "unit": "unit of the values",
    "first": "value of the first run; empty: not known, or it had none of this time",
    "second": "value of the second run",
    "difference": "second less first",
    "ratio": "second over first; empty where the first is 0",
    "apart": "1: the confidence intervals do not meet; 0: they do; empty: one has none",
    "provisional": "1: a stage of one of them is not over",
}


def compare(first: Summary, second: Summary) -> Table:
    """A row for each figure that either has, then for each kind of time."""
    rows: list[tuple[Cell, ...]] = []
    others = {one.name: one for one in second.figures}
    for one in first.figures:
        other = others[one.name]
        if one.value is None and other.value is None:
            continue
        open_ = int(one.provisional or other.provisional)
        apart = _apart((one.low, one.high), (other.low, other.high))
        rows.append(("figure", one.name, one.unit, *_numbers(one.value, other.value), apart, open_))
    shares = [{part.kind: part.share for part in summary.waterfall} for summary in (first, second)]
    open_ = int(any(one.provisional for summary in (first, second) for one in summary.figures))
    for kind in dict.fromkeys([*shares[0], *shares[1]]):
        mine, theirs = (share.get(kind, 0.0) for share in shares)
        if mine or theirs:
            rows.append(("share", kind, "ratio", *_numbers(mine, theirs), None, open_))
    return Table("compare", tuple(COLUMNS), tuple(rows))


def _numbers(first: float | None, second: float | None) -> tuple[Cell, Cell, Cell, Cell]:
    if first is None or second is None:
        return first, second, None, None
    return first, second, second - first, second / first if first else None


def _apart(one: tuple[float | None, float | None], other: tuple[float | None, float | None]) -> int | None:
    if one == (None, None) or other == (None, None):
        return None
    low, high = (one, other) if (one[0] or 0.0) <= (other[0] or 0.0) else (other, one)
    # A bound that is not there lies at infinity.
    return int(low[1] is not None and high[0] is not None and low[1] < high[0])
