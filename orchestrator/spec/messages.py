"""pydantic's errors in the words of someone who writes YAML. ``tests/orchestrator/test_spec_faults.py``."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from .errors import nearest
from .fields import WrongField
from .stages import LATER_KINDS, STAGES

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping (key: value)",
    "model_type": "a mapping (key: value)",
    "model_attributes_type": "a mapping (key: value)",
}

_BOUNDS = {
    "greater_than": "over",
    "greater_than_equal": "at least",
    "less_than": "under",
    "less_than_equal": "at most",
}


class Said:
    """A fault without its place."""

    def __init__(self, key: tuple[str | int, ...], message: str, expected: str = "", near: str = "") -> None:
        self.key, self.message, self.expected, self.near = key, message, expected, near


def say(error: Mapping[str, Any], root: type[BaseModel]) -> Said:
    """One pydantic error → key, what is wrong, what was expected, the nearest valid word."""
    loc = tuple(error["loc"])
    if len(loc) > 2 and loc[0] == "stages" and loc[2] in STAGES:
        loc = (*loc[:2], *loc[3:])  # the discriminator is no key of the file
    by_key = loc and loc[-1] == "[key]"
    loc = loc[:-1] if by_key else loc
    kind, context, given = error["type"], error.get("ctx", {}), error.get("input")
    if kind == "extra_forbidden":
        known = keys_at(root, error["loc"][:-1])
        near = nearest(loc[-1], known)
        return Said(loc, "unknown key", "" if near else _one_of(known), near)
    if kind == "missing":
        return Said(loc, "is missing", _described(root, error["loc"]))
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _kind(loc, given)
    if kind == "literal_error":
        words = [w.strip("' ") for w in str(context.get("expected", "")).replace(" or ", ", ").split(",")]
        return Said(loc, f"{shown(given)} is unknown", _one_of(words), nearest(given, words))
    if kind in _EXPECTED:
        expected = _EXPECTED[kind]
        if kind == "string_type" and isinstance(given, (int, float)):
            expected += f": put it in quotes, '{given}'"
        return Said(loc, f"{shown(given)} has the wrong type", expected)
    if kind.startswith(("greater_than", "less_than")):
        (bound,) = context.values()
        return Said(loc, f"{shown(given)} is out of range", f"{_BOUNDS[kind]} {bound:g}")
    if kind == "string_pattern_mismatch" and by_key:
        return Said(loc, "is not a stage's name", "a-z, 0-9, '-' and '_', beginning with a letter, up to 40")
    if kind == "string_pattern_mismatch":
        return Said(loc, f"{shown(given)} is not a stage's name", "the name of a stage")
    if kind == "too_short":
        return Said(loc, "is empty", "at least one")
    if kind == "value_error":
        if isinstance(context.get("error"), WrongField):
            loc = (*loc, context["error"].key)
        message, _, expected = str(context.get("error", error["msg"])).partition("; expected ")
        return Said(loc, message, expected)
    return Said(loc, str(error["msg"]).lower())


def _kind(loc: tuple[Any, ...], given: Any) -> Said:
    kind = given.get("kind") if isinstance(given, Mapping) else None
    loc = (*loc, "kind")
    if kind is None:
        return Said(loc, "is missing", _one_of(STAGES))
    if kind in LATER_KINDS:
        return Said(loc, f"{kind} stages are not available in this version", _one_of(STAGES))
    return Said(loc, f"{shown(kind)} is not a kind of stage", _one_of(STAGES), nearest(kind, STAGES))


def _one_of(words: typing.Iterable[str]) -> str:
    listed = sorted(words)
    if not listed:
        return ""
    return f"one of {', '.join(listed)}" if len(listed) > 1 else listed[0]


def shown(value: Any) -> str:
    """A value in a message: short, and never one that looks like a credential."""
    from .credentials import secret_shape

    text = repr(value)
    if secret_shape(text):
        return "the value"
    return text if len(text) <= 60 else text[:57] + "…"


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models an annotation may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is not None:
        found = []
        for part in typing.get_args(annotation):
            found += _models(part)
        return found
    return []


def _field(model: type[BaseModel], key: object) -> Any:
    for name, field in model.model_fields.items():
        if key in (name, field.alias):
            return field
    return None


def _descend(root: type[BaseModel], loc: tuple[Any, ...]) -> list[type[BaseModel]]:
    models: list[type[BaseModel]] = [root]
    if len(loc) > 2 and loc[0] == "stages" and loc[2] in STAGES:
        models, loc = [STAGES[loc[2]]], loc[3:]  # a stage may be called like a key or a kind
    for part in loc:
        fields = [f for f in (_field(m, part) for m in models) if f is not None]
        if fields:
            models = [m for f in fields for m in _models(f.annotation)]
    return models


def keys_at(root: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    """The valid keys of the section at a pydantic location (discriminators included)."""
    keys: list[str] = []
    for model in _descend(root, loc):
        keys += [field.alias or name for name, field in model.model_fields.items()]
    return sorted(set(keys))


def _described(root: type[BaseModel], loc: tuple[Any, ...]) -> str:
    for model in _descend(root, loc[:-1]):
        field = _field(model, loc[-1])
        if field is not None and field.description:
            return str(field.description).split(". ")[0].rstrip(".").lower()
    return ""
