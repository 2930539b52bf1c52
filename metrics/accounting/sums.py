"""Figures from sums of time and a list of failures. Pure.

``tests/metrics/accounting/test_summary.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import fmean
from typing import Final

from metrics.stats import rates

from .figures import Figure, figure
from .kinds import GROUPS, KINDS, PRODUCTIVE
from .values import Failure, Slice

_HOUR: Final = 3600.0


Key = tuple[str, str, str]  # run, stage, attempt
_ALLOCATED: Final = frozenset(kind.name for kind in KINDS.values() if kind.allocated)
_OF_GROUP: Final = {
    group: tuple(kind.name for kind in KINDS.values() if kind.group == group) for group in GROUPS
}


@dataclass
class Sums:
    """Seconds by kind: ``wall`` of attempts (track 0), ``node`` of all nodes, ``gpu`` of all GPUs.

    ``gpu_known``: false once a stage's GPUs are not known. ``attempts``: how many; ``open``: one of a stage
    that goes on is among them.
    """

    wall: dict[str, float] = field(default_factory=dict)
    node: dict[str, float] = field(default_factory=dict)
    gpu: dict[str, float] = field(default_factory=dict)
    gpu_known: bool = True
    attempts: int = 0
    open: bool = False
    lost_steps: int = 0

    def add(self, kind: str, seconds: float, nodes: int, gpus: int | None, *, wall: bool) -> None:
        """``seconds`` of each of ``nodes`` nodes with ``gpus`` GPUs; ``wall``: also of the wall-clock."""
        if wall:
            self.wall[kind] = self.wall.get(kind, 0.0) + seconds
        self.node[kind] = self.node.get(kind, 0.0) + seconds * nodes
        if kind in _ALLOCATED:
            if gpus is None:
                self.gpu_known = False
            else:
                self.gpu[kind] = self.gpu.get(kind, 0.0) + seconds * nodes * gpus

    @property
    def wall_s(self) -> float:
        return sum(self.wall.values())

    @property
    def allocated_s(self) -> float:
        """Allocated seconds of attempts."""
        return _over(self.wall, _ALLOCATED)

    @property
    def node_s(self) -> float:
        """Allocated node-seconds."""
        return _over(self.node, _ALLOCATED)

    def waterfall(self) -> tuple[Slice, ...]:
        """In the order of the table of kinds, without those that took no time."""
        wall, node = self.wall_s, self.node_s
        return tuple(
            Slice(
                kind,
                self.wall.get(kind, 0.0),
                self.node.get(kind, 0.0),
                self.wall.get(kind, 0.0) / wall if wall else 0.0,
                (self.node.get(kind, 0.0) / node if node else 0.0) if kind in _ALLOCATED else None,
            )
            for kind in KINDS
            if self.wall.get(kind) or self.node.get(kind)
        )


def _over(seconds: dict[str, float], kinds: Iterable[str]) -> float:
    return sum(seconds.get(kind, 0.0) for kind in kinds)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def time_figures(sums: Sums, window: str) -> Iterator[Figure]:
    """Where the time went."""
    n, provisional = sums.attempts, sums.open
    wall, node = sums.wall_s, sums.node_s
    none = "" if wall else "no attempt in this window"
    paid = none or ("" if node else "no node was allocated, or none is known")
    yield figure(
        "ettr",
        _ratio(_over(sums.wall, PRODUCTIVE), wall),
        window=window,
        n=n,
        note=none,
        provisional=provisional,
    )
    for name, seconds in (
        ("goodput", _over(sums.node, PRODUCTIVE)),
        ("provisional", sums.node.get("provisional", 0.0)),
    ):
        yield figure(name, _ratio(seconds, node), window=window, n=n, note=paid, provisional=provisional)
    for group in GROUPS:
        if group == "queue":
            value, note = _ratio(_over(sums.wall, _OF_GROUP[group]), wall), none
        else:
            value, note = _ratio(_over(sums.node, _OF_GROUP[group]), node), paid
        yield figure(f"overhead_{group}", value, window=window, n=n, note=note, provisional=provisional)
    yield figure("lost_steps", float(sums.lost_steps), window=window, n=n, note=none, provisional=provisional)
    yield figure(
        "lost_seconds", sums.wall.get("lost", 0.0), window=window, n=n, note=none, provisional=provisional
    )
    gpus = "" if sums.gpu_known else "GPUs a node are not known of every stage"
    lost = sums.gpu.get("lost", 0.0) / _HOUR if sums.gpu_known else None
    yield figure("lost_gpu_hours", lost, window=window, n=n, note=gpus, provisional=provisional)
    yield figure("node_hours", node / _HOUR, window=window, n=n)
    hours = sum(sums.gpu.values()) / _HOUR if sums.gpu_known else None
    yield figure("gpu_hours", hours, window=window, n=n, note=gpus)


def failure_figures(sums: Sums, failures: Sequence[Failure], window: str, pending: int) -> Iterator[Figure]:
    """How often something failed in the time of ``sums``, and what it took to get over it.

    ``pending``: how many of the failures a stage that goes on may yet get over.
    """
    counted = [one for one in failures if one.counted]
    n = len(counted)
    yield figure("failures", float(n), window=window, n=n)
    for name, hours, count in (
        ("mttf_hours", sums.node_s / _HOUR, n),
        ("mtbf_hours", sums.allocated_s / _HOUR, n),
        ("mtbi_hours", sums.wall_s / _HOUR, len(failures)),
    ):
        yield _estimated(name, _mttf(hours, count), window, "none: only a lower bound")
    yield _estimated("failures_per_1000_node_days", _per_1000(n, sums.node_s / 86400), window, "")
    for name, spans in (
        ("mttd_seconds", _spans(counted, "onset_at", "detected_at")),
        ("mttr_running_seconds", _spans(counted, "onset_at", "running_at")),
        ("mttr_progress_seconds", _spans(counted, "onset_at", "progress_at")),
    ):
        note = "" if n and len(spans) == n else f"{n - len(spans)} of {n} not known, or not got over"
        yield figure(name, fmean(spans) if spans else None, window=window, n=len(spans), note=note)
    tried = [one for one in counted if one.tried]
    done = sum(one.progress_at is not None for one in tried)
    settled = len(tried) - pending
    found = _estimated("restart_success_rate", rates.share(done, settled), window, "")
    yield replace(found, note=f"{pending} more may still be got over") if pending else found


@lru_cache(maxsize=4096)
def _unit(failures: int) -> tuple[rates.Estimate, rates.Estimate]:
    """Time to failure and rate for one unit of time: both only scale with it, and many groups fail alike."""
    return rates.mttf(1.0, failures), rates.failure_rate(failures, 1.0)


def _mttf(time: float, failures: int) -> rates.Estimate:
    return _scaled(_unit(failures)[0], time) if time > 0 else rates.mttf(0.0, failures)


def _per_1000(failures: int, node_days: float) -> rates.Estimate:
    if node_days <= 0:
        return rates.per_1000_node_days(failures, 0.0)
    return _scaled(_unit(failures)[1], 1000.0 / node_days)


def _scaled(unit: rates.Estimate, by: float) -> rates.Estimate:
    value, low, high = (None if one is None else one * by for one in (unit.value, unit.low, unit.high))
    return rates.Estimate(value, low, high, unit.level, unit.n)


def _estimated(name: str, found: rates.Estimate, window: str, none: str) -> Figure:
    """``none``: what to say where there is no value although something was observed."""
    known = found.low is not None or found.high is not None
    return figure(
        name,
        found.value,
        window=window,
        n=found.n,
        low=found.low,
        high=found.high,
        level=found.level if known else None,
        note="" if found.value is not None else none if known else "nothing was observed",
    )


def _spans(failures: Iterable[Failure], begin: str, end: str) -> list[float]:
    pairs = ((getattr(one, begin), getattr(one, end)) for one in failures)
    return [max(0.0, last - first) for first, last in pairs if first is not None and last is not None]
