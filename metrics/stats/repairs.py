"""What came of taking a node out: still out, back and well, or failed again. Pure functions.

``tests/metrics/stats/test_repairs.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

RELAPSE_DAYS: Final = 14.0
_DAY_S: Final = 86400.0
STATES: Final = ("out", "relapsed", "cut", "watched", "well")


@dataclass(frozen=True)
class Outage:
    """One time that a node was kept out, Unix seconds. ``back_at`` None: not back yet."""

    out_at: float
    back_at: float | None
    reason: str


@dataclass(frozen=True)
class Repair:
    """An outage and what followed. ``state``: ``out``; ``relapsed``, it failed again within the window, at
    ``failed_at``; ``cut``, it was taken out again before without one; ``watched``, the window is not over;
    ``well``, it passed without a failure."""

    node: str
    out_at: float
    back_at: float | None
    state: str
    failed_at: float | None
    reason: str


def repairs(
    node: str,
    outages: Sequence[Outage],
    failures: Sequence[float],
    now: float,
    window_days: float = RELAPSE_DAYS,
) -> tuple[Repair, ...]:
    """Each outage of ``node``, the first first, judged by the ``failures`` (Unix seconds) that followed.

    Outages that overlap or touch are one (two reasons to keep it out), with both reasons. A failure at or
    after ``back_at`` and within the window is a relapse; one while it was out says nothing. The window ends
    early where the node is taken out again. Raises ValueError for a time that is no number, an outage that
    ends before it starts or a window that is not over 0.
    """
    if not (math.isfinite(window_days) and window_days > 0.0):
        raise ValueError(f"the window must be over 0 days: {window_days}")
    if not all(map(math.isfinite, (now, *failures))):
        raise ValueError(f"{node}: a time that is no number")
    joined = _joined(node, outages)
    found = []
    for at, outage in enumerate(joined):
        if outage.back_at is None or outage.back_at > now:
            found.append(Repair(node, outage.out_at, None, "out", None, outage.reason))
            continue
        end = outage.back_at + window_days * _DAY_S
        cut = joined[at + 1].out_at if at + 1 < len(joined) else math.inf
        again = [one for one in failures if outage.back_at <= one < min(end, now) and one <= cut]
        if again:
            state = "relapsed"
        elif cut < end:
            state = "cut"
        else:
            state = "well" if now >= end else "watched"
        found.append(
            Repair(node, outage.out_at, outage.back_at, state, min(again, default=None), outage.reason)
        )
    return tuple(found)


def _joined(node: str, outages: Sequence[Outage]) -> list[Outage]:
    joined: list[Outage] = []
    for one in sorted(outages, key=lambda outage: outage.out_at):
        back = math.inf if one.back_at is None else one.back_at
        if not math.isfinite(one.out_at) or math.isnan(back) or back < one.out_at:
            raise ValueError(f"{node}: out at {one.out_at}, back at {one.back_at}")
        last = joined[-1] if joined else None
        if last is not None and (last.back_at is None or one.out_at <= last.back_at):
            reasons = last.reason if one.reason in last.reason.split("; ") else f"{last.reason}; {one.reason}"
            end = None if last.back_at is None or one.back_at is None else max(last.back_at, one.back_at)
            joined[-1] = Outage(last.out_at, end, reasons)
        else:
            joined.append(one)
    return joined
