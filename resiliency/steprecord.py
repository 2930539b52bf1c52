"""One rank's step record: a small file mapped into memory, readable while and after the rank lives.

The file has two slots, each with a sequence number and a checksum over all of it. A write goes to the slot
that is not the newest, so a writer that is killed in the middle leaves the previous word whole, and a reader
that comes in the middle sees the previous word or tries again; it never waits. No system call per write.
Only the rank writes; what a reader cannot make out is None, never an exception.
``tests/resiliency/test_steprecord.py``, cost: ``scripts/bench/bench_heartbeat.py``.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from zlib import crc32

RING: Final = 64  # steps whose times are kept
NAME_BYTES: Final = 15  # of a section's name
SECTIONS: Final = 16  # sections whose slowest pass is kept
PREFIX: Final = "rank-"
#: Sections most programs go through once, at the start: how long the first passes took says nothing about the
#: next, until it is plain that the program goes through them again and again.
STARTING: Final = frozenset({b"setup", b"imports", b"groups", b"model", b"data", b"load", b"compile"})
_AGAIN: Final = 3

_MAGIC: Final = b"TMSTEP\x01\n"
_HEADER: Final = 64
_SLOT: Final = 1056
_CRC = struct.Struct("<I4x")
# seq, rank, pid, flags, steps in the ring, beats, collectives, step, tokens, entered, beat, loss, section
_BODY = struct.Struct("<QIIIIQQqqddd16s")
_FLOAT = struct.Struct("<f")
_SLOW = struct.Struct("<16sf")
_RING = struct.Struct(f"<{RING}f")
_BODY_AT: Final = _CRC.size
_TIMES_AT: Final = _BODY_AT + _BODY.size
_COMPUTE_AT: Final = _TIMES_AT + _RING.size
_SLOW_AT: Final = _COMPUTE_AT + _RING.size
assert _SLOW_AT + SECTIONS * _SLOW.size <= _SLOT

_IN_COLLECTIVE, _HAS_STEP, _HAS_TOKENS, _HAS_LOSS = 1, 2, 4, 8
_MOST: Final = 2**63 - 1
_TRIES: Final = 20


@dataclass(frozen=True)
class Snapshot:
    """A rank's last word. ``entered`` and ``beat`` are CLOCK_MONOTONIC seconds of its node.

    ``beats`` counts passes of sections, ``collectives`` the marked ones it went into. ``step``: None
    before the first. Times are in seconds, the newest last; ``slowest`` is the slowest honest pass of each
    section in this process, without the first step; one passed too seldom to tell is not in it.
    """

    rank: int
    pid: int
    beats: int
    step: int | None
    section: str
    entered: float
    beat: float
    in_collective: bool = False
    tokens: int | None = None
    loss: float | None = None
    step_times: tuple[float, ...] = ()
    compute_times: tuple[float, ...] = ()
    slowest: dict[str, float] = field(default_factory=dict)
    collectives: int = 0


class Recorder:
    """The writing side, for one thread of one process. Set the fields, then :meth:`write`."""

    def __init__(self, path: Path, rank: int) -> None:
        self.rank, self.pid = rank, os.getpid()
        self.beats = self.collectives = 0
        self.step: int | None = None
        self.tokens: int | None = None
        self.loss: float | None = None
        self.section = b"setup"
        self.entered = self.beat = 0.0
        self.in_collective = False
        self._seq = self._kept = 0
        self._slow: dict[bytes, tuple[int, float]] = {}
        self._starting: dict[bytes, list[float]] = {}
        self._slot = bytearray(_SLOT)
        self._checked = memoryview(self._slot)[_BODY_AT:]
        self._map: mmap.mmap | None = self._create(path)

    @staticmethod
    def _create(path: Path) -> mmap.mmap:
        size = _HEADER + 2 * _SLOT
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        fd = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            # Reserved, not only declared: a write into a hole of a full tmpfs is a SIGBUS.
            os.posix_fallocate(fd, 0, size)
            os.pwrite(fd, _MAGIC, 0)
            mapped = mmap.mmap(fd, size)
            os.rename(aside, path)
        except BaseException:
            os.unlink(aside)
            raise
        finally:
            os.close(fd)
        return mapped

    def passed(self, section: bytes, seconds: float) -> None:
        """A section was passed: keep it if it is the slowest yet. Beyond ``SECTIONS`` names: not kept."""
        if section in STARTING:
            passes = self._starting.setdefault(section, [])
            if len(passes) < _AGAIN:
                passes.append(seconds)
                if len(passes) < _AGAIN:
                    return
                seconds = max(passes)
        at, slowest = self._slow.get(section) or (len(self._slow), -1.0)
        if seconds > slowest and at < SECTIONS:
            self._slow[section] = at, seconds
            _SLOW.pack_into(self._slot, _SLOW_AT + at * _SLOW.size, section, seconds)

    def took(self, seconds: float, compute_s: float) -> None:
        """Keep a step's times in the ring."""
        at = 4 * (self._kept % RING)
        _FLOAT.pack_into(self._slot, _TIMES_AT + at, seconds)
        _FLOAT.pack_into(self._slot, _COMPUTE_AT + at, compute_s)
        self._kept += 1

    def write(self) -> None:
        """Make the fields visible to readers."""
        mapped = self._map
        if mapped is None:
            return
        flags = _IN_COLLECTIVE if self.in_collective else 0
        step, tokens, loss = self.step, self.tokens, self.loss
        if step is not None and -_MOST <= step <= _MOST:
            flags |= _HAS_STEP
        else:
            step = 0
        if tokens is not None and -_MOST <= tokens <= _MOST:
            flags |= _HAS_TOKENS
        else:
            tokens = 0
        if loss is None:
            loss = 0.0
        else:
            flags |= _HAS_LOSS
        self._seq = seq = self._seq + 1
        slot = self._slot
        _BODY.pack_into(
            slot, _BODY_AT, seq, self.rank, self.pid, flags, self._kept & 0xFFFFFFFF, self.beats,
            self.collectives, step, tokens, self.entered, self.beat, loss, self.section,
        )  # fmt: skip
        _CRC.pack_into(slot, 0, crc32(self._checked))
        at = _HEADER + (seq & 1) * _SLOT
        mapped[at : at + _SLOT] = slot

    def close(self) -> None:
        """Writes end; the file stays."""
        if self._map is not None:
            self._map.close()
            self._map = None


