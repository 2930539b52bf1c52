"""JSON Schema for editors, and types that guess nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from orchestrator.spec.schema import Experiment, json_schema
from orchestrator.spec.stages import CommandStage, PretrainStage


def test_the_json_schema_names_every_section_and_refuses_unknown_keys() -> None:
    schema = json_schema()
    json.dumps(schema)
    assert schema["additionalProperties"] is False
    assert {"name", "stages", "defaults", "cluster", "env_from"} <= set(schema["properties"])
    (stage,) = schema["properties"]["stages"]["patternProperties"].values()
    kinds = stage["discriminator"]["mapping"]
    assert set(kinds) == {"text", "pretrain", "eval", "command"}
    for name in ("TextStage", "PretrainStage", "Resources", "Train", "Checkpoint"):
        assert schema["$defs"][name]["additionalProperties"] is False
    assert "async" in schema["$defs"]["Checkpoint"]["properties"]


def test_every_field_that_is_not_plain_has_a_description() -> None:
    plain = {"kind", "resources", "chain", "recovery", "model", "train", "parallel", "checkpoint", "split"}
    plain |= {"weight_decay", "beta1", "beta2", "eps", "seed", "precision", "valid", "test", "defaults"}
    for name, model in json_schema()["$defs"].items():
        for key, field in model.get("properties", {}).items():
            assert key in plain or field.get("description"), f"{name}.{key}"


def command(**fields: Any) -> CommandStage:
    return CommandStage.model_validate({"kind": "command", "run": "x", **fields})


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("python a.py --x 'b c'", ["python", "a.py", "--x", "b c"]),
        (["python", "a b", 3, 0.5], ["python", "a b", "3", "0.5"]),
        (
            "echo $HOME; rm -rf / | cat > x && y `id`",
            ["echo", "$HOME;", "rm", "-rf", "/", "|", "cat", ">", "x", "&&", "y", "`id`"],
        ),
    ],
)
def test_a_command_is_words_and_no_shell(run: object, words: list[str]) -> None:
    assert command(run=run).run == words


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("megatron-log", {"format": "megatron-log"}),
        ("megatron-checkpoint", {"format": "megatron-checkpoint"}),
        ({"checkpoint": "/ckpt"}, {"checkpoint": "/ckpt"}),
        ("file:out/step", {"file": "out/step"}),
        ({"file": "out/step"}, {"file": "out/step"}),
        (r"step (?P<step>\d+)", {"regex": r"step (?P<step>\d+)"}),
    ],
)
def test_progress(given: object, kept: dict[str, str]) -> None:
    progress = command(progress=given).progress
    assert progress is not None and progress.model_dump(exclude_none=True) == kept


@pytest.mark.parametrize(
    "wrong", ["megatronlog", "(", "no group (.*)", {}, {"regex": "a", "file": "b"}, {"x": 1}, 3]
)
def test_progress_that_cannot_work(wrong: object) -> None:
    with pytest.raises(ValueError):
        command(progress=wrong)


def test_signals_are_names() -> None:
    assert [command(stop_signal=s).stop_signal for s in ("TERM", "sigusr1", "none")] == [
        "TERM",
        "USR1",
        "none",
    ]
    for wrong in ("KILL", "15", "STOP"):
        with pytest.raises(ValueError):
            command(stop_signal=wrong)


def test_numbers_are_numbers() -> None:
    base = {"kind": "pretrain", "model": {"preset": "tiny"}}
    stage = PretrainStage.model_validate({**base, "train": {"steps": 1e6, "lr": 1}})
    assert (stage.train.steps, stage.train.lr) == (1_000_000, 1.0)
    for wrong in (
        {"steps": "5"},
        {"steps": True},
        {"steps": 1.5},
        {"steps": 5, "lr": "1e-4"},
        {"steps": float("inf")},
    ):
        with pytest.raises(ValueError):
            PretrainStage.model_validate({**base, "train": wrong})


def test_environment_values_become_text() -> None:
    env = command(env={"A": 1, "B": 0.5, "C": True, "D": "x y\nz"}).env
    assert env == {"A": "1", "B": "0.5", "C": "true", "D": "x y\nz"}
    for wrong in ({"A": None}, {"A": [1]}, {"A": "x\0y"}, {"1A": "x"}, {"A=B": "x"}, {"": "x"}):
        with pytest.raises(ValueError):
            command(env=wrong)


def test_an_experiment_needs_a_name_and_stages() -> None:
    for wrong in ({}, {"name": "x"}, {"stages": {}}, {"name": "x", "stages": {}}):
        with pytest.raises(ValueError):
            Experiment.model_validate(wrong)


def test_importing_the_package_costs_nothing() -> None:
    code = (
        "import sys, orchestrator.spec.errors, orchestrator.plan; print('pydantic' in "
        "sys.modules, 'yaml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
