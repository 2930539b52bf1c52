"""Nodes exchange data in pairs before they train together: an agent's end of it.

Answers only who shows the token of this cycle, and only until the supervisor says that it is over.
``tests/launch/test_pairing.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

from .channel import Message
from .preflight import clock
from .preflight.pairwise import Responder, ask_time, exchange

MEGABYTES: Final = 8.0
DEADLINE_S: Final = 3.0
CLOCK_TRIPS: Final = 3


class Partner:
    """An agent's end: answers its peers, and asks those it is told to."""

    def __init__(self) -> None:
        self._responder: Responder | None = None
        self._token = ""

    def open(self, token: str) -> int:
        """Its port; 0 if it cannot answer, which makes nobody suspect."""
        self.close()
        try:
            self._responder, self._token = Responder(token), token
        except (OSError, RuntimeError):
            return 0
        return self._responder.port

    def ask(self, order: Mapping[str, Any]) -> Message:
        """Exchange with every peer of the order, one after the other."""
        found: list[dict[str, Any]] = []
        for peer in order.get("peers") or ():
            host, port = str(peer["host"]), int(peer["port"])
            result = exchange(host, port, self._token, MEGABYTES, DEADLINE_S)
            one: dict[str, Any] = {"peer": str(peer["node"]), **result.as_data()}
            if result.ok:
                ask = functools.partial(ask_time, host, port, self._token, 0.5)
                offset = clock.measure(ask, CLOCK_TRIPS)
                if offset is not None:
                    one["offset"], one["offset_error"] = offset.seconds, offset.error
            found.append(one)
        word = {"kind": "exchanged", "results": found}
        return {**word, "cycle": order.get("cycle"), "round": order.get("round")}

    def close(self) -> None:
        if self._responder is not None:
            self._responder.close()
            self._responder = None
