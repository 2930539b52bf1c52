"""Which progress events a fold needs: of each attempt and cycle the furthest, the latest, a handful.

Progress is nearly all of a journal, and the fold keeps only maxima of it (``resiliency.folding``),
so the fold of facts and heads equals the fold of everything; ``tests/metrics/test_ingest.py``
proves it.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from resiliency.events import Event
from resiliency.folding import step_of

_Order = tuple[int, float, str, int]  # step, then Event.order


class Heads:
    """The heads of one run: ``(stage, attempt, what)`` → the event that counts."""

    def __init__(self) -> None:
        self._best: dict[tuple[str, str, str], _Order] = {}
        self._dirty = False

    def see(self, event: Event) -> None:
        """Take one progress event into account."""
        where = (event.stage or "", event.attempt or "")
        self._offer((*where, "ts"), (0, *event.order))
        try:
            step = step_of(event.data)
        except (TypeError, ValueError, OverflowError):
            return  # the fold ignores it too, but for the time of the last event
        self._offer((*where, "step"), (step, *event.order))
        self._offer((*where, f"step {event.cycle or 0}"), (step, *event.order))
        for name in ("loss", "tokens"):
            if event.data.get(name) is not None:
                self._offer((*where, name), (step, *event.order))

    def _offer(self, key: tuple[str, str, str], order: _Order) -> None:
        known = self._best.get(key)
        if known is None or order > known:
            self._best[key] = order
            self._dirty = True

    def keys(self) -> set[tuple[str, int]]:
        """``(writer, seq)`` of the events that count."""
        return {(order[2], order[3]) for order in self._best.values()}

    @classmethod
    def load(cls, connection: sqlite3.Connection, run_id: str) -> Heads:
        heads = cls()
        for stage, attempt, what, step, ts, writer, seq in connection.execute(
            "SELECT stage, attempt_id, what, step, ts, writer, seq FROM progress_head WHERE run_id = ?",
            (run_id,),
        ):
            heads._best[(stage, attempt, what)] = (step, ts, writer, seq)
        return heads

    def save(self, connection: sqlite3.Connection, run_id: str) -> None:
        if not self._dirty:
            return
        connection.execute("DELETE FROM progress_head WHERE run_id = ?", (run_id,))
        rows: list[tuple[Any, ...]] = [
            (run_id, *key, order[2], order[3], order[1], order[0])
            for key, order in sorted(self._best.items())
        ]
        connection.executemany("INSERT INTO progress_head VALUES (?,?,?,?,?,?,?,?)", rows)
        self._dirty = False
