"""models.evaluate: the same tokens and bytes for model and baselines, at any layout."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from models.data.indexed import read_tokens
from models.evaluate import windows
from models.ngram import KneserNey3, unigram_nll
from tests.models.programs import MODEL, TRAIN, Program


@pytest.mark.parametrize("length", [1, 7, 8, 9, 12, 13, 100])
@pytest.mark.parametrize("stride", [1, 4, 8])
def test_every_position_is_scored_once_with_enough_context(length: int, stride: int) -> None:
    scored: list[int] = []
    for start, end, first in windows(length, 8, stride):
        assert end - start <= 8
        assert first - start >= (8 - stride if start else 0)
        scored += range(first, end)
    assert scored == list(range(length))


@pytest.mark.slow
@pytest.mark.xdist_group("evaluate")
def test_bits_per_byte_from_a_tensor_parallel_checkpoint(tmp_path: Path, dataset: Path) -> None:
    train = {**TRAIN, "steps": 30, "precision": "bf16"}
    spec = {"kind": "pretrain", "model": MODEL, "parallel": {"tensor": 2}, "train": train}
    trained = Program("pretrain", tmp_path / "train", spec, {"text": dataset})
    done = trained.run(ranks=2)
    assert done.returncode == 0, done.stderr
    program = Program(
        "evaluate", tmp_path / "eval", {"kind": "eval"}, {"text": dataset, "pretrain": trained.artifact}
    )
    done = program.run(**program.journal_env("one"))
    assert done.returncode == 0, done.stderr
    result = json.loads((program.artifact / "eval.json").read_text())
    data = json.loads((dataset / "dataset.json").read_text())
    held, corpus = read_tokens(dataset / "test"), read_tokens(dataset / "train")
    size = data["splits"]["test"]["bytes"]
    assert (result["tokens"], result["bytes"]) == (len(held), size)
    unigram = unigram_nll(corpus, held, 320).sum() / math.log(2) / size
    order3 = KneserNey3(corpus, 320).nll(held, 0).sum() / math.log(2) / size
    assert result["bits_per_byte"]["unigram"] == pytest.approx(unigram, abs=1e-6)
    assert result["bits_per_byte"]["order3"] == pytest.approx(order3, abs=1e-6)
    # Per-token loss and bits per byte are one measurement in two units, near the training loss.
    model = result["bits_per_byte"]["model"]
    assert model == pytest.approx(result["loss_per_token"] * len(held) / size / math.log(2), rel=1e-4)
    losses = trained.losses("by-hand")
    assert result["loss_per_token"] == pytest.approx(losses[30], abs=0.5)
    assert result["loss_per_token"] < losses[1] - 0.3
    assert result["beats_unigram"] == (model < unigram)
    told = [e["data"]["metrics"] for e in program.events() if e["type"] == "eval.result"]
    assert [t["bits_per_byte"] for t in told] == [result["bits_per_byte"]]


def test_a_dataset_without_the_split_is_refused(tmp_path: Path, dataset: Path) -> None:
    other = tmp_path / "model"
    other.mkdir()
    from resiliency import artifact

    artifact.seal(other, "checkpoint", {"data": {"tokenizer": "x"}})
    program = Program(
        "evaluate", tmp_path / "eval", {"kind": "eval", "split": "dev"}, {"text": dataset, "model": other}
    )
    done = program.run()
    assert done.returncode == 76
    assert "split 'dev' is not in the dataset (it has test, train, valid)" in done.stderr
    program.write({"kind": "eval"}, program.inputs)
    done = program.run()
    assert done.returncode == 76
    assert "another tokenizer" in done.stderr
