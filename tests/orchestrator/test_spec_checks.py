"""Checks beyond types: data that is there, models that can be split, stages that fit together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.orchestrator.spec_files import GOOD, lines, load, one

CHAIN = GOOD + "  test: {kind: eval, needs: train}\n"


def test_a_missing_data_file_is_named_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "there.txt").write_text("x")
    text = GOOD.replace(
        "kind: text", "kind: text\n    inputs:\n    - there.txt\n    - gone.txt\n    - '*.md'"
    )
    found = lines(tmp_path, text)
    assert found == [
        "exp.yaml:7: stages.data.inputs[1]: gone.txt does not exist; expected a file, "
        "directory or glob that is there",
        "exp.yaml:8: stages.data.inputs[2]: *.md matches no file; expected a file, directory "
        "or glob that is there",
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_data_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").touch(mode=0)
    text = GOOD.replace("kind: text", "kind: text\n    inputs: secret.txt")
    assert "cannot be read" in one(tmp_path, text)


def pretrain(**sections: str) -> str:
    body = "".join(f"    {key}: {value}\n" for key, value in sections.items())
    return GOOD.replace("    model: {preset: tiny}\n    train: {steps: 20}\n", body)


@pytest.mark.parametrize(
    ("sections", "where", "said"),
    [
        (
            {
                "model": "{preset: tiny}",
                "train": "{steps: 2}",
                "parallel": "{tensor: 3}",
                "resources": "{ranks_per_node: 3}",
            },
            "model.num_attention_heads",
            "model.num_attention_heads 4 is not divisible by parallel.tensor 3",
        ),
        (
            {"model": "{preset: tiny}", "train": "{steps: 2}", "parallel": "{tensor: 4}"},
            "model.num_query_groups",
            "model.num_query_groups 2 is not divisible by parallel.tensor 4",
        ),
        (
            {
                "model": "{preset: tiny, num_layers: 5}",
                "train": "{steps: 2}",
                "parallel": "{pipeline: 2}",
                "resources": "{nodes: 2}",
            },
            "model.num_layers",
            "model.num_layers 5 is not divisible by parallel.pipeline 2",
        ),
        (
            {
                "model": "{preset: tiny}",
                "train": "{steps: 2, global_batch_size: 7}",
                "resources": "{ranks_per_node: 2}",
            },
            "train.global_batch_size",
            "train.global_batch_size 7 is not divisible by train.micro_batch_size 1 × 2 data-parallel ranks",
        ),
        (
            {"model": "{}", "train": "{steps: 2}"},
            "model.num_layers",
            "model.num_layers is missing: set it, or choose model.preset",
        ),
    ],
)
def test_a_model_that_cannot_be_split_is_refused_at_its_line(
    tmp_path: Path, sections: dict[str, str], where: str, said: str
) -> None:
    found = lines(tmp_path, pretrain(**sections))
    assert any(f"stages.train.{where}: {said}" in line for line in found), found
    assert all(line.startswith("exp.yaml:") and not line.startswith("exp.yaml:1:") for line in found)


def test_ranks_are_one_per_gpu_unless_given(tmp_path: Path) -> None:
    fields = {"model": "{preset: tiny}", "train": "{steps: 2, global_batch_size: 6}"}
    load(tmp_path, pretrain(**fields, resources="{gpus_per_node: 3}"))
    assert "4 data-parallel ranks" in one(tmp_path, pretrain(**fields, resources="{gpus_per_node: 4}"))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            "{preset: tinny}",
            "model.preset: 'tinny' is no preset; expected one of tiny, small, medium, 1b, 8b, "
            "70b; did you mean 'tiny'?",
        ),
        ("{preset: tiny, num_layer: 2}", "model.num_layer: unknown key; did you mean 'num_layers'?"),
        (
            "{preset: tiny, zzz: 2}",
            "model.zzz: unknown key; expected preset or a field of Megatron-Core's TransformerConfig",
        ),
        (
            "{preset: tiny, tensor_model_parallel_size: 2}",
            "model.tensor_model_parallel_size: is decided by parallel.tensor; expected the value "
            "under parallel.tensor",
        ),
        (
            "{preset: tiny, num_layers: {a: 1}}",
            "model.num_layers: is a mapping; expected a number, text, true, false or a list",
        ),
    ],
)
def test_model_keys(tmp_path: Path, model: str, said: str) -> None:
    assert one(tmp_path, pretrain(model=model, train="{steps: 2}")) == f"exp.yaml:8: stages.train.{said}"


def test_megatrons_own_fields_are_accepted(tmp_path: Path) -> None:
    model = "{preset: tiny, recompute_granularity: full, moe_router_topk: 2, rotary_base: 1000}"
    loaded = load(tmp_path, pretrain(model=model, train="{steps: 2}"))
    assert loaded.resolved["stages"]["train"]["model"]["recompute_granularity"] == "full"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("needs: data\n", "needs: []\n"), "stages.train.needs: it is not clear which text stage to use"),
        (("needs: data\n", "needs: data\n    data: test\n"), "stages.train.data: not a text stage: 'test'"),
        (("needs: data\n", "needs: data\n    data: nope\n"), "stages.train.data: there is no stage 'nope'"),
        (
            ("kind: eval, needs: train", "kind: eval, needs: data"),
            "stages.test.needs: it is not clear which pretrain stage to use",
        ),
        (
            ("kind: eval, needs: train", "kind: eval, needs: train, model: data"),
            "stages.test.model: not a pretrain stage: 'data'",
        ),
        (
            ("kind: eval, needs: train", "kind: eval, needs: train, split: all"),
            "stages.test.split: 'all' is unknown; expected one of test, valid",
        ),
        (
            ("kind: text", "kind: text\n    split: {test: 0}"),
            "stages.test.split: text stage 'data' keeps nothing for 'test'",
        ),
        (
            ("kind: eval, needs: train", "kind: eval, needs: train, resources: {nodes: 2}"),
            "stages.test.resources.nodes: eval stages run as one process; expected 1",
        ),
    ],
)
def test_stages_must_fit_together(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    assert change[0] in CHAIN
    assert any(said in line for line in lines(tmp_path, CHAIN.replace(*change)))


def test_an_eval_stage_needs_the_text_its_model_knows(tmp_path: Path) -> None:
    text = CHAIN + "  other: {kind: text, seed: 5}\n"
    load(tmp_path, text)
    line = one(tmp_path, text.replace("kind: eval, needs: train", "kind: eval, needs: [train, other]"))
    assert "stages.test.data: the model was trained with the tokenizer of 'data', not of 'other'" in line


def test_needs_name_the_circle_and_the_nearest_stage(tmp_path: Path) -> None:
    text = CHAIN.replace("kind: text", "kind: text\n    needs: test")
    assert one(tmp_path, text) == (
        "exp.yaml:5: stages.data.needs: stages need each other in a circle: data → test → train → data; "
        "expected needs without a circle"
    )
    line = one(tmp_path, CHAIN.replace("needs: train", "needs: [trian]"))
    assert line == "exp.yaml:10: stages.test.needs[0]: there is no stage 'trian'; did you mean 'train'?"
    assert "listed twice" in one(tmp_path, CHAIN.replace("needs: train", "needs: [train, train]"))
