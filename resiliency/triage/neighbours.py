"""Lines around a place in a buffer: as shown, and those that the same writer wrote before and after.

``tests/resiliency/triage/test_hostile.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from . import lines

AHEAD = 64 << 10  # how far the end of a traceback is looked for


def shown(buffer: bytes, start: int, at: int, end: int) -> str:
    raw = buffer[start:end].rstrip(b"\r")
    if b"\r" in raw:  # a progress bar redraws its line: the part with the match is the line
        left = raw.rfind(b"\r", 0, max(0, at - start)) + 1
        right = raw.find(b"\r", max(0, at - start))
        raw = raw[left : right if right >= 0 else len(raw)]
    return lines.plain(raw.decode("utf-8", "replace"))


def previous(buffer: bytes, start: int, prefix: lines.Prefix, nodes: Collection[str]) -> str | None:
    """The line before, of the same writer."""
    for _ in range(40):
        if start <= 0:
            return None
        end = start - 1
        start = buffer.rfind(b"\n", max(0, end - lines.MAX_LINE), end) + 1
        text = lines.plain(buffer[start:end].decode("utf-8", "replace"))
        own = lines.split_prefix(text, nodes)
        if own.writer == prefix.writer:
            return text[own.length :]
    return None


def following(
    buffer: bytes, end: int, prefix: lines.Prefix, nodes: Collection[str]
) -> Iterator[tuple[int, str]]:
    limit = min(len(buffer), end + AHEAD)
    while end < limit:
        start = end + 1
        end = buffer.find(b"\n", start)
        end = len(buffer) if end < 0 else end
        text = buffer[start : min(end, start + lines.MAX_LINE)].decode("utf-8", "replace")
        text = lines.plain(text).rstrip("\r")
        own = lines.split_prefix(text, nodes)
        if own.writer == prefix.writer:
            yield start, text[own.length :]
