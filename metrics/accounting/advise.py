"""Advice from a scope's own data: how often to save, spares to hold, the cause to fix first. Reads only.

The arithmetic is ``metrics.stats.advice``; here its arguments are taken from the ledger, and what cannot be
taken is said. ``tests/metrics/accounting/test_nodes.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from metrics.ledger.store import Ledger
from metrics.stats import advice

from .kinds import KINDS
from .nodes import caused
from .reading import Reading
from .summary import summarise
from .values import Scope, Summary

_STEPS: Final = ("productive", "recomputing", "provisional", "lost")
_BACK: Final = ("recovery", "start")
#: Taken for the time that a node is away where no exclusion tells: what an order lasts by default.
_AWAY_HOURS: Final = 7 * 24.0


@dataclass(frozen=True)
class Advice:
    """``interval`` and ``spares`` None: ``notes`` say why. ``fixes``: the dearest cause first."""

    interval: advice.IntervalAdvice | None
    spares: advice.SpareAdvice | None
    fixes: tuple[advice.Fix, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Saves:
    """How many, seconds that steps waited for one, and from then until it counted. None: not told."""

    count: int
    stall_s: float | None
    persist_s: float | None


def advise(ledger: Ledger, scope: Scope | None = None, summary: Summary | None = None) -> Advice:
    """``summary``: of the same scope, where it was made already."""
    scope = scope or Scope()
    summary = summary or summarise(ledger, scope)
    notes: list[str] = []
    reading = Reading(ledger, scope)
    interval = _interval(summary, _saves(reading), reading.starts(), notes)
    spares = _spares(reading, summary, notes)
    costs = [
        advice.CauseCost(
            group.key,
            sum(one.counted for one in group.failures),
            sum(part.node_seconds for part in group.waterfall) / 3600,
        )
        for group in summary.by("cause")
    ]
    fixes = advice.first_to_fix(costs, _value(summary, "node_hours") or 0.0)
    return Advice(interval, spares, fixes, tuple(notes))


def _value(summary: Summary, name: str) -> float | None:
    found = summary.figure(name)
    return found.value if found is not None else None


def _saves(reading: Reading) -> Saves:
    rows = reading.saves()
    stalls = [row[0] for row in rows if row[0] is not None]
    extra = [max(0.0, row[1] - (row[0] or 0.0)) for row in rows if row[1] is not None]
    return Saves(len(rows), fmean(stalls) if stalls else None, fmean(extra) if extra else None)


def _interval(summary: Summary, saves: Saves, starts: int, notes: list[str]) -> advice.IntervalAdvice | None:
    """``starts``: how often ranks were started. A failure costs its recovery and one start more."""
    wall = {part.kind: part.seconds for part in summary.waterfall}
    steps = sum(wall.get(kind, 0.0) for kind in _STEPS)
    mtbf = summary.figure("mtbf_hours")
    missing = [
        *(["no checkpoint was committed"] if not saves.count else []),
        *(["no time of steps is known"] if not steps else []),
        *(["saves do not tell how long training waited"] if saves.stall_s is None and saves.count else []),
        *(["no failure: the time between failures is not known"] if not mtbf or mtbf.value is None else []),
    ]
    if missing or mtbf is None or mtbf.value is None or saves.stall_s is None:
        notes.append(f"checkpoint interval: {'; '.join(missing)}")
        return None
    group = {name: sum(s for kind, s in wall.items() if KINDS[kind].group == name) for name in _BACK}
    back = group["recovery"] / max(1, mtbf.n or 0) + group["start"] / max(1, starts)
    try:
        return advice.checkpoint_interval(
            steps / saves.count,
            saves.stall_s,
            mtbf.value * 3600,
            back,
            None if mtbf.low is None else mtbf.low * 3600,
            None if mtbf.high is None else mtbf.high * 3600,
            saves.persist_s or 0.0,
        )
    except ValueError as error:
        notes.append(f"checkpoint interval: {error}")
        return None


def _spares(reading: Reading, summary: Summary, notes: list[str]) -> advice.SpareAdvice | None:
    days = (_value(summary, "node_hours") or 0.0) / 24
    laid = [one for one in summary.failures if caused(one)]
    size = reading.largest()
    if not days or not laid or not size:
        notes.append("spares: no failure is laid on a node, so how often nodes fail is not known")
        return None
    away = list(_away(reading))
    if not away:
        notes.append(f"spares: no node came back yet; taken to be away for {_AWAY_HOURS:g} h")
    try:
        return advice.spares(size, 1000 * len(laid) / days, fmean(away) if away else _AWAY_HOURS)
    except ValueError as error:  # nodes fail faster than they come back
        notes.append(f"spares: {error}")
        return None


def _away(reading: Reading) -> Iterator[float]:
    """Hours from an order to keep a node out to its way back."""
    rows = reading.ledger.rows(
        "SELECT x.since, (SELECT min(m.at) FROM readmission m WHERE m.cluster = x.cluster"
        " AND m.node = x.node AND m.at >= x.since AND NOT m.rehearsal) AS back"
        " FROM exclusion x WHERE NOT x.rehearsal ORDER BY x.since, x.node"
    )
    yield from ((back - since) / 3600 for since, back in rows if back is not None)
