"""A moment as a person types it: a span from now, or a date. ``tests/orchestrator/test_moments.py``."""

from __future__ import annotations

import re
import time
from typing import Final

from resiliency.errors import UsageError

_SPAN: Final = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*([mhdw])")
_UNIT_S: Final = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_SHAPES: Final = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S")


def moment(text: str, now: float, option: str, *, back: bool = False) -> float:
    """``36h``, ``7d``, ``2w`` (from now on, or ``back``), or a date such as ``2026-12-24`` or
    ``2026-12-24T12:00`` in local time, as Unix seconds. Raises UsageError, which names the ``option``.
    """
    match = _SPAN.fullmatch(text.strip())
    if match is not None:
        span = float(match[1]) * _UNIT_S[match[2]]
        return now - span if back else now + span
    for shape in _SHAPES:
        try:
            return time.mktime(time.strptime(text.strip(), shape))
        except (ValueError, OverflowError):
            continue
    raise UsageError(f"{option} {text!r} is no time", hint="36h, 7d, 2w, or a date: 2026-12-24")
