"""Bytes of a log, in pieces, whatever the file is: plain, compressed, still growing, enormous.

A compressed file that grows beyond its limits is cut off there and says so. Never more than one piece is
held. ``tests/resiliency/triage/test_hostile.py`` feeds it bombs, loops and files cut short.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

CHUNK = 4 << 20
MAX_RATIO = 2000  # a log compresses 10 to 50 times; runs of one byte beyond 1000 times are bombs
MAX_UNPACKED = 8 << 30

COMPRESSED = (".gz", ".xz", ".lzma", ".bz2", ".zst")


@dataclass
class Source:
    """One opened file; ``notes`` tells a person what was not read, and why."""

    path: Path
    size: int = 0
    notes: list[str] = field(default_factory=list)


def stem(name: str) -> str:
    """The name without a compression suffix."""
    for suffix in COMPRESSED:
        if name.endswith(suffix):
            return name[: -len(suffix)]
    return name


def _open(path: Path) -> IO[bytes] | Any:
    name = path.name
    if name.endswith(".gz"):
        return gzip.open(path, "rb")
    if name.endswith((".xz", ".lzma")):
        return lzma.open(path, "rb")
    if name.endswith(".bz2"):
        return bz2.open(path, "rb")
    if name.endswith(".zst"):
        import zstandard  # optional; its absence is noted by the caller

        return zstandard.ZstdDecompressor(max_window_size=128 << 20).stream_reader(path.open("rb"))
    return path.open("rb")


Piece = tuple[int, bytes, bool]


def pieces(source: Source, *, limit_bytes: int | None = None, chunk: int = CHUNK) -> Iterator[Piece]:
    """Pieces of the file: (offset in the unpacked text, bytes, whether to look at them).

    ``limit_bytes``: of a longer plain file only the head (a sixteenth, for what starts a job) and the
    tail are looked at; what lies between is read for its line ends only. A compressed file is looked at as
    a whole. The size is taken once, so a log that is being written ends where it ended when it was opened.
    """
    path = source.path
    try:
        status = os.stat(path)
    except OSError as error:
        source.notes.append(f"{path.name}: {error.strerror or error}")
        return
    if not stat.S_ISREG(status.st_mode):
        source.notes.append(f"{path.name}: not a regular file, not read")
        return
    source.size = status.st_size
    packed = path.name.endswith(COMPRESSED)
    try:
        handle = _open(path)
    except ImportError:
        source.notes.append(f"{path.name}: reading .zst needs the package zstandard")
        return
    except OSError as error:
        source.notes.append(f"{path.name}: {error.strerror or error}")
        return
    with handle:
        try:
            if packed:
                yield from _unpacked(source, handle, chunk)
            else:
                yield from _plain(source, handle, limit_bytes, chunk)
        except (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
            source.notes.append(f"{path.name}: reading stopped: {error}")
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "zstandard":
                raise
            source.notes.append(f"{path.name}: reading stopped: {error}")


def _plain(source: Source, handle: IO[bytes], limit: int | None, chunk: int) -> Iterator[Piece]:
    at, end = 0, source.size
    if limit is not None and end > limit:
        head, tail = limit // 16, end - (limit - limit // 16)
        source.notes.append(f"{source.path.name}: {tail - head} bytes in the middle not looked at (limit)")
        for stop, looked in ((head, True), (tail, False)):
            while at < stop:
                data = handle.read(min(chunk, stop - at))
                if not data:
                    return
                yield at, data, looked
                at += len(data)
    while at < end:
        data = handle.read(min(chunk, end - at))
        if not data:
            return
        yield at, data, True
        at += len(data)


def _unpacked(source: Source, handle: IO[bytes], chunk: int) -> Iterator[Piece]:
    at = 0
    allowed = min(MAX_UNPACKED, max(source.size, 4096) * MAX_RATIO)
    while True:
        data = handle.read(chunk)
        if not data:
            return
        yield at, data, True
        at += len(data)
        if at > allowed:
            source.notes.append(
                f"{source.path.name}: unpacks to more than {allowed} bytes; the rest not read"
            )
            return
