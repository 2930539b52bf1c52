"""The exception that a printed traceback ends with.

Ranks interleave their lines, so only lines with the prefix of the one that says "Traceback" are followed.
``tests/resiliency/triage/test_reading.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MARK = "Traceback (most recent call last)"
_FRAME = re.compile(
    r'^\s*File "(?P<file>[^"]{1,400})", line (?P<line>\d+)(?:, in (?P<function>[^\s]{1,200}))?'
)
_EXCEPTION = re.compile(r"^\s*(?P<type>[A-Za-z_][\w.]{0,150})(?:: (?P<message>.*)|:?\s*)$")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
#: Printed before a traceback that ended nothing.
_HARMLESS_BEFORE = (
    "Exception ignored in",
    "--- Logging error ---",
    "Error in atexit._run_exitfuncs",
    "Exception ignored on",
    "Task exception was never retrieved",
    "Error in sys.excepthook",
)
#: What a probe of hardware prints where there is none, and goes on: NVRx 0.4 does at each start on a node
#: without NVML, with the two chained errors of pynvml. A program that dies of it says so in its own words.
_PROBES = re.compile(
    r"pynvml\.NVMLError_(?:LibraryNotFound|Uninitialized|DriverNotLoaded)\b|"
    r"OSError: libnvidia-ml\.so"
)
#: A log line of its own, not part of a message that has several lines.
_ANOTHER = re.compile(
    r"^(?:\[?20\d\d[-/]|[IWEFC]\d{3,4} |\[[IWEFC]\d|\[rank|srun: |slurmstepd: |\d\d:\d\d:\d\d|"
    r"[\w.-]+:\d+:\d+ \[\d|"
    r"(?:INFO|WARNING|ERROR|DEBUG)\b|=====|-----|\{'| \[20)"
)
_MAX_LINES = 400
_MAX_FOLLOWING = 6


@dataclass(frozen=True)
class Traceback:
    """``text``: the exception's line and up to a few that follow it (messages may have several lines)."""

    offset: int
    text: str
    frames: str
    end: int
    chained: bool = False
    harmless: bool = False


Lines = Iterator[tuple[int, str]]  # (offset, text without prefix), of one writer, after the Traceback line


def parse(start: str, lines: Lines, *, before: str = "") -> Traceback | None:
    """``start`` is the text of the Traceback line itself; None: no exception line follows in reach."""
    indent = -1
    frames: list[str] = []
    harmless = any(h in before for h in _HARMLESS_BEFORE)
    for count, (offset, text) in enumerate(lines):
        if count > _MAX_LINES:
            return None
        match = _FRAME.match(text)
        if match:
            indent = len(text) - len(text.lstrip())
            frames.append(f"{match['file']}:{match['function'] or ''}")
            continue
        if not text.strip():
            continue
        own = len(text) - len(text.lstrip())
        if indent < 0:
            if own == 0 and count > 2:
                return None
            if own > 0:
                continue
        if own >= indent and own > 0:
            continue
        if not _EXCEPTION.match(text):
            if _looks_like_noise(text):
                continue
            return None
        return _finish(offset, text, frames, lines, harmless or bool(_PROBES.search(text)))
    return None


def _looks_like_noise(text: str) -> bool:
    """A line of someone else that got between the frames (no prefix tells them apart)."""
    return not text[:1].isalpha() or " " in text.split(":", 1)[0]


def _finish(offset: int, text: str, frames: list[str], lines: Lines, harmless: bool) -> Traceback:
    parts, end, chained = [text.strip()], offset, False
    for _, (at, line) in zip(range(_MAX_FOLLOWING), lines, strict=False):
        if line.strip().startswith(_CHAINED):
            chained = True
            break
        if MARK in line or _ANOTHER.match(line):
            break
        parts.append(line.rstrip())
        end = at
    # The frames nearest to the error tell most: keep the last twelve.
    return Traceback(offset, "\n".join(parts).rstrip(), "\n".join(frames[-12:]), end, chained, harmless)
