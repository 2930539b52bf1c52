"""A file written, read back and removed: local storage may prove a fault of the node, shared may not.

``tests/launch/preflight/test_writing.py``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from resiliency.health import Check, Status

from .settings import CheckPlace

SIZE: Final = 1 << 20
#: A mebibyte that takes longer than this is worth a word.
SLOW_S: Final = 5.0
#: Errors of a device or mount of this node. A full disk, a quota or a permission is none.
_BROKEN: Final = frozenset({errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.EUCLEAN})


@dataclass(frozen=True)
class Wrote:
    """How it went. ``error``: an errno, or 0; ``same``: what was read is what was written."""

    error: int = 0
    same: bool = True
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.error and self.same


def write_and_read(directory: Path, size: int = SIZE, *, sync: bool = True) -> Wrote:
    began = time.monotonic()
    path = directory / f".preflight-{os.getpid()}-{secrets.token_hex(6)}"
    block = os.urandom(min(size, 4096))
    data = (block * (size // len(block) + 1))[:size]
    error, same = 0, True
    try:
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            if sync:
                os.fsync(fd)
                # Else the page cache would answer, and not the disk; a hint that may be ignored.
                with contextlib.suppress(OSError):
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.lseek(fd, 0, os.SEEK_SET)
            same = _read(fd, size) == data
        finally:
            os.close(fd)
    except OSError as caught:
        error = caught.errno or errno.EIO
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
    return Wrote(error, same, time.monotonic() - began)


def _read(fd: int, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0 and (part := os.read(fd, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def judge_write(name: str, wrote: Wrote, where: str, *, provable: bool) -> Check:
    """``provable``: the storage is the node's own, so that its errors are the node's."""
    if wrote.error:
        word = os.strerror(wrote.error)
        missing = wrote.error in (errno.ENOENT, errno.ENOTDIR)
        # A run's directory that only this node does not see is a mount this node lacks.
        bad = missing or (provable and wrote.error in _BROKEN)
        said = f"{where} is not there" if missing else f"{where} cannot be written: {word}"
        return Check(name, Status.CRITICAL if bad else Status.WARN, said, (f"errno {wrote.error}",))
    if not wrote.same:
        said = f"what was written to {where} reads back differently"
        return Check(name, Status.CRITICAL if provable else Status.WARN, said)
    took = f"{wrote.seconds * 1000:.0f} ms" if wrote.seconds < 1 else f"{wrote.seconds:.1f} s"
    slow = wrote.seconds > SLOW_S
    return Check(name, Status.WARN if slow else Status.OK, f"{where} written and read in {took}")


def local_storage(place: CheckPlace, deadline: float) -> Sequence[Check]:
    wrote = write_and_read(place.local_dir, SIZE // 4, sync=False)
    return [judge_write("local_storage", wrote, str(place.local_dir), provable=True)]


def shared_storage(place: CheckPlace, deadline: float) -> Sequence[Check]:
    wrote = write_and_read(place.run_dir, SIZE)
    return [judge_write("shared_storage", wrote, str(place.run_dir), provable=False)]
