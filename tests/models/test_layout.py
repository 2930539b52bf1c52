"""models.layout: every fault named, and no torch behind it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from models.layout import check_layout, data_parallel_size, padded_vocab_size, resolve_model
from models.presets import PRESETS

TRAIN = {"global_batch_size": 16, "micro_batch_size": 2, "seq_length": 256}


def faults(
    model: dict[str, Any] | None = None,
    parallel: dict[str, Any] | None = None,
    world: int = 1,
    train: dict[str, Any] | None = None,
) -> str:
    base = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 8, "num_query_groups": 4}
    shape, batch = {**base, **(model or {})}, {**TRAIN, **(train or {})}
    return "\n".join(check_layout(shape, parallel or {}, world, batch))


@pytest.mark.parametrize(
    ("model", "parallel", "world", "train", "message"),
    [
        ({"hidden_size": 65}, {}, 1, {}, "hidden_size 65 is not divisible by model.num_attention_heads 8"),
        ({"hidden_size": 40}, {}, 1, {}, "head size is 5"),
        ({"num_query_groups": 3}, {}, 1, {}, "not divisible by model.num_query_groups 3"),
        ({}, {"tensor": 16}, 16, {}, "num_attention_heads 8 is not divisible by parallel.tensor 16"),
        ({}, {"tensor": 8}, 8, {}, "num_query_groups 4 is not divisible by parallel.tensor 8"),
        ({"ffn_hidden_size": 170}, {"tensor": 4}, 4, {}, "ffn_hidden_size 170 is not divisible"),
        ({}, {"pipeline": 3}, 3, {}, "num_layers 4 is not divisible by parallel.pipeline 3"),
        ({}, {"virtual_pipeline": 2}, 1, {}, "needs parallel.pipeline of at least 2"),
        ({}, {"pipeline": 2, "virtual_pipeline": 4}, 2, {}, "pipeline × virtual_pipeline 8"),
        ({}, {"pipeline": 2, "virtual_pipeline": 2}, 2, {"global_batch_size": 6}, "micro-batches (3)"),
        ({}, {"tensor": 2}, 3, {}, "3 ranks are not divisible by"),
        ({}, {}, 3, {}, "global_batch_size 16 is not divisible by train.micro_batch_size 2 × 3"),
        ({}, {"context": 2}, 2, {"seq_length": 30}, "not divisible by 2 × parallel.context"),
        ({}, {"sequence": True}, 1, {}, "parallel.sequence needs parallel.tensor"),
        ({}, {"tensor": 2, "sequence": True}, 2, {"seq_length": 31}, "which parallel.sequence needs"),
        ({}, {"expert": 2}, 2, {}, "no model.num_moe_experts"),
        ({"num_moe_experts": 3}, {"expert": 2}, 2, {}, "num_moe_experts 3 is not divisible"),
        ({"bf16": True}, {}, 1, {}, "model.bf16 is decided by train.precision"),
        ({"num_layers": 0}, {}, 1, {}, "model.num_layers must be a whole number of at least 1, not 0"),
        ({"hidden_size": "64"}, {}, 1, {}, "model.hidden_size must be a whole number"),
        ({"preset": "tinny"}, {}, 1, {}, "did you mean 'tiny'?"),
        ({}, {}, 0, {}, "0 ranks"),
    ],
)
def test_a_fault_is_named(
    model: dict[str, Any], parallel: dict[str, Any], world: int, train: dict[str, Any], message: str
) -> None:
    assert message in faults(model, parallel, world, train)


def test_all_faults_come_at_once() -> None:
    found = check_layout({"preset": "tiny"}, {"tensor": 3, "pipeline": 3}, 9, TRAIN)
    assert len(found) >= 3


def test_missing_shape_names_the_presets_as_a_way_out() -> None:
    assert any("choose model.preset" in fault for fault in check_layout({}, {}, 1, TRAIN))


@pytest.mark.parametrize(
    "parallel",
    [
        *({}, {"tensor": 2}, {"pipeline": 2}, {"tensor": 2, "pipeline": 2}, {"context": 2}),
        *({"tensor": 2, "sequence": True}, {"pipeline": 2, "virtual_pipeline": 2}),
    ],
)
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_splits_over_four_ranks(preset: str, parallel: dict[str, Any]) -> None:
    assert check_layout({"preset": preset}, parallel, 4, TRAIN) == []


def test_own_fields_win_over_the_preset() -> None:
    assert resolve_model({"preset": "tiny", "hidden_size": 96})["hidden_size"] == 96
    assert resolve_model({"preset": "tiny"})["normalization"] == "RMSNorm"


def test_data_parallel_size() -> None:
    assert data_parallel_size({"tensor": 2, "pipeline": 2}, 16) == 4
    assert data_parallel_size({"tensor": 4}, 2) == 0


def test_padding_does_not_depend_on_the_layout() -> None:
    assert [padded_vocab_size(n) for n in (1, 128, 129, 1024)] == [128, 128, 256, 1024]


@pytest.mark.parametrize("module", ["models.layout", "models.presets", "models.stage", "models.settings"])
def test_imports_neither_torch_nor_megatron(module: str) -> None:
    heavy = "any(m.split('.')[0] in ('torch', 'megatron') for m in sys.modules)"
    code = f"import sys, {module}; sys.exit({heavy})"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
