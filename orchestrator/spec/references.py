"""``${…}`` references between the parts of a file, checked before omegaconf resolves them.

Only plain paths are allowed (``${stages.pretrain.train.steps}``, ``${.steps}``). Resolvers, omegaconf's
own ``oc.env`` and ``oc.decode`` included, are refused: they could bring a secret into files that are kept.
Cycles and references that would multiply without end are found here, so omegaconf never runs into them.
``tests/orchestrator/test_spec_references.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .errors import nearest
from .yaml_source import Path, dotted

CIRCLE = "the references go round in a circle"
MAX_SIZE = 200_000  # values and characters a reference may expand to

_OPEN = re.compile(r"(\\*)\$\{")
_PLAIN = re.compile(r"\s*(\.*)((?:[A-Za-z0-9_-]+)(?:\.[A-Za-z0-9_-]+|\[\d+\])*)\s*\}")
_PART = re.compile(r"[A-Za-z0-9_-]+|\[\d+\]")
_RESOLVER = re.compile(r"\s*[A-Za-z_][\w.]*\s*:")


class Bad(Exception):
    """A reference that cannot stand: ``message`` and what to do instead."""

    def __init__(self, message: str, expected: str = "", suggestion: str = "") -> None:
        super().__init__(message)
        self.message, self.expected, self.suggestion = message, expected, suggestion


def walk(data: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every text in ``data`` that has a reference, with its path."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from walk(value, (*path, key))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from walk(value, (*path, number))
    elif isinstance(data, str) and "${" in data:
        yield path, data


def targets(text: str, at: Path) -> list[Path]:
    """The absolute paths that ``text`` at path ``at`` refers to. Raises Bad."""
    found: list[Path] = []
    position = 0
    while match := _OPEN.search(text, position):
        if len(match[1]) % 2:  # \${ is the text itself
            position = match.end()
            continue
        plain = _PLAIN.match(text, match.end())
        if plain is None:
            raise _unsupported(text, match.end())
        dots, name = plain.groups()
        parts: Path = tuple(int(p[1:-1]) if p.startswith("[") else p for p in _PART.findall(name))
        if len(dots) > len(at):
            raise Bad(f"${{{dots}{name}}} goes above the top of the file")
        found.append((*at[: len(at) - len(dots)], *parts) if dots else parts)
        position = plain.end()
    return found


def _unsupported(text: str, start: int) -> Bad:
    if _RESOLVER.match(text, start) or ":" in text[start:].split("}")[0]:
        return Bad(
            "resolvers such as oc.env are not available, so that no secret is written to a file",
            "a path such as ${stages.pretrain.train.steps}; for a shell variable its name in env_from",
        )
    return Bad(
        "this reference cannot be read",
        "a path such as ${stages.pretrain.train.steps}, or \\${ for the characters themselves",
    )


class Checker:
    """Follows every reference of one tree; ``check`` raises Bad for the first that cannot stand."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self._sizes: dict[Path, int] = {}
        self._open: list[Path] = []
        self._hops = 0

    def check(self, path: Path) -> None:
        """Raises Bad when what stands at ``path`` cannot be resolved."""
        self._open.clear()
        self._hops = 0
        try:
            self._size(path, self._get(path))
        except RecursionError:
            raise Bad("the references are chained too deeply") from None

    def _get(self, path: Path) -> Any:
        node = self.data
        for part in path:
            node = node[part]
        return node

    def _lookup(self, path: Path) -> tuple[Path, Any]:
        """The place ``path`` names, through references on the way. Raises Bad when there is none."""
        node: Any = self.data
        here: Path = ()
        for depth, part in enumerate(path):
            while isinstance(node, str) and (whole := _whole(node, here)) is not None:
                self._hops += 1
                if self._hops > 200:
                    raise Bad(f"{CIRCLE}, or are chained too deeply")
                here, node = self._lookup(whole)
            if isinstance(node, list) and isinstance(part, str) and part.isdigit():
                part = int(part[:9])
            try:
                if not isinstance(node, (dict, list)):
                    raise KeyError(part)
                node = node[part]  # type: ignore[index]
            except (KeyError, IndexError, TypeError):
                keys = [str(k) for k in node] if isinstance(node, dict) else []
                close = nearest(part, keys)
                raise Bad(
                    f"${{{dotted(path)}}} is not in the file (nor set by an override)",
                    "a key that the file gives",
                    dotted((*path[:depth], close)) if close else "",
                ) from None
            here = (*here, part)
        return here, node

    def _size(self, path: Path, node: Any) -> int:
        if path in self._sizes:
            return self._sizes[path]
        if path in self._open:
            _circle(self._open, path)
        self._open.append(path)
        size = 1
        if isinstance(node, dict):
            size += sum(self._size((*path, key), value) for key, value in node.items())
        elif isinstance(node, list):
            size += sum(self._size((*path, i), value) for i, value in enumerate(node))
        elif isinstance(node, str):
            size += len(node)
            if "${" in node:
                for target in targets(node, path):
                    size += self._size(*self._lookup(target))
        self._open.pop()
        if size > MAX_SIZE:
            raise Bad("the references expand to too much", f"at most {MAX_SIZE} characters")
        self._sizes[path] = size
        return size


def _whole(text: str, at: Path) -> Path | None:
    """The target when the text is one reference and nothing else."""
    if not text.startswith("${") or text.count("${") != 1 or not text.endswith("}"):
        return None
    return targets(text, at)[0]


def _circle(open_: list[Path], path: Path) -> Any:
    ring = open_[open_.index(path) :]
    # Where it is entered does not matter: the same circle is the same sentence.
    start = min(range(len(ring)), key=lambda number: dotted(ring[number]))
    ring = [*ring[start:], *ring[: start + 1]]
    way = " → ".join(dotted(part) or "the file" for part in ring)
    raise Bad(f"{CIRCLE}: {way}")


def resolve(data: dict[str, Any]) -> dict[str, Any]:
    """``data`` with every reference replaced; only after :class:`Checker` has passed all of them."""
    if next(walk(data), None) is None:
        return data
    from omegaconf import OmegaConf

    resolved = OmegaConf.to_container(OmegaConf.create(data), resolve=True)
    assert isinstance(resolved, dict)
    return {str(key): value for key, value in resolved.items()}
