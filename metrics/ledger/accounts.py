"""Rows of a stage's accounting: intervals, what failures cost, and what became of cycles' steps. Pure.

The accounting itself is ``metrics.accounting``. ``tests/metrics/test_accounts.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from metrics.accounting import outages
from metrics.accounting.facts import attempt_facts, set_aside
from metrics.accounting.tiling import StageFacts, Tiled, tile
from metrics.accounting.words import Words, ms
from resiliency.events import Event
from resiliency.state import Stage

from .plain import INT, Row


class Accounts:
    """The accounting of one stage, which needs the stages ``needs``.

    ``told``: attempt → its events in order; ``listed``: → its nodes.
    """

    def __init__(
        self,
        stage: Stage,
        told: Mapping[str, Sequence[Event]],
        listed: Mapping[str, Sequence[str]],
        words: Words,
        needs: Sequence[Stage] = (),
    ) -> None:
        chain = stage.chain()
        saves = (e for events in told.values() for e in events if e.type.startswith("checkpoint."))
        aside = set_aside(sorted(saves, key=lambda event: event.order))
        facts = tuple(attempt_facts(a, told.get(a.id, ()), listed.get(a.id, ()), aside) for a in chain)
        free = [at for need in needs if (at := ms(need.completed_ts)) is not None]
        held = any(need.completed is None for need in needs)
        completed = stage.completed is not None
        self._tiled = tile(StageFacts(facts, completed, stage.terminal, max(free, default=None), held), words)
        self._of: dict[str, Tiled] = {one.attempt.id: one for one in self._tiled}
        self._outages = outages.Outages(self._tiled)

    def intervals(self, key: Row) -> Iterator[Row]:
        """Of one attempt (``key``), a row per track and span."""
        for number, track in enumerate(self._of[key["attempt_id"]].tracks):
            for n, span in enumerate(track.spans):
                yield {
                    **key,
                    "track": number,
                    "n": n,
                    "kind": span.kind,
                    "cycle": span.cycle,
                    "start_at": span.start / 1000,
                    "end_at": _seconds(span.end),
                    "seconds": None if span.end is None else span.ms / 1000,
                    "nodes": len(track.nodes),
                }

    def tracks(self, attempt: str) -> dict[str, int]:
        """Node → its track."""
        tracks = self._of[attempt].tracks
        return {node: number for number, track in enumerate(tracks) for node in track.nodes}

    def cycle(self, attempt: str, number: int) -> Row:
        """What a row of ``cycle`` says of its steps."""
        mine = self._of[attempt]
        found = mine.by_number.get(number)
        if found is None:
            return {"base_step": None, "lost_steps": None, "lost_seconds": None}
        steps, took = mine.lost(found)
        return {"base_step": found.base, "lost_steps": min(steps, INT - 1), "lost_seconds": took / 1000}

    def outages(self, verdicts: Iterable[Row]) -> Iterator[Row]:
        """A row for each of an attempt's verdicts that is about a failure or an interruption."""
        for verdict in verdicts:
            category = verdict["category"]
            if category in outages.PLANNED:
                continue
            cost = self._outages.of(verdict["attempt_id"], verdict["cycle"])
            yield {
                **{name: verdict[name] for name in ("run_id", "stage", "attempt_id", "cycle")},
                "category": category,
                "counted": int(category not in outages.INTERRUPTED),
                "step": cost.step,
                "resumed_from": cost.resumed_from,
                "onset_at": _seconds(cost.onset),
                "detected_at": _seconds(cost.detected),
                "decided_at": _seconds(cost.decided),
                "running_at": _seconds(cost.running),
                "progress_at": _seconds(cost.progress),
                "lost_steps": min(cost.lost_steps, INT - 1),
                "lost_seconds": cost.lost_ms / 1000,
                "tried": int(cost.tried),
            }


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