def encode(section: str) -> bytes:
    """A section's name as the record holds it: cut, between characters, to ``NAME_BYTES``."""
    raw = section.encode("utf-8", "replace")[:NAME_BYTES]
    return raw.decode("utf-8", "ignore").encode()


def _decode(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode("utf-8", "replace")


def _ring(slot: bytes, at: int, kept: int) -> tuple[float, ...]:
    values = _RING.unpack_from(slot, at)
    if kept < RING:
        return values[:kept]
    first = kept % RING
    return values[first:] + values[:first]


def _parse(slot: bytes) -> tuple[int, Snapshot] | None:
    if len(slot) != _SLOT or _CRC.unpack_from(slot)[0] != crc32(memoryview(slot)[_BODY_AT:]):
        return None
    (
        seq, rank, pid, flags, kept, beats, collectives, step, tokens, entered, beat, loss, section,
    ) = _BODY.unpack_from(slot, _BODY_AT)  # fmt: skip
    if seq == 0:
        return None
    slowest = {}
    for n in range(SECTIONS):
        name, seconds = _SLOW.unpack_from(slot, _SLOW_AT + n * _SLOW.size)
        if not name[0]:
            break
        slowest[_decode(name)] = seconds
    return seq, Snapshot(
        rank=rank,
        pid=pid,
        beats=beats,
        step=step if flags & _HAS_STEP else None,
        section=_decode(section),
        entered=entered,
        beat=beat,
        in_collective=bool(flags & _IN_COLLECTIVE),
        tokens=tokens if flags & _HAS_TOKENS else None,
        loss=loss if flags & _HAS_LOSS else None,
        step_times=_ring(slot, _TIMES_AT, kept),
        compute_times=_ring(slot, _COMPUTE_AT, kept),
        slowest=slowest,
        collectives=collectives,
    )


def read(path: Path) -> Snapshot | None:
    """The newest whole word in the file; None if there is none, whatever the file holds."""
    for _ in range(_TRIES):  # both slots torn: the writer went on twice while we read
        try:
            with open(path, "rb", buffering=0) as file:
                data = file.read(_HEADER + 2 * _SLOT) or b""
        except OSError:
            return None
        if data[: len(_MAGIC)] != _MAGIC:
            return None
        slots = (data[_HEADER : _HEADER + _SLOT], data[_HEADER + _SLOT :])
        found = [parsed for slot in slots if (parsed := _parse(slot)) is not None]
        if found:
            return max(found, key=lambda item: item[0])[1]
    return None


def read_all(directory: Path) -> dict[int, Snapshot]:
    """Rank → its last word, of every record in the directory that can be read."""
    found: dict[int, Snapshot] = {}
    try:
        names = os.listdir(directory)
    except OSError:
        return {}
    for name in names:
        number = name.removeprefix(PREFIX)
        if name.startswith(PREFIX) and number.isascii() and number.isdigit():
            snapshot = read(directory / name)
            if snapshot is not None:
                found[int(number)] = snapshot
    return found


def path_of(directory: Path, rank: int) -> Path:
    return directory / f"{PREFIX}{rank}"
