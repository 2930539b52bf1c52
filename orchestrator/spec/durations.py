"""Lengths of time as people and Slurm write them. Pure, standard library only.

``tests/orchestrator/test_spec_durations.py``.
"""

from __future__ import annotations

import math
import re

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_WORDS = re.compile(r"(?:\d+(?:\.\d+)?[smhd]){1,4}")
_WORD = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_CLOCK = re.compile(r"(?:(\d{1,4})-)?(\d{1,4}):(\d{1,2})(?::(\d{1,2}))?")
_DAYS_HOURS = re.compile(r"(\d{1,4})-(\d{1,2})")
LONGEST_S = 366 * 86400

TIME_EXPECTED = '"HH:MM:SS", "D-HH:MM", minutes as a number, or "90s", "10m", "2h"'
SECONDS_EXPECTED = 'seconds as a number, or "90s", "10m", "2h"'


def parse_time(value: object) -> int:
    """Seconds of a wall-time limit; a bare number is minutes, as for ``sbatch --time``.

    Raises ValueError with a sentence. ``"10:00"`` is refused: Slurm reads it as minutes and seconds,
    people mostly mean hours and minutes.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"{value!r} is not a length of time")
    if isinstance(value, (int, float)):
        return _whole(value * 60, value)
    text = value.strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return _whole(int(text) * 60, value)
    if match := _CLOCK.fullmatch(text):
        days, first, second, third = match.groups()
        if days is None and third is None:
            raise ValueError(
                f"{value!r} can be read in two ways (Slurm: minutes and seconds): "
                f'write "{first.zfill(2)}:{second}:00" or "00:{first.zfill(2)}:{second}"'
            )
        hours, minutes, seconds = int(first), int(second), int(third or 0)
        if minutes > 59 or seconds > 59 or (days is not None and hours > 23):
            raise ValueError(f"{value!r} is no clock time: minutes and seconds end at 59")
        return _whole(int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds, value)
    if match := _DAYS_HOURS.fullmatch(text):
        return _whole(int(match[1]) * 86400 + int(match[2]) * 3600, value)
    return _whole(_units(text), value)


def parse_seconds(value: object) -> float:
    """Seconds of a short span; a bare number is seconds. Zero is allowed. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"{value!r} is not a number of seconds")
    seconds = float(value) if isinstance(value, (int, float)) else _units(value.strip())
    if not math.isfinite(seconds) or not 0 <= seconds <= LONGEST_S:
        raise ValueError(f"{value!r} is out of range (0 seconds to 366 days)")
    return int(seconds) if seconds == int(seconds) else seconds


def _units(text: str) -> float:
    if not _WORDS.fullmatch(text):
        raise ValueError(f"{text!r} is not a length of time")
    return sum(float(number) * _UNITS[unit] for number, unit in _WORD.findall(text))


def _whole(seconds: float, given: object) -> int:
    if not math.isfinite(seconds) or not 1 <= seconds <= LONGEST_S:
        raise ValueError(f"{given!r} is out of range (1 second to 366 days)")
    return math.ceil(seconds)


def clock(seconds: float) -> str:
    """``HH:MM:SS``, or ``D-HH:MM:SS`` from a day on: what both ``parse_time`` and Slurm read."""
    days, rest = divmod(int(seconds), 86400)
    text = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def spoken(seconds: float) -> str:
    """For a sum in a message: ``90 s``."""
    return f"{seconds:g} s"
