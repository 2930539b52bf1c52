"""What each node did: the attempt's timeline, but for the times when the node was a spare or gone. Pure.

Nodes that did the same share a track. Track 0 is the attempt's own timeline, with the nodes that had it from
start to end; it may have none. ``tests/metrics/accounting/test_tracks.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .facts import AttemptFacts, CycleFacts
from .kinds import KINDS
from .line import Span
from .words import LIMIT_MS

_Away = tuple[int, int | None, str]  # from, to (None: the end), kind


@dataclass(frozen=True)
class Track:
    """Nodes with one timeline."""

    nodes: tuple[str, ...]
    spans: tuple[Span, ...]


def tracks(attempt: AttemptFacts, spans: Sequence[Span], begins: Mapping[int, int]) -> tuple[Track, ...]:
    """Track 0 first, the others by their first node. ``begins``: cycle → when its nodes were chosen."""
    chosen = [cycle for cycle in attempt.cycles if cycle.number in begins]
    names = frozenset(attempt.nodes)
    if not attempt.lost and all(not cycle.nodes or names <= cycle.nodes for cycle in chosen):
        return (Track(attempt.nodes, tuple(spans)),)  # by far the most: all did the same
    windows: list[tuple[int, CycleFacts | None]] = [(-LIMIT_MS, None)]
    windows += [(begins[cycle.number], cycle) for cycle in chosen]
    alike: dict[tuple[_Away, ...], list[str]] = {(): []}
    for node in attempt.nodes:
        alike.setdefault(tuple(_away(node, attempt.lost.get(node), windows)), []).append(node)
    return tuple(Track(tuple(nodes), tuple(_laid_over(spans, away))) for away, nodes in alike.items())


def _role(cycle: CycleFacts | None, node: str, gone: bool) -> str:
    if cycle is None:
        return "trains"  # before the first cycle all nodes are alike
    if not cycle.nodes:
        return "down" if gone else "trains"
    if node in cycle.nodes:
        return "trains"
    return "idle_spare" if node in cycle.spares else "down"


def _away(node: str, lost: int | None, windows: Sequence[tuple[int, CycleFacts | None]]) -> list[_Away]:
    """When the node did something else than the attempt, in order. ``windows``: cycles by their begins."""
    found: list[_Away] = []

    def add(start: int, end: int | None, kind: str) -> None:
        if end is not None and end <= start:
            return
        if found and found[-1][1:] == (start, kind):
            found[-1] = (found[-1][0], end, kind)
        else:
            found.append((start, end, kind))

    for place, (start, cycle) in enumerate(windows):
        end = windows[place + 1][0] if place + 1 < len(windows) else None
        inside = lost is not None and lost >= start and (end is None or lost < end)
        role = _role(cycle, node, lost is not None and lost < start)
        if role != "trains":
            add(start, lost if inside else end, role)
        if inside and lost is not None:
            add(lost, end, "down")
    return found


def _laid_over(spans: Sequence[Span], away: Sequence[_Away]) -> list[Span]:
    found: list[Span] = []

    def add(span: Span) -> None:
        if span.end == span.start:
            return
        last = found[-1] if found else None
        if last is not None and (last.kind, last.cycle) == (span.kind, span.cycle):
            found[-1] = replace(last, end=span.end)
        else:
            found.append(span)

    for span in spans:
        at = span.start
        for start, end, kind in away:
            if not KINDS[span.kind].allocated or (kind == "idle_spare" and span.kind == "draining"):
                continue
            first = max(at, start)
            if (end is not None and end <= at) or (span.end is not None and first >= span.end):
                continue
            until = span.end if end is None else end if span.end is None else min(end, span.end)
            add(replace(span, start=at, end=first))
            add(replace(span, kind=kind, start=first, end=until))
            if until is None:
                break
            at = until
        else:
            add(replace(span, start=at))
    return found
