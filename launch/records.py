"""What the rank shims of this node recorded, and what the launcher's own log adds to it.

A rank killed by a signal records nothing: then its shim does, or the launcher's message has its code.
``tests/launch/test_records.py``.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resiliency.exitcodes import from_returncode

from .outcome import RankEnd
from .processes import alive

# torchrun: "failed (exitcode: -9) local_rank: 1 (pid: 42) of binary"
# ft_launcher: "ProcessFailure(local_rank=1, pid=42, exitcode=-9, …"
_LAUNCHER_WORDS = (
    re.compile(rb"\(exitcode: (?P<code>-?\d+)\) local_rank: \d+ \(pid: (?P<pid>\d+)\)"),
    re.compile(rb"ProcessFailure\(local_rank=\d+, pid=(?P<pid>\d+), exitcode=(?P<code>-?\d+)"),
)
LOST = 137  # nothing is known but that it is gone


@dataclass
class Records:
    """The records of one node's ranks. ``watch_pids`` is off where pids are another namespace's.

    ``cycle``: only that one's records count; None: each rank's latest, for a launcher that restarts them.
    """

    directory: Path
    node: str
    watch_pids: bool = True
    cycle: int | None = None
    _by_pid: dict[int, int] = field(default_factory=dict)
    _missing: dict[int, float] = field(default_factory=dict)

    def line(self, line: bytes) -> None:
        """Learn from a line of the launcher's output."""
        if b"exitcode" not in line:
            return
        for pattern in _LAUNCHER_WORDS:
            for match in pattern.finditer(line):
                self._by_pid[int(match["pid"])] = from_returncode(int(match["code"]))

    def _latest(self, word: str) -> dict[int, dict[str, Any]]:
        """Rank → its record of the cycle."""
        found: dict[int, dict[str, Any]] = {}
        with contextlib.suppress(OSError):
            for path in self.directory.glob(f"*.{word}"):
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    record = json.loads(path.read_text(encoding="utf-8"))
                    rank = int(record["rank"])
                    if self.cycle is not None and record["cycle"] != self.cycle:
                        continue
                    if record["cycle"] >= found.get(rank, record)["cycle"]:
                        found[rank] = record
        return found

    def pids(self) -> dict[int, int]:
        """Rank → process id of its program, of all that started; not the shim's, where there are two."""
        return {rank: int(start["pid"]) for rank, start in self._latest("start").items()}

    def watched(self) -> dict[int, set[int]]:
        """Rank → processes whose end is news: its program, and the shim, which may have the last word."""
        starts = self._latest("start")
        return {
            rank: {int(start["pid"]), int(start.get("shim", start["pid"]))} for rank, start in starts.items()
        }

    def ends(self, *, final: bool = False) -> dict[int, RankEnd]:
        """Rank → how it ended. ``final``: no rank is alive any more, so the silent ones are lost."""
        starts, records = self._latest("start"), self._latest("end")
        now = time.time()
        found: dict[int, RankEnd] = {}
        for rank, start in starts.items():
            end = records.get(rank)
            if end is not None and end["cycle"] >= start["cycle"]:
                found[rank] = self._told(end)
                continue
            pid = int(start["pid"])
            # A launcher knows the process it started, which may be the shim of the one that ran.
            shim = int(start.get("shim", pid))
            known = self._by_pid.get(pid, self._by_pid.get(shim))
            # A shim outlives its rank for a moment, to record the signal that ended it.
            if known is None and not final and (not self.watch_pids or alive(pid) or alive(shim)):
                self._missing.pop(rank, None)
                continue
            since = self._missing.setdefault(rank, now)
            if rank not in records and (late := self._latest("end").get(rank)) is not None:
                records[rank] = late  # written between our look and its death
                found[rank] = self._told(late)
                continue
            found[rank] = RankEnd(rank, known if known is not None else LOST, since, node=self.node)
        return found

    def _told(self, end: dict[str, Any]) -> RankEnd:
        """An end as the rank recorded it itself: it does so before it dies."""
        return RankEnd(
            int(end["rank"]),
            int(end["code"]),
            float(end["at"]),
            str(end.get("summary", "")),
            str(end.get("category", "")),
            node=self.node,
        )
