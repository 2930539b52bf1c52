"""Dotted overrides from the command line: ``stages.pretrain.train.lr=1e-4``.

Values are read like YAML values in the file (numbers, true, null, ``[1, 2]``, ``{a: 1}``). omegaconf
merges them in. ``tests/orchestrator/test_spec_overrides.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from resiliency.errors import SpecError

from . import yaml_source
from .errors import Fault
from .yaml_source import Path

_KEY = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+|\[\d+\])*")
_PART = re.compile(r"[A-Za-z0-9_-]+|\[\d+\]")
_EXPECTED = "dotted.key=value, such as stages.pretrain.train.lr=1e-4"
MAX_OVERRIDE = 16 * 1024


class Override:
    """One parsed override."""

    def __init__(self, text: str, path: Path, value: Any) -> None:
        self.text, self.path, self.value = text, path, value


def shown(text: str) -> str:
    """An override as messages name it: the key, and a value only when it is short and harmless."""
    from .credentials import secret_name, secret_shape

    key, equals, value = text.partition("=")
    secret = secret_shape(text) or secret_name(key.rpartition(".")[2])
    if len(key) > 80:
        key = key[:77] + "…"
    return f"{key}{equals}{'…' if secret or len(value) > 60 else value}"


def parse(text: str) -> Override:
    """Raises SpecError with the fault."""
    name = shown(text)

    def bad(message: str, expected: str = _EXPECTED) -> SpecError:
        return SpecError(message, faults=(Fault("", 0, "", message, expected, override=name),))

    key, equals, raw = text.partition("=")
    if len(text) > MAX_OVERRIDE:
        raise bad(f"the override has {len(text)} characters", f"at most {MAX_OVERRIDE}")
    if not equals:
        raise bad("there is no '='")
    if key[:1] in "+~" and key:
        raise bad(
            f"'{key[0]}' before the key is not needed here",
            "key=value sets or adds, key=null removes",
        )
    if not _KEY.fullmatch(key):
        raise bad(f"{key[:80]!r} is not a key")
    path: Path = tuple(int(p[1:-1][:9]) if p.startswith("[") else p for p in _PART.findall(key))
    try:
        source = yaml_source.parse(raw, "")
    except SpecError as error:
        why = "; ".join(f.message for f in error.faults if isinstance(f, Fault))
        raise bad(f"the value cannot be read: {why}", "a YAML value; put odd texts in quotes") from error
    if source.faults:
        raise bad(f"the value cannot be read: {source.faults[0].message}", source.faults[0].expected)
    return Override(name, path, source.data)


def apply(data: dict[str, Any], overrides: Sequence[Override]) -> tuple[dict[str, Any], list[Fault]]:
    """``data`` with the overrides merged in, and what could not be."""
    if not overrides:
        return data, []
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    config = OmegaConf.create(data)
    faults = []
    for one in overrides:
        current = OmegaConf.to_container(config, resolve=False)
        problem = _blocked(current, one.path)
        if problem is None:
            key = ".".join(str(part) for part in one.path)
            try:
                OmegaConf.update(config, key, one.value, merge=True, force_add=True)
                continue
            except (OmegaConfBaseException, ValueError, TypeError, AttributeError) as error:
                problem = str(error).splitlines()[0] if str(error) else "cannot be set"
        faults.append(Fault("", 0, yaml_source.dotted(one.path), problem, override=one.text))
    merged = OmegaConf.to_container(config, resolve=False)
    assert isinstance(merged, dict)
    return {str(key): value for key, value in merged.items()}, faults


def _blocked(node: Any, path: Path) -> str | None:
    """Why ``path`` cannot be set. omegaconf would follow a reference and change its target."""
    for depth, part in enumerate(path):
        here = yaml_source.dotted(path[:depth])
        if isinstance(node, list):
            number = part if isinstance(part, int) else int(part) if part.isdigit() else -1
            if not 0 <= number < len(node):
                return f"{here} is a list of {len(node)}: {part!r} is none of its items"
            node = node[number]
        elif isinstance(node, dict):
            if isinstance(part, int):
                return f"{here or 'the file'} is a mapping, not a list"
            node = node.get(part, {})
            node = {} if node is None and depth < len(path) - 1 else node
        elif isinstance(node, str) and "${" in node:
            return f"{here} is a reference ({node}): set what it refers to, or all of {here}"
        else:
            return f"{here} is a single value, it has no {part!r}"
    return None
