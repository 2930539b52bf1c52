"""The times next to a line that has none: the last one before it and the first one after it.

Remembers how far it has looked, so that a log without times, or with very many hits, is searched once.
``tests/resiliency/triage/test_reading.py``.
"""

from __future__ import annotations

from . import clock

NEAR, BEFORE, AFTER = 4096, 65536, 16384


class Stamps:
    """Of one file that is read forwards; offsets are absolute, ``base`` is that of the buffer."""

    def __init__(self) -> None:
        self._upto = 0  # stamps before this offset have been looked for
        self._last: float | None = None
        self._last_end = -NEAR
        self._none_until = 0  # no stamp between the last place asked about and this offset
        self._next: tuple[int, float] | None = None

    def before(self, buffer: bytes, base: int, at: int, reference: float | None) -> tuple[float | None, bool]:
        """Seconds of the last stamp before ``buffer[at]``, and whether it is near."""
        place = base + at
        if place > self._upto:
            for lo, hi in ((place - NEAR, place), (place - BEFORE, place - NEAR)):
                first = max(lo, self._upto, base)
                if first >= hi:
                    continue
                text = buffer[first - base : hi - base].decode("utf-8", "replace")
                stamp = clock.find_last(text, reference)
                if stamp is not None and not stamp.boot:
                    self._last, self._last_end = stamp.seconds, hi
                    break
            self._upto = place
        return self._last, place - self._last_end <= NEAR

    def after(self, buffer: bytes, base: int, at: int, reference: float | None) -> float | None:
        """Seconds of the first stamp from ``buffer[at]`` on, not further than :data:`AFTER`."""
        place = base + at
        if self._next is not None and place <= self._next[0]:
            return self._next[1]
        self._next = None
        first, end = max(place, self._none_until), place + AFTER
        step = 1024
        while first < end and first - base < len(buffer):
            stop = min(end, first + step)
            text = buffer[first - base : stop - base].decode("utf-8", "replace")
            stamp = clock.find(text, reference)
            if stamp is not None and not stamp.boot:
                self._next = (first, stamp.seconds)
                return stamp.seconds
            first, step = stop, step * 4
        self._none_until = max(self._none_until, first - 64)
        return None
