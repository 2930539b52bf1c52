"""Lines that say that a training goes on: the last few of a piece of log, found from its end.

``tests/resiliency/triage/test_reading.py`` has a sample per trainer.
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


_TAIL = 256 << 10  # words that this file has not used yet are looked for in the end of a piece only


def last_progress(
    buffer: bytes, lo: int, hi: int, known: set[bytes] | None = None
) -> list[tuple[int, int | None, str]]:
    """Up to three last progress lines of ``buffer[lo:hi]``: offset, step, first characters.

    ``known`` holds the words by which progress was found before in this file; found ones are added.
    """
    used = known if known is not None else set()
    found: dict[int, re.Match[bytes]] = {}
    for word in sorted(_WORDS, key=lambda w: w not in used):
        first = lo if word in used or hi - lo <= _TAIL else hi - _TAIL
        at = hi
        for _ in range(30):
            at = buffer.rfind(word, first, at)
            if at < 0 or len(found) >= 3:
                break
            start = buffer.rfind(b"\n", max(0, at - 400), at) + 1
            end = buffer.find(b"\n", at, at + 1000)
            match = _LINE.search(buffer, start, end) if end > 0 else None
            if match:
                found[start] = match
                at = start
        if found:
            used.add(word)
            break
        if used and word in used:
            break
    rows = []
    for start, match in sorted(found.items()):
        step = next((g for g in match.group("a", "b", "c", "d", "f") if g), None)
        head = buffer[start : start + 200].decode("utf-8", "replace")
        rows.append((start, int(step[:18]) if step else None, head))
    return rows
