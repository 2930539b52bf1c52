"""Values as Slurm's commands print them: records, times, numbers, exit codes. Pure.

Separators are control characters, since names, comments and reasons may hold any printable one.
``tests/orchestrator/test_slurm_squeue.py`` and ``test_slurm_sacct.py`` feed it torn, foreign and
malformed text.
"""

from __future__ import annotations

import re
from typing import Final

FIELD_END: Final = "\x1f"  # unit separator
RECORD_END: Final = "\x1e"  # record separator

#: What Slurm prints for "no value", in its commands' various tastes.
_NOTHING: Final = frozenset(
    {"", "n/a", "(null)", "none", "unknown", "none assigned", "invalid", "nodename_unset"}
)
_WAIT_SIGNAL_BITS: Final = 0x7F  # of a wait(2) status


def text(value: str) -> str:
    """The value, or "" for one of Slurm's words for nothing."""
    value = value.strip()
    return "" if value.lower() in _NOTHING else value


def epoch(value: str) -> float | None:
    """Unix seconds (``SLURM_TIME_FORMAT=%s``); None for N/A, Unknown, None and 0."""
    value = value.strip()
    return float(value) if value.isdecimal() and int(value) > 0 else None


def number(value: str) -> int | None:
    """A whole number, also as ``64+`` (a minimum); None for anything else (``UNLIMITED`` …)."""
    match = re.fullmatch(r"(\d+)\+?", value.strip())
    return int(match[1]) if match else None


def exit_status(value: str) -> tuple[int | None, int | None]:
    """``(exit code, signal)`` of ``0:9``, or of a raw wait status.

    squeue 22.05 prints the raw status (1280 is exit 5), 24.11 prints ``5:0``; in both 53 in the low
    bits is Slurm's own "could not open the output file".
    """
    code, colon, signal = value.strip().partition(":")
    if not code.isdecimal() or (colon and not signal.isdecimal()):
        return None, None
    if colon:
        return int(code), int(signal)
    raw = int(code)
    by_signal = raw & _WAIT_SIGNAL_BITS
    return (0 if by_signal else (raw >> 8) & 0xFF), by_signal


def seconds(value: str) -> int | None:
    """A time limit (``5:00``, ``1-00:00:00``, ``30``: minutes); None: unlimited or not said."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", value.strip())
    if not match:
        return None
    days, first, second, third = (int(g) if g else 0 for g in match.groups())
    given = sum(g is not None for g in match.groups()[1:])
    if match[1] is not None or given == 3:  # D-H[:M[:S]]
        hours, minutes, secs = first, second, third
    else:  # M or M:S
        hours, minutes, secs = 0, first, second
    return ((days * 24 + hours) * 60 + minutes) * 60 + secs


def time_limit(total_s: int) -> str:
    """``D-HH:MM:SS`` for ``--time``; Slurm itself rounds up to the minute."""
    days, rest = divmod(max(int(total_s), 1), 86_400)
    hours, rest = divmod(rest, 3_600)
    return f"{days}-{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"
