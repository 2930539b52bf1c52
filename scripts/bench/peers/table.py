"""Rows of a contest as a table: medians, ratios against the best peer of the same contest. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from .contest import Row
from .contestants import OURS

#: fault → (what is compared, at most this much of the best peer). From the issue that asked for it.
AIMS = {
    "raise": 0.5,
    "kill": 0.5,
    "hang": 0.6,
    "stop": 0.6,
    "crash-spare": 0.5,
    "crash": 0.8,
    "crash-host": 0.8,
    "preempt": 1.0,
    "limit": 0.6,
}
#: Steps that we may lose; peers lose what they had not saved.
NO_LOSS = ("preempt", "limit")
LEAST_ETTR = 0.92


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


class Table:
    """Of all rows of one contest."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.faults = list(dict.fromkeys(row.fault for row in rows))
        self.peers = list(dict.fromkeys(row.peer for row in rows))

    def of(self, fault: str, peer: str) -> list[Row]:
        return [row for row in self.rows if (row.fault, row.peer) == (fault, peer)]

    def recovery(self, fault: str, peer: str) -> float | None:
        """Median of those that came back, if most did."""
        rows = self.of(fault, peer)
        back = [row.recovery_s for row in rows if row.recovered]
        return _median(back) if back and 2 * len(back) > len(rows) else None

    def lost(self, fault: str, peer: str) -> float | None:
        return _median(row.lost for row in self.of(fault, peer) if row.recovered)

    def wall(self, fault: str, peer: str) -> float | None:
        return _median(row.wall_s for row in self.of(fault, peer))

    def ettr(self, fault: str, peer: str) -> float | None:
        """Wall time without a fault over wall time with it, from submission to the last step."""
        fair, harmed = self.wall("none", peer), self.wall(fault, peer)
        return None if fair is None or harmed is None else fair / harmed

    def best_peer(self, fault: str) -> tuple[str, float] | None:
        """The quickest of the others."""
        found = [(s, p) for p in self.peers if p != OURS and (s := self.recovery(fault, p)) is not None]
        if not found:
            return None
        seconds, peer = min(found)
        return peer, seconds

    def ratio(self, fault: str) -> float | None:
        ours, best = self.recovery(fault, OURS), self.best_peer(fault)
        return None if ours is None or best is None else ours / best[1]

    def text(self) -> str:
        """For a person."""
        head = ["fault", *self.peers, "ratio", "aim"]
        lines = [head]
        for fault in self.faults:
            cells = [self._cell(fault, peer) for peer in self.peers]
            ratio, aim = self.ratio(fault), AIMS.get(fault)
            shown = "" if ratio is None else f"{ratio:.2f}"
            lines.append([fault, *cells, shown, "" if aim is None else f"<= {aim:g}"])
        widths = [max(len(line[n]) for line in lines) for n in range(len(head))]
        rows = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]
        return "\n".join([*rows, "seconds from the fault to the first new step (steps lost); ETTR in []"])

    def _cell(self, fault: str, peer: str) -> str:
        rows = self.of(fault, peer)
        if not rows:
            return ""
        if fault == "none":
            wall = self.wall(fault, peer)
            return "-" if wall is None else f"{wall:.1f} wall"
        seconds = self.recovery(fault, peer)
        if seconds is None:
            return "/".join(sorted({row.end for row in rows}))
        some = sum(row.recovered for row in rows)
        share = "" if some == len(rows) else f" {some} of {len(rows)}"
        ettr = self.ettr(fault, peer)
        rate = "" if ettr is None else f" [{ettr:.2f}]"
        return f"{seconds:.1f} ({self.lost(fault, peer):.0f}){rate}{share}"
