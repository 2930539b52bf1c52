"""A timeline without gap or overlap: marks go on it in order and are clamped. Pure.

Clocks of nodes and scheduler differ, so a mark before the one before it moves up to it, and a mark after the
end moves back to it. ``tests/metrics/accounting/test_tiling.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Span:
    """Milliseconds from ``start`` to ``end`` (None: goes on) spent on ``kind``."""

    kind: str
    start: int
    end: int | None
    cycle: int | None = None

    @property
    def ms(self) -> int:
        return 0 if self.end is None else self.end - self.start


class Line:
    """From ``start`` to ``end``; ``end`` None: it goes on, and its last span is open."""

    def __init__(self, start: int, end: int | None) -> None:
        self.at, self.end = start, None if end is None else max(start, end)
        self.spans: list[Span] = []

    def to(self, kind: str, mark: int | None, cycle: int | None = None) -> int:
        """Up to the mark the time went into ``kind``; None: nothing is known of the mark. Where it is now."""
        if mark is not None:
            mark = max(self.at, mark if self.end is None else min(mark, self.end))
            self._add(Span(kind, self.at, mark, cycle))
            self.at = mark
        return self.at

    def rest(self, kind: str, cycle: int | None = None) -> None:
        """All that is left."""
        self._add(Span(kind, self.at, self.end, cycle))
        self.at = self.at if self.end is None else self.end

    def back_to(self, mark: int) -> None:
        """Forget what was said of the time from the mark on."""
        if mark >= self.at:
            return
        kept = [span for span in self.spans if span.start < mark]
        self.spans = [replace(span, end=min(span.end or mark, mark)) for span in kept]
        self.at = mark

    def _add(self, span: Span) -> None:
        if span.end == span.start:
            return
        last = self.spans[-1] if self.spans else None
        if last is not None and (last.kind, last.cycle) == (span.kind, span.cycle):
            self.spans[-1] = replace(last, end=span.end)
        else:
            self.spans.append(span)
