"""What a figure is, and the one place that defines each of them.

A report prints the definition beside the number; ``docs/accounting.md`` is tested against this table
(``tests/metrics/accounting/test_docs.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from .kinds import GROUPS, KINDS


@dataclass(frozen=True)
class Definition:
    """``unit``: of the value (``ratio``: 0 to 1). ``source``: where the definition comes from."""

    name: str
    unit: str
    text: str
    source: str


@dataclass(frozen=True)
class Figure:
    """One number with what is needed to judge it.

    ``value`` None: not known, and ``note`` says why. ``n``: what it was counted from (failures, samples).
    ``low`` and ``high``: bounds of the confidence interval at ``level`` (0 to 1); with zero failures a mean
    time between them has a ``low`` alone. ``window``: what was looked at, for a person. ``provisional``: may
    still change, since a stage in it is not over.
    """

    name: str
    value: float | None
    unit: str
    n: int | None
    low: float | None
    high: float | None
    level: float | None
    window: str
    definition: str
    note: str
    provisional: bool


_META: Final = "Meta, arXiv 2410.21680"
_LLAMA: Final = "Llama 3, arXiv 2407.21783, 3.3.4"
_PALM: Final = "PaLM, arXiv 2204.02311, appendix B"
_HERE: Final = "Trainmaster"
_CHI: Final = "chi-square interval of a time-terminated test, MIL-HDBK-338B"
_WORDS: Final = "between two progress words"

#: name, unit, source, text.
_TABLE: Final = (
    (
        "ettr", "ratio", _META,
        "productive and recomputing time / wall-clock of all attempts of a stage, queue time included",
    ),
    (
        "goodput", "ratio", _HERE,
        "productive and recomputing node-time / allocated node-time; work counts once a persisted checkpoint"
        " or the complete stage holds it, until then it is provisional",
    ),
    (
        "provisional", "ratio", _HERE,
        "node-time of steps that nothing persisted holds yet / allocated node-time: what goodput may gain",
    ),
    ("lost_steps", "steps", _HERE, "highest step reached - step resumed from, summed over cycles"),
    ("lost_seconds", "s", _HERE, "wall-clock of the lost steps, each by the cycle that did it"),
    ("lost_gpu_hours", "GPU-h", _HERE, "node-time of the lost steps x GPUs a node"),
    (
        "failures", "count", _HERE,
        "cycles and attempts that ended neither complete nor planned, nor by preemption, requeue or a person",
    ),
    ("mttf_hours", "h", _CHI, "allocated node-hours / failures: of one node"),
    ("mtbf_hours", "h", _CHI, "allocated hours of attempts / failures: of the job"),
    (
        "mtbi_hours", "h", _LLAMA,
        "wall-clock of all attempts / interruptions (failures, preemptions, requeues): of the job",
    ),
    (
        "mttd_seconds", "s", _HERE,
        "mean of onset -> detection over failures (onset: last progress or first root line)",
    ),
    (
        "mttr_running_seconds", "s", _HERE,
        "mean of onset -> ranks of the next cycle run, queue time included, over failures that were got over",
    ),
    (
        "mttr_progress_seconds", "s", _HERE,
        "mean of onset -> first new step past the failed one, over failures that were got over",
    ),
    ("failures_per_1000_node_days", "1/1000 node-d", _META, "failures / allocated node-days x 1000"),
    (
        "restart_success_rate", "ratio", _HERE,
        "failures after which a new step was made / failures after which ranks ran again or were to",
    ),
    ("node_hours", "node-h", _HERE, "allocated time x nodes"),
    ("gpu_hours", "GPU-h", _HERE, "allocated time x nodes x GPUs a node"),
    ("tokens_per_second", "tokens/s", _HERE, f"tokens / time of steps {_WORDS}, stalls left out"),
    ("step_time_p50", "s", _HERE, f"median of the mean step time {_WORDS}"),
    ("step_time_p90", "s", _HERE, f"90th percentile of the mean step time {_WORDS}"),
    ("step_time_p99", "s", _HERE, f"99th percentile of the mean step time {_WORDS}"),
    (
        "tflops_per_gpu", "TFLOP/s", _PALM,
        "model FLOPs a token as the program states them (forward and backward, nothing done twice counted)"
        " x tokens_per_second / GPUs / 1e12",
    ),
    ("mfu", "ratio", _PALM, "tflops_per_gpu / peak that the program states (dense, at its precision)"),
    ("data_wait_share", "ratio", _HERE, "data_stall / (time of steps + data_stall)"),
    ("memory_high_water", "bytes", _HERE, "most memory of a GPU that the program reported"),
)  # fmt: skip

_OVERHEAD: Final = {
    "queue": "time in the queue / wall-clock of all attempts",
    "start": "starting",
    "checkpoint": "waiting for saves",
    "evaluation": "evaluating",
    "data": "waiting for data",
    "lost": "work thrown away",
    "recovery": "detecting, diagnosing and getting over failures",
    "drain": "giving allocations back",
    "spare": "nodes held in reserve",
    "down": "nodes that are lost but allocated",
    "unknown": "time that nothing explains",
}


def _overheads() -> Iterable[Definition]:
    for group in GROUPS:
        text = _OVERHEAD[group]
        if group != "queue":
            kinds = ", ".join(kind.name for kind in KINDS.values() if kind.group == group)
            text = f"{text}: node-time of {kinds} / allocated node-time"
        yield Definition(f"overhead_{group}", "ratio", text, _HERE)


DEFINITIONS: Final[dict[str, Definition]] = {
    row.name: row
    for row in (*(Definition(name, unit, text, source) for name, unit, source, text in _TABLE), *_overheads())
}


def figure(
    name: str,
    value: float | None,
    *,
    window: str,
    n: int | None = None,
    low: float | None = None,
    high: float | None = None,
    level: float | None = None,
    note: str = "",
    provisional: bool = False,
) -> Figure:
    """A figure with its unit and definition. Raises KeyError for a name without a definition."""
    what = DEFINITIONS[name]
    return Figure(name, value, what.unit, n, low, high, level, window, what.text, note, provisional)
