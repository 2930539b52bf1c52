"""Lines that say that a training goes on: the last few of a piece of log, found from its end.

``tests/resiliency/triage/test_progress.py`` has a sample per trainer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_WORDS = (b"iteration", b"'loss'", b"step", b"iter ", b"Epoch", b"Step")
_LINE = re.compile(
    rb"iteration\s+(?P<a>\d+)/\s*\d+ \||\{'loss': [^}]*'epoch': (?P<e>[\d.]+)|"
    rb"\b(?:global_)?[sS]tep[ =:#]{1,4}(?P<b>\d+)\b[^\n]{0,200}\bloss|"
    rb"\biter[ =:]{1,3}(?P<c>\d+)\b[^\n]{0,200}\bloss|"
    rb"\bEpoch \d+:[^\n]{0,200}\b(?P<d>\d+)/\d+ \[|\bstep:(?P<f>\d+) - "
)


@dataclass
class Progress:
    order: int
    line: int
    time: float | None
    step: int | None


def last_progress(buffer: bytes, lo: int, hi: int) -> list[tuple[int, int | None, str]]:
    """Up to three last progress lines of ``buffer[lo:hi]``: offset, step, first characters."""
    found: dict[int, re.Match[bytes]] = {}
    for word in _WORDS:
        at = hi
        for _ in range(30):
            at = buffer.rfind(word, lo, at)
            if at < 0 or len(found) >= 3:
                break
            start = buffer.rfind(b"\n", max(0, at - 400), at) + 1
            end = buffer.find(b"\n", at, at + 1000)
            match = _LINE.search(buffer, start, end) if end > 0 else None
            if match:
                found[start] = match
                at = start
        if found:
            break
    rows = []
    for start, match in sorted(found.items()):
        step = next((g for g in match.group("a", "b", "c", "d", "f") if g), None)
        head = buffer[start : start + 200].decode("utf-8", "replace")
        rows.append((start, int(step[:18]) if step else None, head))
    return rows
