"""The schema agrees with the stage programs that read the same sections once more."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from models import settings as programs
from models.presets import DECIDED_ELSEWHERE, GPT_KEYS, PRESETS
from orchestrator.plan import ARTIFACT_KINDS, PROGRAMS
from orchestrator.spec import stages
from orchestrator.spec.model_fields import TRANSFORMER_FIELDS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("schema", "program", "extra"),
    [
        (stages.Train, programs.Train, set()),
        (stages.Parallel, programs.Parallel, set()),
        (stages.Checkpoint, programs.Checkpoint, set()),
    ],
)
def test_sections_have_the_fields_and_defaults_of_the_program(
    schema: Any, program: Any, extra: set[str]
) -> None:
    ours = {field.alias or name: field for name, field in schema.model_fields.items()}
    theirs = {field.name.rstrip("_"): field for field in dataclasses.fields(program)}
    assert set(ours) - extra == set(theirs)
    for name, field in theirs.items():
        if field.default is dataclasses.MISSING:
            assert ours[name].is_required()
        else:
            assert ours[name].default == field.default, name


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_the_schema_accepts_the_program_accepts(precision: str) -> None:
    train = stages.Train.model_validate({"steps": 10, "lr": 1, "warmup_steps": 9, "precision": precision})
    assert dataclasses.asdict(programs.read_train(train.model_dump())) == train.model_dump()
    parallel = stages.Parallel.model_validate({"tensor": 2, "sequence": True})
    assert dataclasses.asdict(programs.read_parallel(parallel.model_dump())) == parallel.model_dump()
    for given in ({}, {"interval": "auto"}, {"interval": 5, "async": True}, {"seconds": "10m"}):
        checkpoint = stages.Checkpoint.model_validate(given).model_dump(by_alias=True)
        read = dataclasses.asdict(programs.read_checkpoint(checkpoint))
        assert read == {key: checkpoint[key.rstrip("_")] for key in read}


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"steps": 5, "lr": 0}, {"steps": 5, "warmup_steps": 5}])
def test_what_the_program_refuses_the_schema_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(programs.ConfigFault):
        programs.read_train(wrong)
    with pytest.raises(ValueError):
        stages.Train.model_validate(wrong)


def constant(module: str, name: str) -> object:
    """A constant of a program, read without importing what it imports."""
    tree = ast.parse((ROOT / module).read_text())
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == name
        ):
            return ast.literal_eval(node.value)
    raise AssertionError(f"{module} has no {name}")


def test_artifact_kinds_are_what_the_programs_seal() -> None:
    assert ARTIFACT_KINDS["text"] == constant("models/prepare_text.py", "KIND")
    assert ARTIFACT_KINDS["pretrain"] == constant("models/checkpoint.py", "KIND")
    assert ARTIFACT_KINDS["eval"] == constant("models/evaluate.py", "KIND")


def test_a_text_stages_fields_are_those_its_program_knows() -> None:
    own = set(stages.TextStage.model_fields) - set(stages.StageBase.model_fields)
    assert own <= set(constant("models/prepare_text.py", "_KEYS"))  # type: ignore[call-overload]
    vocab = stages.TextStage.model_fields["vocab_size"]
    assert vocab.default == 1024
    assert any(
        getattr(m, "ge", None) == constant("models/data/tokenizer.py", "SMALLEST_VOCAB")
        for m in vocab.metadata
    )


def test_every_program_of_the_plan_is_there() -> None:
    for _, module in PROGRAMS.values():
        assert (ROOT / (module.replace(".", "/") + ".py")).is_file()


def test_presets_use_known_fields() -> None:
    for preset in PRESETS.values():
        assert set(preset) <= TRANSFORMER_FIELDS | GPT_KEYS
    assert not TRANSFORMER_FIELDS & set(DECIDED_ELSEWHERE)


def test_model_fields_are_those_of_the_installed_megatron() -> None:
    """Read from its source: importing it takes seconds and patches torch."""
    pytest.importorskip("megatron")
    spec = importlib.util.find_spec("megatron.core")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("Megatron-Core is not installed")
    core = Path(spec.submodule_search_locations[0])
    installed = set()
    for module in ("model_parallel_config.py", "transformer/transformer_config.py"):
        for node in ast.walk(ast.parse((core / module).read_text())):
            if isinstance(node, ast.ClassDef) and node.name in ("ModelParallelConfig", "TransformerConfig"):
                fields = [n.target for n in node.body if isinstance(n, ast.AnnAssign)]
                installed |= {f.id for f in fields if isinstance(f, ast.Name)}
    assert len(installed) > 100
    assert installed >= TRANSFORMER_FIELDS
