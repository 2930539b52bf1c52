"""Checks beyond types: needs, data files, layouts, time, secrets. Each yields key, message, expected.

They work on resolved plain values and on each stage for itself, so one fault does not hide another.
``tests/orchestrator/test_spec_checks.py``.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from models.layout import check_layout
from models.presets import DECIDED_ELSEWHERE, GPT_KEYS, PRESETS

from . import graph, room
from .credentials import harmless_value, secret_name, secret_shape
from .errors import nearest
from .messages import Said
from .model_fields import TRANSFORMER_FIELDS
from .stages import ONE_PROCESS, CommandStage
from .yaml_source import Path

_RESERVED = "TRAINMASTER_"
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)(?::([^{}]*))?\}")
_LAYOUT_KEY = re.compile(r"\b(model|parallel|train)\.([a-z_]+)")


def check_needs(stages: Mapping[str, Any]) -> Iterator[Said]:
    """Unknown needs and cycles, on raw values."""
    needs = {name: graph.needs_of(stage) for name, stage in stages.items()}
    for name, wanted in needs.items():
        for number, other in enumerate(wanted):
            raw = stages[name]["needs"]
            key = ("stages", name, "needs") + ((number,) if isinstance(raw, list) else ())
            if other not in needs:
                known = [n for n in needs if n != name]
                near = nearest(other, known)
                one_of = "" if near else f"one of {', '.join(known)}" if known else "no needs"
                yield Said(key, f"there is no stage {other!r}", one_of, near)
            elif wanted.index(other) != number:
                yield Said(key, f"{other!r} is listed twice")
    for ring in graph.cycles(needs):
        key = ("stages", ring[0], "needs")
        yield Said(key, "stages need each other in a circle: " + " → ".join(ring), "needs without a circle")


def check_environment(section: Mapping[str, Any], at: Path) -> Iterator[Said]:
    """``env`` and ``env_from`` of one section (the experiment's, the defaults' or a stage's)."""
    for name, value in _mapping(section.get("env")).items():
        key = (*at, "env", name)
        if name.startswith(_RESERVED):
            yield Said(key, "names that begin with TRAINMASTER_ are set by Trainmaster", "another name")
        elif isinstance(value, str) and (
            secret_shape(value) or (secret_name(name) and not harmless_value(value))
        ):
            yield Said(
                key,
                "looks like a credential; values given here are written to files",
                f"its name under env_from: [{name}], its value exported in the shell that submits",
            )
    names = section.get("env_from")
    names = [names] if isinstance(names, str) else names
    for number, name in enumerate(names if isinstance(names, list) else ()):
        if isinstance(name, str) and secret_shape(name):
            yield Said((*at, "env_from", number), "looks like a value", "the name of a variable")


def check_stage(
    name: str, stage: Mapping[str, Any], stages: Mapping[str, Any], early_s: float
) -> Iterator[Said]:
    """One stage whose own values are valid; ``stage`` is fully resolved, ``stages`` may not be."""
    at: Path = ("stages", name)
    for (section, key), message, expected in room.faults(stage["resources"], stage["chain"], early_s):
        yield Said((*at, section, key), message, expected)
    if stage["kind"] in ONE_PROCESS:
        for key in ("nodes", "ranks_per_node"):
            if (stage["resources"][key] or 1) > 1:
                message = f"{stage['kind']} stages run as one process"
                yield Said((*at, "resources", key), message, "1")
    yield from _KIND[stage["kind"]](at, stage, stages)


def _text(at: Path, stage: Mapping[str, Any], stages: Mapping[str, Any]) -> Iterator[Said]:
    for number, path in enumerate(stage["inputs"] or ()):
        if not (os.path.exists(path) or (glob.has_magic(path) and _matches(path))):
            what = "matches no file" if glob.has_magic(path) else "does not exist"
            yield Said((*at, "inputs", number), f"{path} {what}", "a file, directory or glob that is there")
        elif not os.access(path, os.R_OK) and os.path.exists(path):
            yield Said((*at, "inputs", number), f"{path} cannot be read", "read permission")


def _matches(pattern: str) -> bool:
    return next(glob.iglob(pattern, recursive=True), None) is not None


def _needed(
    at: Path, stage: Mapping[str, Any], stages: Mapping[str, Any], key: str, kind: str, found: str | None
) -> Iterator[Said]:
    """The stage that ``key`` names, or that the needs decide, must be there, needed, and of ``kind``."""
    name = str(at[-1])
    given = stage.get(key) is not None
    where = (*at, key) if given else (*at, "needs")
    if found is None:
        if any(other not in stages for other in graph.needs_of(stage)):
            return  # said already; it may be the one
        yield Said(
            where,
            f"it is not clear which {kind} stage to use",
            f"exactly one {kind} stage among needs, or {key}: NAME",
        )
        return
    other = stages.get(found)
    kinds = [n for n, s in stages.items() if _mapping(s).get("kind") == kind]
    if other is None or _mapping(other).get("kind") != kind:
        what = "there is no stage" if other is None else f"not a {kind} stage:"
        yield Said(where, f"{what} {found!r}", f"a {kind} stage", nearest(found, kinds))
        return
    needs = {n: graph.needs_of(s) for n, s in stages.items()}
    if found not in graph.above(name, needs):
        yield Said(where, f"{found!r} is not among the stages this one needs", f"needs: [{found}, …]")


def check_model_keys(at: Path, model: Mapping[Any, Any]) -> Iterator[Said]:
    """Keys and preset of a ``model``, on raw values: right or wrong whatever else the stage says."""
    known = TRANSFORMER_FIELDS | GPT_KEYS | {"preset"}
    for key, value in model.items():
        if key in DECIDED_ELSEWHERE:
            where = DECIDED_ELSEWHERE[key]
            yield Said((*at, "model", key), f"is decided by {where}", f"the value under {where}")
        elif key not in known:
            near = nearest(key, known)
            expected = "" if near else "preset or a field of Megatron-Core's TransformerConfig"
            yield Said((*at, "model", key), "unknown key", expected, near)
        elif isinstance(value, dict):
            yield Said((*at, "model", key), "is a mapping", "a number, text, true, false or a list")
    preset = model.get("preset")
    if isinstance(preset, str) and preset not in PRESETS:
        near = nearest(preset, PRESETS)
        one_of = f"one of {', '.join(PRESETS)}"
        yield Said((*at, "model", "preset"), f"{preset!r} is no preset", one_of, near)


def _pretrain(at: Path, stage: Mapping[str, Any], stages: Mapping[str, Any]) -> Iterator[Said]:
    yield from _needed(at, stage, stages, "data", "text", graph.data_stage(str(at[-1]), stages))
    wrong = list(check_model_keys(at, stage["model"]))
    yield from wrong
    if any(said.key[-1] not in DECIDED_ELSEWHERE for said in wrong):
        return
    model = {k: v for k, v in stage["model"].items() if k not in DECIDED_ELSEWHERE}
    world = stage["resources"]["nodes"] * ranks_per_node(stage["resources"])
    try:
        problems = check_layout(model, stage["parallel"], world, stage["train"])
    except (TypeError, ValueError, ZeroDivisionError) as error:
        problems = [f"the model cannot be laid out: {error}"]
    for problem in problems:
        match = _LAYOUT_KEY.search(problem)
        place: Path = (match[1], match[2]) if match else ("resources",)
        yield Said((*at, *place), problem)


def _eval(at: Path, stage: Mapping[str, Any], stages: Mapping[str, Any]) -> Iterator[Said]:
    name = str(at[-1])
    trained = graph.model_stage(name, stages)
    yield from _needed(at, stage, stages, "model", "pretrain", trained)
    data = graph.data_stage(name, stages)
    if trained is not None or data is not None:
        yield from _needed(at, stage, stages, "data", "text", data)
    share = _mapping(_mapping(stages.get(data or "")).get("split")).get(stage["split"])
    if share == 0:
        message = f"text stage {data!r} keeps nothing for {stage['split']!r}"
        yield Said((*at, "split"), message, f"a share under stages.{data}.split.{stage['split']}")
    trained_stage = _mapping(stages.get(trained or ""))
    if data is not None and trained_stage.get("kind") == "pretrain":
        theirs = graph.data_stage(str(trained), stages)
        if theirs is not None and theirs != data:
            yield Said(
                (*at, "data"),
                f"the model was trained with the tokenizer of {theirs!r}, not of {data!r}",
                theirs,
            )


def _command(at: Path, stage: Mapping[str, Any], stages: Mapping[str, Any]) -> Iterator[Said]:
    for word in stage["run"]:
        for match in _PLACEHOLDER.finditer(word):
            name, argument = match.groups()
            key = (*at, "run")
            if name == "input":
                needs = graph.needs_of(stage)
                if argument not in needs:
                    message = f"{match[0]}: {argument!r} is not among its needs"
                    one_of = f"one of {', '.join(needs)}" if needs else "needs that name it"
                    yield Said(key, message, one_of, nearest(argument, needs))
            elif argument is None and name not in CommandStage.WORDS and nearest(name, CommandStage.WORDS):
                # Anything else in braces is the command's own business.
                yield Said(key, f"{match[0]} is not filled in", "", nearest(name, CommandStage.WORDS))
    workdir = stage["workdir"]
    if workdir is not None and not os.path.isdir(workdir):
        yield Said((*at, "workdir"), f"{workdir} is not a directory", "a directory that is there")


_KIND: dict[str, Callable[[Path, Mapping[str, Any], Mapping[str, Any]], Iterator[Said]]] = {
    "text": _text,
    "pretrain": _pretrain,
    "eval": _eval,
    "command": _command,
}


def ranks_per_node(resources: Mapping[str, Any]) -> int:
    """Processes on a node: as given, else one per GPU, else 1."""
    given = resources["ranks_per_node"]
    return int(given) if given is not None else max(1, int(resources["gpus_per_node"]))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
