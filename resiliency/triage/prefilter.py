"""Where in a piece of log any anchor occurs: the part whose speed decides the speed of triage.

Hyperscan where it is installed: all anchors in one automaton, 1.3 GB/s on one core here. Otherwise lines
are told apart by their shape (the line without its digits): logs repeat few shapes, each is searched once
(180 MB/s on
training logs, 4 MB/s on text that never repeats). Both find the same lines: ``test_hostile.py``;
``scripts/bench/bench_triage.py`` measures both against ``grep -cE`` (figures in docs/benchmarks.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

_DIGITS = b"0123456789"
_MAX_SHAPES = 50_000
#: Compiling the automaton takes longer than reading this much by shape.
WORTH_COMPILING = 8 << 20

Place = tuple[int, int]  # (offset inside an occurrence, index of the anchor or -1: not known which)


@lru_cache(maxsize=1)
def _hyperscan() -> Any:
    try:
        import hyperscan
    except ImportError:
        return None
    return hyperscan


def engine() -> str:
    """``hyperscan`` or ``shapes``: what large logs are searched with here."""
    return "hyperscan" if _hyperscan() is not None else "shapes"


class Prefilter:
    """Finds anchors in bytes; ``anchors`` keep their order, their index is what ``find`` reports."""

    def __init__(
        self, anchors: Iterable[bytes], *, force: str | None = None, expect: int | None = None
    ) -> None:
        self.anchors: tuple[bytes, ...] = tuple(dict.fromkeys(anchors))
        small = expect is not None and expect < WORTH_COMPILING
        self._database = None
        if force != "shapes" and not (small and force is None) and _hyperscan() is not None:
            self._database = _compile(self.anchors)
        self.engine = "hyperscan" if self._database is not None else "shapes"
        if self._database is None:
            self._interesting = _any_of(
                tuple(sorted({a.translate(None, _DIGITS) for a in self.anchors}))
            ).search
            self._dull: set[bytes] = set()

    def find(self, data: bytes, lo: int, hi: int) -> Iterator[Place]:
        """Occurrences in ``data[lo:hi]``, in order; of a line perhaps only one."""
        if self._database is None:
            return self._by_shape(data, lo, hi)
        found: list[Place] = []

        def note(identity: int, start: int, end: int, flags: int, context: Any) -> None:
            found.append((lo + end - 1, identity))

        self._database.scan(data[lo:hi] if lo or hi < len(data) else data, match_event_handler=note)
        return iter(found)

    def _by_shape(self, data: bytes, lo: int, hi: int) -> Iterator[Place]:
        # An anchor in a line is, without its digits, in the line without its digits: nothing is missed.
        dull, interesting, at = self._dull, self._interesting, lo
        if len(dull) > _MAX_SHAPES:
            dull.clear()
        add = dull.add
        for line in data[lo:hi].split(b"\n"):
            shape = line.translate(None, _DIGITS)
            if shape not in dull:
                match = interesting(shape)
                if match is None:
                    if len(shape) < 2000:
                        add(shape)
                elif len(line) < 8192:
                    yield at + len(line) // 2, -1
                else:
                    yield from self._in_long_line(data, at, at + len(line))
            at += len(line) + 1

    def _in_long_line(self, data: bytes, lo: int, hi: int) -> Iterator[Place]:
        for start in range(lo, hi, 4096):
            piece = data[start : min(hi, start + 4096 + 200)]
            if self._interesting(piece.translate(None, _DIGITS)):
                yield min(hi - 1, start + 2048), -1


@lru_cache(maxsize=4)
def _compile(anchors: Sequence[bytes]) -> Any:
    library = _hyperscan()
    database = library.Database()
    database.compile(
        expressions=[_escape(a) for a in anchors],
        ids=list(range(len(anchors))),
        flags=[0] * len(anchors),
    )
    return database


def _escape(word: bytes) -> bytes:
    return b"".join(b"\\x%02x" % c for c in word)


@lru_cache(maxsize=4)
def _any_of(words: Sequence[bytes]) -> re.Pattern[bytes]:
    """One expression over all words, as a tree of their common beginnings: fewer branches per place."""
    kept: list[bytes] = []
    for word in sorted(words, key=len):
        if word and not any(k in word for k in kept):
            kept.append(word)
    tree: dict[int, Any] = {}
    for word in kept:
        node = tree
        for byte in word:
            node = node.setdefault(byte, {})
        node[-1] = {}
    return re.compile(_branch(tree))


def _branch(node: dict[int, Any]) -> bytes:
    if -1 in node:
        return b""
    parts = [re.escape(bytes([byte])) + _branch(rest) for byte, rest in sorted(node.items())]
    return parts[0] if len(parts) == 1 else b"(?:" + b"|".join(parts) + b")"
