"""A summary as tables with fixed columns: what every format prints.

``COLUMNS`` is the data dictionary that ``docs/reports.md`` is held to.
``tests/metrics/reports/test_tables.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from metrics.accounting.advise import Advice
from metrics.accounting.figures import Figure
from metrics.accounting.values import Failure, Slice, Summary

Cell = str | int | float | bool | None

#: Table → column → meaning. Columns are only ever added, at the end.
COLUMNS: Final[dict[str, dict[str, str]]] = {
    "figures": {
        "dimension": "what it is of: `all`, or the dimension asked for",
        "key": "which one of the dimension; empty for all",
        "name": "name of the figure",
        "value": "its value; empty: not known, `note` says why",
        "unit": "unit of value and bounds",
        "n": "what it was counted from: failures, samples",
        "low": "lower bound of the confidence interval",
        "high": "upper bound",
        "level": "confidence level of the bounds, 0 to 1",
        "provisional": "1: a stage in it is not over, so it may still change",
        "window": "what was looked at",
        "definition": "how it is defined",
        "note": "what has to be known to read it",
    },
    "waterfall": {
        "dimension": "what it is of: `all`, or the dimension asked for",
        "key": "which one of the dimension; empty for all",
        "kind": "kind of time",
        "seconds": "wall-clock of attempts, in seconds",
        "node_seconds": "the same over all nodes",
        "share": "of the wall-clock with queue time, 0 to 1",
        "node_share": "of the allocated node-time, 0 to 1; empty for what is not allocated",
    },
    "failures": {
        "run_id": "run",
        "stage": "stage",
        "attempt_id": "attempt",
        "cycle": "cycle of the attempt",
        "category": "category of the taxonomy",
        "domain": "its domain",
        "counted": "1: a failure; 0: an interruption (preempted, requeued)",
        "rehearsal": "1: harmed on purpose",
        "node": "node that the verdict names",
        "rank": "rank that the verdict names",
        "action": "what was decided",
        "rule": "by which rule",
        "step": "highest step reached",
        "resumed_from": "step that the next cycle went on from",
        "onset_at": "when it began, ISO 8601 UTC",
        "detected_at": "when it was noticed",
        "decided_at": "when it was decided on",
        "running_at": "when ranks ran again",
        "progress_at": "when the first new step was done",
        "lost_steps": "steps thrown away",
        "lost_seconds": "their wall-clock",
        "lost_gpu_hours": "their GPU-hours; empty: GPUs a node are not known",
        "reason": "the verdict in words",
        "signature": "what groups equal failures",
    },
    "advice": {
        "topic": "checkpoint interval, spares, fix (a cause, the dearest first) or note",
        "text": "the advice, with the numbers it rests on",
    },
}


@dataclass(frozen=True)
class Table:
    """``rows`` have a cell for each of ``columns``, in their order."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def records(self) -> list[dict[str, Cell]]:
        """One mapping a row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def tables(summary: Summary, advice: Advice, dimension: str | None = None) -> list[Table]:
    """The figures, the waterfall, the failures and the advice; the first two also split by ``dimension``.

    Raises KeyError for a dimension that the accounting does not know.
    """
    figures = [_figure("all", "", one) for one in summary.figures]
    slices = [_slice("all", "", one) for one in summary.waterfall]
    for group in summary.by(dimension) if dimension is not None else ():
        figures += [_figure(group.dimension, group.key, one) for one in group.figures]
        slices += [_slice(group.dimension, group.key, one) for one in group.waterfall]
    return [
        _table("figures", figures),
        _table("waterfall", slices),
        _table("failures", [_failure(one) for one in summary.failures]),
        _table("advice", _advice(advice)),
    ]


def _table(name: str, rows: Iterable[tuple[Cell, ...]]) -> Table:
    return Table(name, tuple(COLUMNS[name]), tuple(rows))


def _figure(dimension: str, key: str, one: Figure) -> tuple[Cell, ...]:
    return (
        dimension, key, one.name, one.value, one.unit, one.n, one.low, one.high, one.level,
        int(one.provisional), one.window, one.definition, one.note,
    )  # fmt: skip


def _slice(dimension: str, key: str, one: Slice) -> tuple[Cell, ...]:
    return dimension, key, one.kind, one.seconds, one.node_seconds, one.share, one.node_share


def _failure(one: Failure) -> tuple[Cell, ...]:
    moments = (one.onset_at, one.detected_at, one.decided_at, one.running_at, one.progress_at)
    return (
        one.run_id, one.stage, one.attempt_id, one.cycle, one.category, one.domain, int(one.counted),
        int(one.rehearsal), one.node, one.rank, one.action, one.rule, one.step, one.resumed_from,
        *map(iso, moments), one.lost_steps, one.lost_seconds, one.lost_gpu_hours, one.reason, one.signature,
    )  # fmt: skip


def _advice(advice: Advice) -> Iterator[tuple[Cell, ...]]:
    if advice.interval is not None:
        yield "checkpoint interval", advice.interval.text
    if advice.spares is not None:
        yield "spares", advice.spares.text
    yield from (("fix", fix.text) for fix in advice.fixes)
    yield from (("note", note) for note in advice.notes)


def iso(at: float | None) -> str | None:
    """Unix seconds as ISO 8601 in UTC, to the millisecond; None where there is no such moment."""
    if at is None:
        return None
    try:
        whole, rest = divmod(round(at * 1000), 1000)
        return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{rest:03d}Z"
    except (OverflowError, ValueError, OSError):
        return None
