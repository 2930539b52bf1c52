"""Times as accounting and logs print them, to Unix seconds.

``tests/orchestrator/importing/test_table.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from resiliency.errors import UsageError

_NOTHING: Final = frozenset({"", "unknown", "none", "n/a", "invalid", "0"})
_LATEST: Final = 4_102_444_800.0  # the year 2100: what lies behind it is no time of a job

#: Text → Unix seconds; None: not said. Raises ValueError for text that is no time.
Clock = Callable[[str], "float | None"]


def zone_of(name: str | None) -> tzinfo | None:
    """The zone of a name; None: this machine's. Raises UsageError when nobody knows the name."""
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise UsageError(f"no time zone {name!r}", hint="such as Europe/Paris or UTC") from error


def zone_words(name: str | None) -> str:
    """What is assumed of times without a zone, for a person."""
    return name or f"this machine's ({'/'.join(dict.fromkeys(time.tzname))})"


def seconds(text: str, zone: tzinfo | None) -> float | None:
    """Unix seconds of ``2026-01-02T03:04:05`` (local to ``zone``), a time with an offset, or an epoch.

    A time that a clock shows twice (end of daylight saving) is the first of the two. Raises ValueError.
    """
    text = text.strip()
    if text.lower() in _NOTHING:
        return None
    if text.isdecimal():
        found = float(text)
    else:
        # fromisoformat knows Z and a comma only from Python 3.11 on
        if "Z" in text or "," in text:
            text = text.replace("Z", "+00:00").replace(",", ".")
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None and zone is not None:
            moment = moment.replace(tzinfo=zone)
        try:
            found = moment.timestamp()
        except (OverflowError, OSError) as error:
            raise ValueError(f"{text} is out of range") from error
    if not 0 < found < _LATEST:
        raise ValueError(f"{text} is out of range")
    return found
