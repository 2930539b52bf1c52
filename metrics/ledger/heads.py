"""Which progress events a fold needs: of each attempt and cycle the furthest, the latest, a handful.

Progress is nearly all of a journal, and the fold keeps only maxima of it (``resiliency.folding``),
so the fold of facts and heads equals the fold of everything; ``tests/metrics/test_ingest.py``
proves it. Only attempts that are spoken of are held here; the others stay in the ledger.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from resiliency.folding import step_of

from .lines import ATTEMPT, CYCLE, SEQ, STAGE, TS, WRITER, EventRow

_Order = tuple[int, float, str, int]  # step, then Event.order
_NONE: _Order = (-1, 0.0, "", 0)  # before any other


@dataclass
class _Best:
    """The heads of one attempt."""

    ts: _Order = _NONE
    step: _Order = _NONE
    loss: _Order = _NONE
    tokens: _Order = _NONE
    cycles: dict[int, _Order] = field(default_factory=dict)

    def named(self) -> Iterator[tuple[str, _Order]]:
        for name in ("ts", "step", "loss", "tokens"):
            if getattr(self, name) is not _NONE:
                yield name, getattr(self, name)
        for cycle, order in self.cycles.items():
            yield f"step {cycle}", order

    def put(self, what: str, order: _Order) -> None:
        if what.startswith("step "):
            self.cycles[int(what[5:])] = order
        else:
            setattr(self, what, order)


class Heads:
    """The heads of one run's attempts: ``(stage, attempt, what)`` → the event that counts."""

    def __init__(self, connection: sqlite3.Connection, run_id: str) -> None:
        self._connection = connection
        self._run_id = run_id
        self._best: dict[tuple[str | None, str | None], _Best] = {}

    def see(self, row: EventRow, data: Mapping[str, Any]) -> None:
        """Take one progress event into account."""
        where = (row[STAGE], row[ATTEMPT])
        best = self._best.get(where)
        if best is None:
            best = self._load(where)
        ts, writer, seq = row[TS], row[WRITER], row[SEQ]
        order = (0, ts, writer, seq)
        if order > best.ts:
            best.ts = order
        step = data.get("step")
        if type(step) is not int or not 0 <= step < 2**63:
            try:
                step = step_of(data)
            except (TypeError, ValueError, OverflowError):
                return  # the fold ignores it too, but for the time of the last event
        order = (step, ts, writer, seq)
        if order > best.step:
            best.step = order
        cycle = row[CYCLE] or 0
        if order > best.cycles.get(cycle, _NONE):
            best.cycles[cycle] = order
        if order > best.loss and data.get("loss") is not None:
            best.loss = order
        if order > best.tokens and data.get("tokens") is not None:
            best.tokens = order

    def _load(self, where: tuple[str | None, str | None]) -> _Best:
        """What the ledger knows of an attempt. No stage and an empty one are one to the fold."""
        plain = (where[0] or "", where[1] or "")
        known = self._best.get(plain)
        best = self._best[where] = self._best[plain] = known or _Best()
        if known is not None:
            return known
        for what, *order in self._connection.execute(
            "SELECT what, step, ts, writer, seq FROM progress_head"
            " WHERE run_id = ? AND stage = ? AND attempt_id = ?",
            (self._run_id, *plain),
        ):
            best.put(what, tuple(order))
        return best

    def forget(self) -> None:
        """Begin anew, in the ledger too."""
        self._best.clear()
        self._connection.execute("DELETE FROM progress_head WHERE run_id = ?", (self._run_id,))

    def save(self) -> None:
        rows = [
            (self._run_id, stage, attempt, what, order[2], order[3], order[1], order[0])
            for (stage, attempt), best in self._best.items()
            if stage is not None and attempt is not None
            for what, order in best.named()
        ]
        self._connection.executemany("INSERT OR REPLACE INTO progress_head VALUES (?,?,?,?,?,?,?,?)", rows)
