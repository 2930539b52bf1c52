"""One rank's state in a memory file: raw bytes, a description in JSON, checksums; valid only when sealed.

Room is taken once and written over again and again, because new memory costs more than the copy into it. The
first page says whether what follows is whole; it is cleared before anything else is written and written last,
so that a writer that is killed leaves a file that is plainly no copy. Nothing is unpickled. May not import
torch. ``tests/models/test_copy_file.py``.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from pathlib import Path
from typing import Any

_PAGE = 4096
_MAGIC = b"TMCOPY1\0"
# magic, payload bytes, description bytes, CRC-32 of payload, of description; then of all these
_HEAD = struct.Struct("<8sQQII")
_CHECK = struct.Struct("<I")
_BLOCK = 8 << 20
ALIGN = 64


class Damaged(ValueError):
    """Not a whole copy: torn, truncated or changed."""


def room(payload: int, description: int) -> int:
    """Bytes of a file for that much, with a quarter more for descriptions that grow."""
    return _PAGE + _up(payload) + _up(description + description // 4 + _PAGE)


def _up(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


def crc32(view: memoryview) -> int:
    value = 0
    for at in range(0, len(view), _BLOCK):  # in blocks, so that no other thread waits long
        value = zlib.crc32(view[at : at + _BLOCK], value)
    return value


class CopyFile:
    """A mapped file. ``close`` keeps the file; views into it must be gone by then."""

    def __init__(self, path: Path, size: int | None = None) -> None:
        """Open it; with ``size`` make it, all of its room taken now. Raises OSError (ENOSPC …)."""
        self.path = path
        flags = os.O_RDWR | (os.O_CREAT | os.O_TRUNC if size is not None else 0)
        fd = os.open(path, flags, 0o600)
        try:
            if size is not None:
                # A sparse file in a full memory file system would kill whoever touches it (SIGBUS).
                os.posix_fallocate(fd, 0, size)
            self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        except (OSError, ValueError):
            if size is not None:
                path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)

    @property
    def map(self) -> mmap.mmap:
        return self._map

    @property
    def size(self) -> int:
        return len(self._map)

    def payload(self, length: int) -> memoryview:
        return memoryview(self._map)[_PAGE : _PAGE + length]

    def invalidate(self) -> None:
        """From now on it is no copy, until it is sealed."""
        self._map[: _HEAD.size + _CHECK.size] = bytes(_HEAD.size + _CHECK.size)

    def seal(self, payload: int, facts: dict[str, Any]) -> int:
        """Describe and sum up what was written; the length that counts (see ``whole``)."""
        text = json.dumps(facts, separators=(",", ":")).encode()
        at = _PAGE + _up(payload)
        if at + len(text) > self.size:
            raise OSError(f"the description of {self.path.name} outgrew its room")
        self._map[at : at + len(text)] = text
        head = _HEAD.pack(_MAGIC, payload, len(text), crc32(self.payload(payload)), zlib.crc32(text))
        self._map[: len(head) + _CHECK.size] = head + _CHECK.pack(zlib.crc32(head))
        return at + len(text)

    def _head(self) -> tuple[int, int, int, int]:
        head = self._map[: _HEAD.size]
        if len(head) < _HEAD.size:
            raise Damaged("it is truncated")
        magic, payload, description, crc, text_crc = _HEAD.unpack(head)
        (check,) = _CHECK.unpack(self._map[_HEAD.size : _HEAD.size + _CHECK.size])
        if magic != _MAGIC or check != zlib.crc32(head):
            raise Damaged("it was not finished")
        if _PAGE + _up(payload) + description > self.size:
            raise Damaged("it is truncated")
        return payload, description, crc, text_crc

    def facts(self) -> dict[str, Any]:
        """The description. Raises Damaged; says nothing of the payload."""
        payload, description, _, text_crc = self._head()
        at = _PAGE + _up(payload)
        text = self._map[at : at + description]
        if zlib.crc32(text) != text_crc:
            raise Damaged("its description does not match its checksum")
        return dict(json.loads(text))

    def verify(self) -> int:
        """Compare all of it; the payload's bytes. Raises Damaged."""
        self.facts()
        payload, _, crc, _ = self._head()
        if crc32(self.payload(payload)) != crc:
            raise Damaged("its content does not match its checksum")
        return payload

    def whole(self) -> memoryview:
        """The bytes that make up the copy, to be sent. Raises Damaged when it is not sealed."""
        payload, description, _, _ = self._head()
        return memoryview(self._map)[: _PAGE + _up(payload) + description]

    def close(self) -> None:
        self._map.close()


HEAD_BYTES = _PAGE


def read_facts(path: Path) -> dict[str, Any]:
    """The description of a copy. Raises Damaged or OSError."""
    try:
        file = CopyFile(path)
    except ValueError as error:  # an empty file cannot be mapped
        raise Damaged("it is empty") from error
    try:
        return file.facts()
    finally:
        file.close()
