"""Slurm's compressed node lists, written out: ``n[01-03,07],gpu1`` → n01 n02 n03 n07 gpu1.

Source of the format: HOSTLIST EXPRESSIONS in sinfo(1). Pure. ``tests/metrics/test_nodes.py``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

_LIMIT: Final = 100_000  # more nodes than any cluster has: the text is not a node list
_RANGE: Final = re.compile(r"(\d+)-(\d+)")


def _split(text: str) -> list[str]:
    """At commas outside brackets."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth <= 0:
            parts.append(text[start:at])
            start = at + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def _expand(text: str, room: int) -> list[str]:
    open_, close = text.find("["), text.find("]")
    if open_ < 0 or close < open_:
        return [text]
    rest = _expand(text[close + 1 :], room)
    names: list[str] = []
    for item in text[open_ + 1 : close].split(","):
        match = _RANGE.fullmatch(item.strip())
        if match is None:
            numbers = [item.strip()]
        elif int(match[2]) - int(match[1]) > room:
            return [text]
        else:
            width = len(match[1])
            numbers = [f"{n:0{width}d}" for n in range(int(match[1]), int(match[2]) + 1)]
        names += [text[:open_] + number + tail for number in numbers for tail in rest]
        if len(names) > room:
            return [text]
    return names


@lru_cache(maxsize=128)
def _names_in(text: str) -> tuple[str, ...]:
    """Attempts of a chain often have the same nodes, and each is asked for them several times."""
    return tuple(name for part in _split(text) for name in _expand(part, _LIMIT))


def names(value: Any) -> list[str]:
    """Node names in a list or a compressed text; text that is no node list stays as it is."""
    items = value if isinstance(value, (list, tuple)) else [value]
    found: list[str] = []
    for item in items:
        if not isinstance(item, str) or item in ("", "None assigned", "(null)"):
            continue
        found += _names_in(item)
    return list(dict.fromkeys(found))
