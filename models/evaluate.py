"""The ``eval`` stage for a language model: held-out bits per byte, against two baselines.

``python -m models.evaluate --config stage.json``; needs a pretrain stage and the text stage it was
trained on. One process, whatever layout the checkpoint was saved with. Model and baselines predict
exactly the same held-out tokens (end-of-document tokens included), learn from the same train split,
and are divided by the same number of bytes. ``tests/models/test_evaluate.py`` holds it to that.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from resiliency import artifact
from resiliency.exitcodes import COMPLETE, PROGRESS_MADE

from . import prepare_text
from .checkpoint import KIND as CHECKPOINT
from .data.indexed import read_tokens
from .ngram import KneserNey3, unigram_nll
from .settings import ConfigFault, DataFault, Parallel, Train
from .stage import Stage, already_complete, main, say

KIND = "evaluation"
METHODS = {
    "model": "sliding windows of train.seq_length tokens, every token predicted once",
    "unigram": "token frequencies of the train split, add-one smoothed",
    "order3": "trigram of the train split, interpolated Kneser-Ney, one discount an order",
}


def run(stage: Stage) -> int:
    """Measure; exit code."""
    if stage.complete(KIND):
        return already_complete(stage, KIND)
    started = time.monotonic()
    data_dir, data = stage.input_of_kind(prepare_text.KIND)
    model_dir, trained = stage.input_of_kind(CHECKPOINT)
    split = str(stage.spec.get("split") or "test")
    if split not in data.meta["splits"]:
        raise ConfigFault(
            f"split {split!r} is not in the dataset (it has {', '.join(sorted(data.meta['splits']))})",
            hint="choose one of those, or give the text stage a fraction for it",
        )
    if trained.meta["data"]["tokenizer"] != data.files["tokenizer.json"]["sha256"]:
        raise DataFault(
            "the model was trained with another tokenizer than this dataset's",
            hint="evaluate on the text stage the model was trained on",
        )
    vocab, eod = int(data.meta["vocab_size"]), int(data.meta["eod"])
    size = int(data.meta["splits"][split]["bytes"])
    held, train = read_tokens(data_dir / split), read_tokens(data_dir / "train")
    held = np.asarray(held)
    say(f"eval: {len(held)} held-out tokens, {size} bytes ({split}); baselines on {len(train)} tokens")
    bits: dict[str, float] = {
        "unigram": _bits(unigram_nll(train, held, vocab), size),
        "order3": _bits(KneserNey3(train, vocab).nll(held, eod), size),
    }
    for name, value in bits.items():
        say(f"eval: {name}: {value:.4f} bits per byte")
    nll = _model_nll(stage, model_dir, trained, held, vocab, eod)
    if nll is None:
        say("eval: asked to stop; the next attempt starts over")
        return PROGRESS_MADE
    bits["model"] = _bits(nll, size)
    metrics = {
        "bits_per_byte": {name: round(value, 6) for name, value in bits.items()},
        "beats_unigram": bits["model"] < bits["unigram"],
        "beats_order3": bits["model"] < bits["order3"],
        "loss_per_token": round(float(nll.mean()), 6),
        "split": split,
        "tokens": len(held),
        "bytes": size,
        "train_tokens_of_baselines": len(train),
        "train_tokens_of_model": int(trained.meta["consumed_samples"]) * int(trained.meta["seq_length"]),
        "step": trained.meta["step"],
    }
    with stage.new_artifact(KIND, {"metrics": metrics}) as directory:
        result = {**metrics, "methods": METHODS, "seconds": round(time.monotonic() - started, 2)}
        (directory / "eval.json").write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    stage.work.event("eval.result", metrics=metrics)
    say(
        f"eval: model: {bits['model']:.4f} bits per byte at step {trained.meta['step']} "
        f"(unigram {bits['unigram']:.4f}, order 3 {bits['order3']:.4f}): {stage.artifact / 'eval.json'}"
    )
    return COMPLETE


def _bits(nll: np.ndarray[Any, Any], size: int) -> float:
    """Total negative log-likelihood in nats → bits per byte of text."""
    return float(nll.sum()) / math.log(2) / size


def windows(length: int, window: int, stride: int) -> list[tuple[int, int, int]]:
    """(start, end, first scored) over ``length`` inputs: each position scored exactly once.

    A window's inputs are [start, end), those from ``first scored`` on count; all but the first window
    have at least ``window − stride`` tokens of context before.
    """
    found = []
    scored = 0
    while scored < length:
        start = 0 if scored == 0 else max(0, scored - (window - stride))
        end = min(length, start + window)
        found.append((start, end, scored))
        scored = end
    return found


def _model_nll(
    stage: Stage,
    model_dir: Path,
    trained: artifact.Manifest,
    held: np.ndarray[Any, Any],
    vocab: int,
    eod: int,
) -> np.ndarray[Any, Any] | None:
    """Negative log-likelihood (nats) of each held-out token; None when asked to stop."""
    from . import runtime

    ranks = runtime.prepare(stage.spec.get("threads"))
    runtime.connect(ranks)
    try:
        runtime.split(Parallel(), seed=0)
        return _score(stage, model_dir, trained, held, vocab, eod, ranks.cuda)
    finally:
        runtime.disconnect()


def _score(
    stage: Stage,
    model_dir: Path,
    trained: artifact.Manifest,
    held: np.ndarray[Any, Any],
    vocab: int,
    eod: int,
    cuda: bool,
) -> np.ndarray[Any, Any] | None:
    import torch

    from . import gpt, state

    seq_length = int(trained.meta["seq_length"])
    settings = Train(steps=1, seq_length=seq_length, precision=str(trained.meta["precision"]))
    shape = trained.meta["model"]
    config = gpt.transformer_config(shape, Parallel(), settings)
    chunks = gpt.build(config, shape, vocab, seq_length)
    state.load_model(model_dir / str(trained.meta["checkpoint"]), chunks)
    model = chunks[0].eval()
    device = "cuda" if cuda else "cpu"
    stride = int(stage.spec.get("stride") or seq_length // 2)
    # The end-of-document token stands before the first document.
    stream = torch.from_numpy(np.concatenate([[eod], held.astype(np.int64)]))
    places = windows(len(held), seq_length, stride)
    result = np.zeros(len(held))
    positions = torch.arange(seq_length, device=device)
    batch = max(1, 4096 // seq_length)
    said = time.monotonic()
    for group in _same_length(places, batch):
        if stage.work.should_stop():
            return None
        tokens = torch.stack([stream[start : end + 1] for start, end, _ in group]).to(device)
        length = tokens.shape[1] - 1
        with torch.no_grad():
            losses = model(
                tokens[:, :-1], positions[:length].expand(len(group), -1), None, labels=tokens[:, 1:]
            )
        for row, (start, end, first) in zip(losses.float().cpu().numpy(), group, strict=True):
            result[first:end] = row[first - start :]
        stage.work.report(step=group[-1][1], section="eval")
        if time.monotonic() - said > 5:
            said = time.monotonic()
            say(f"eval: {group[-1][1]} of {len(held)} tokens")
    return result


def _same_length(places: list[tuple[int, int, int]], batch: int) -> list[list[tuple[int, int, int]]]:
    groups: list[list[tuple[int, int, int]]] = []
    for place in places:
        length = place[1] - place[0]
        if groups and len(groups[-1]) < batch and groups[-1][0][1] - groups[-1][0][0] == length:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


if __name__ == "__main__":
    sys.exit(main(run, "Evaluate a language model on held-out text."))
