"""Parts of an attempt: its nodes and its in-job cycles. Pure. ``tests/metrics/test_project.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from resiliency.attempt import Attempt, Cycle
from resiliency.events import Event
from resiliency.folding import step_of

from .nodes import names

Row = dict[str, Any]


def nodes(key: Row, tracks: Mapping[str, int], told: Sequence[Event]) -> Iterator[Row]:
    """Nodes of the allocation with their tracks, others that spoke, and when a fact first and last came."""
    times: dict[str, list[float]] = {name: [] for name in tracks}
    switches: dict[str, str] = {}
    for event in told:
        # Without progress: of that only the latest words are at hand.
        if event.node and event.type != "progress":
            for name in names(event.node):
                times.setdefault(name, []).append(event.ts)
            if event.data.get("switch"):
                switches.setdefault(event.node, str(event.data["switch"]))
    for name, seen in sorted(times.items()):
        yield {
            **key,
            "node": name,
            "first_at": min(seen) if seen else None,
            "last_at": max(seen) if seen else None,
            "track": tracks.get(name),
            "switch": switches.get(name),
        }


def _text(value: Any) -> str | None:
    return str(value) if value else None


def _time(value: Any) -> float | None:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e12
    return float(value) if plain else None


def _step(event: Event) -> int | None:
    try:
        return step_of(event.data)
    except (TypeError, ValueError, OverflowError):
        return None


def cycles(key: Row, attempt: Attempt, told: Sequence[Event]) -> Iterator[Row]:
    """In-job restarts: what the facts of each cycle say (``told`` in :attr:`Event.order`)."""
    found: dict[int, list[Event]] = {}
    for event in told:
        if event.cycle is not None and event.type != "progress":
            found.setdefault(event.cycle, []).append(event)
    for cycle, events in sorted(found.items()):
        began = [e.ts for e in events if e.type == "role.started"]
        exits = [e for e in events if e.type == "role.exited"]
        codes = [c for e in exits if isinstance(c := e.data.get("exit_code"), int)]
        resumed = [s for e in events if e.type == "workload.resumed" and (s := _step(e)) is not None]
        saved = [s for e in events if e.type == "checkpoint.committed" and (s := _step(e)) is not None]
        errors = [str(e.data.get("message", "")) for e in events if e.type == "workload.error"]
        mine = attempt.cycles.get(cycle, Cycle(cycle))
        incident, decision = mine.incident or {}, mine.decision or {}
        ends = [e.ts for e in exits]
        yield {
            **key,
            "cycle": cycle,
            "started_at": mine.started_ts if mine.started_ts is not None else min(began, default=None),
            "ended_at": mine.ended_ts if mine.ended_ts is not None else max(ends, default=None),
            "nodes": len(mine.nodes) or len({e.node for e in events if e.node}),
            "node_names": ",".join(mine.nodes) or None,
            "spares": len(mine.spares) if mine.nodes else None,
            # The first that failed is nearest to the cause; others follow it.
            "exit_code": next((c for c in codes if c), codes[0] if codes else None),
            "resumed_from": min(resumed, default=None),
            "checkpoint_step": max(saved, default=None),
            "error": errors[0] if errors else None,
            "step": mine.step,
            "incident": _text(incident.get("kind")),
            "onset_at": _time(incident.get("onset")),
            "detected_at": _time(incident.get("detected")),
            "category": mine.category or None,
            "signature": mine.signature or None,
            "reason": mine.reason or None,
            "node": mine.node,
            "rank": mine.rank if mine.rank is None or -(2**63) <= mine.rank < 2**63 else None,
            "continued": int(mine.continued),
            "action": _text(decision.get("action")),
            "rule": _text(decision.get("rule")),
            "shadow": int(bool(decision.get("shadow"))),
        }
