"""Shared memory, free memory and the clock of a node: probes and, apart from them, judgements.

``tests/launch/preflight/test_host.py``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from resiliency.health import Check, Status

from .settings import CheckPlace
from .writing import judge_write, write_and_read

GIB: Final = 1 << 30
#: Less shared memory than this is too little for NCCL and data loaders of a GPU node.
SHM_TOTAL_GPU: Final = GIB
SHM_FREE: Final = 256 << 20
MEMORY_FREE: Final = GIB
MEMORY_FREE_SHARE: Final = 0.05
#: No clock is right that shows a time before this (2025-01-01).
EARLIEST: Final = 1_735_689_600.0
#: A clock this far behind what the run's directory has seen is wrong.
BEHIND_S: Final = 60.0

SHM = Path("/dev/shm")
MEMINFO = Path("/proc/meminfo")


def shm(place: CheckPlace, deadline: float) -> Sequence[Check]:
    wrote = write_and_read(SHM, 64 << 10, sync=False)
    if not wrote.ok:
        return [judge_write("shm", wrote, str(SHM), provable=True)]
    room = os.statvfs(SHM)
    return [judge_shm(room.f_frsize * room.f_blocks, room.f_frsize * room.f_bavail, place.gpus_per_node)]


def judge_shm(total: int, free: int, gpus: int) -> Check:
    said = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free in /dev/shm"
    if gpus > 0 and total < SHM_TOTAL_GPU:
        return Check("shm", Status.WARN, f"{said}: too small for NCCL and data loaders")
    if free < min(SHM_FREE, total // 4):
        return Check("shm", Status.WARN, f"{said}: left over from earlier work?")
    return Check("shm", Status.OK, said)


def memory(place: CheckPlace, deadline: float) -> Sequence[Check]:
    return [judge_memory(MEMINFO.read_text(encoding="ascii", errors="replace"))]


def judge_memory(meminfo: str) -> Check:
    """From the text of /proc/meminfo."""
    sizes: dict[str, int] = {}
    for line in meminfo.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            sizes[name] = int(words[0]) << 10
    total, free = sizes.get("MemTotal"), sizes.get("MemAvailable")
    if not total or free is None:
        return Check("memory", Status.UNKNOWN, "/proc/meminfo tells no MemTotal or MemAvailable")
    said = f"{free / GIB:.1f} of {total / GIB:.1f} GiB memory free"
    if free < min(MEMORY_FREE, total // 4) or free < MEMORY_FREE_SHARE * total:
        return Check("memory", Status.WARN, said)
    return Check("memory", Status.OK, said)


def clock(place: CheckPlace, deadline: float) -> Sequence[Check]:
    seen: float | None = None
    for path in (place.run_dir / "journal", place.run_dir):
        try:
            seen = max(seen or 0.0, path.stat().st_mtime)
        except OSError:
            continue
    return [judge_clock(time.time(), seen)]


def judge_clock(now: float, seen: float | None) -> Check:
    """``seen``: the newest change of the run's directory, by whatever clock made it."""
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < EARLIEST:
        return Check("clock", Status.WARN, f"the clock shows {shown}")
    if seen is not None and seen - now > BEHIND_S:
        behind = seen - now
        return Check("clock", Status.WARN, f"the clock is {behind:.0f} s behind the run's own files")
    return Check("clock", Status.OK, shown)
