"""``defaults`` and the experiment's own environment, merged under every stage. Pure.

A stage's own value wins; mappings are merged key by key, lists are replaced, except ``env_from``, whose
names add up. ``null`` in a stage removes what would come from above. Stages of one process (text, eval)
do not take over nodes, ranks and GPUs that are meant for training.
``tests/orchestrator/test_spec_load.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .yaml_source import Path

_TOP = ("env", "env_from", "container")


def merge(over: Any, under: Any) -> Any:
    """``over`` completed by ``under``."""
    if isinstance(over, Mapping) and isinstance(under, Mapping):
        merged = dict(under)
        for key, value in over.items():
            if value is None and key in under:
                del merged[key]
            else:
                merged[key] = merge(value, under[key]) if key in under else value
        return merged
    return over


def _names(value: Any) -> list[Any]:
    return [value] if isinstance(value, str) else value if isinstance(value, list) else []


def with_defaults(data: Mapping[str, Any]) -> dict[str, Any]:
    """The experiment with every stage complete. Values of the wrong type are left for the schema."""
    result = dict(data)
    stages = data.get("stages")
    if not isinstance(stages, Mapping):
        return result
    top = {key: data[key] for key in _TOP if data.get(key) is not None}
    given = data.get("defaults")
    under = merge(given, top) if isinstance(given, Mapping) else top
    if isinstance(given, Mapping) and "env_from" in given:
        under["env_from"] = [*_names(top.get("env_from")), *_names(given["env_from"])]
    result["stages"] = {
        name: _stage(stage, under) if isinstance(stage, Mapping) else stage for name, stage in stages.items()
    }
    return result


def _for_one_process(kind: str, under: Mapping[str, Any]) -> Mapping[str, Any]:
    resources = under.get("resources")
    if not isinstance(resources, Mapping):
        return under
    kept = {k: v for k, v in resources.items() if k not in ("nodes", "ranks_per_node", "gpus_per_node")}
    if kind == "eval" and resources.get("gpus_per_node"):
        kept["gpus_per_node"] = 1
    return {**under, "resources": kept}


def _stage(stage: Mapping[str, Any], under: Mapping[str, Any]) -> dict[str, Any]:
    if stage.get("kind") in ("text", "eval"):
        under = _for_one_process(str(stage["kind"]), under)
    merged: dict[str, Any] = merge(stage, under)
    names = merged.get("env_from")
    if names:
        own = stage.get("env_from") or []
        every = [*_names(under.get("env_from")), *_names(own)]
        if isinstance(own, (str, list)) and all(isinstance(name, str) for name in every):
            merged["env_from"] = list(dict.fromkeys(every))
    return merged


def origins(path: Path) -> list[Path]:
    """Where the value at a path may have been written, the likeliest first."""
    found = [path]
    if len(path) > 2 and path[0] == "stages":
        found += [("defaults", *path[2:])]
        if path[2] in _TOP:
            found += [path[2:]]
    return found
