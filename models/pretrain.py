"""The ``pretrain`` stage: a GPT on Megatron-Core, from a text stage's dataset to a final checkpoint.

``python -m models.pretrain --config stage.json``, one process a rank (torchrun, ft_launcher, srun) or
one process alone. Resumes from the newest checkpoint that verifies. On the same layout an interrupted
run gives the same losses as an uninterrupted one, to the last digit (``tests/models/test_pretrain.py``).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resiliency import artifact
from resiliency.exitcodes import COMPLETE, PROGRESS_MADE

from . import prepare_text
from .checkpoint import KIND, CheckpointStore, Good
from .layout import check_layout, data_parallel_size, resolve_model
from .settings import (
    CheckpointFault,
    ConfigFault,
    Parallel,
    Train,
    plain,
    read_checkpoint,
    read_parallel,
    read_train,
)
from .stage import Stage, already_complete, main, say

# What must not differ between a checkpoint and the stage that resumes from it.
_INIT_ONLY = {"init_method_std", "hidden_dropout", "attention_dropout"}


def run(stage: Stage) -> int:
    """Train, or go on training; exit code."""
    if stage.artifact.exists() and artifact.verifies(stage.artifact, kind=KIND, deep=False):
        return already_complete(stage, KIND)
    train = read_train(stage.section("train"))
    parallel = read_parallel(stage.section("parallel"))
    keep = read_checkpoint(stage.section("checkpoint"))
    data_dir, data = stage.input_of_kind(prepare_text.KIND)
    shape = _checked_shape(stage, parallel, train, int(data.meta["vocab_size"]))

    from . import runtime

    ranks = runtime.prepare(train.threads)
    runtime.connect(ranks)
    try:
        runtime.split(parallel, train.seed)
        return _train(stage, ranks, shape, parallel, train, keep, data_dir, data)
    finally:
        if sys.exc_info()[0] is None:  # after an error the other ranks may not come to say goodbye
            runtime.disconnect()


def _checked_shape(stage: Stage, parallel: Parallel, train: Train, vocab: int) -> dict[str, Any]:
    from .runtime import environment_ranks

    section = stage.section("model")
    world = environment_ranks()[1]
    faults = check_layout({**section, "vocab_size": vocab}, plain(parallel), world, plain(train))
    if section.get("vocab_size") not in (None, vocab):
        faults.append(f"model.vocab_size is {section['vocab_size']}, the dataset's is {vocab}: leave it out")
    if faults:
        raise ConfigFault("; ".join(faults), hint="correct model, parallel, train or resources")
    return resolve_model({**section, "vocab_size": vocab})


def _train(
    stage: Stage,
    ranks: Any,
    shape: dict[str, Any],
    parallel: Parallel,
    train: Train,
    keep: Any,
    data_dir: Path,
    data: artifact.Manifest,
) -> int:
    import torch.distributed as dist

    from . import gpt, optim, runtime, state
    from .data.stream import TokenIds, TrainingStream
    from .train_log import TrainLog, metrics_path
    from .train_loop import Run
    from .train_loop import train as loop

    control = runtime.control_group(ranks)
    store = CheckpointStore(stage.directory / "checkpoints", keep.keep)
    stage.work.report(step=0, section="setup")
    if ranks.first:
        stage.complete(KIND)  # sets a damaged artifact aside
    config = gpt.transformer_config(shape, parallel, train)
    chunks = gpt.build(config, shape, int(data.meta["vocab_size"]), train.seq_length)
    parameters = gpt.parameter_count(chunks)
    wrapped = optim.wrap(config, chunks, parallel)
    optimizer, scheduler = optim.build(wrapped, parallel, train)
    identity = data.files["tokenizer.json"]["sha256"]
    tokens = TokenIds(int(data.meta["vocab_size"]), int(data.meta["eod"]), identity)
    cache = stage.directory / "data-cache"
    stream = TrainingStream([data_dir / "train"], tokens, train.seq_length, train.seed, cache)
    if ranks.first:
        say(f"pretrain: {ranks.layers}")
        say(
            f"pretrain: {parameters} parameters on each of {ranks.world} ranks, "
            f"{data_parallel_size(plain(parallel), ranks.world)} data-parallel, {train.precision}, "
            f"{stream.samples_per_epoch} sequences of {train.seq_length} tokens an epoch"
        )
    else:
        _ = stream.samples_per_epoch  # collective

    facts = {
        "model": shape,
        "parallel": plain(parallel),
        "world_size": ranks.world,
        "data": {"train_bin": data.files["train.bin"]["sha256"], "tokenizer": identity},
        "seq_length": train.seq_length,
        "seed": train.seed,
        "precision": train.precision,
    }

    def save(step: int) -> float:
        started = time.monotonic()
        stage.work.report(step=step, section="checkpoint")
        directory: list[Path | None] = [store.begin(step) if ranks.first else None]
        dist.broadcast_object_list(directory, src=0, group=control)
        assert directory[0] is not None
        state.save(directory[0], wrapped, optimizer, scheduler)
        dist.barrier(group=control)
        if ranks.first:
            meta = {**facts, "consumed_samples": current.consumed}
            path, size = store.commit(directory[0], step, meta)
            seconds = round(time.monotonic() - started, 3)
            if log:
                log.flush()
            stage.work.event("checkpoint.committed", step=step, path=str(path), bytes=size, seconds=seconds)
            say(f"pretrain: checkpoint at step {step}: {size / 1e6:.1f} MB in {seconds:.2f} s")
            for old in store.prune():
                say(f"pretrain: removed the checkpoint of step {old}")
        dist.barrier(group=control)
        return time.monotonic() - started

    log = None
    if ranks.first:
        path = metrics_path(stage.directory, stage.work.attempt)
        log = TrainLog(path, train.steps, train.log_interval, train.global_batch_size)
    current = Run(ranks, control, wrapped, optimizer, scheduler, stream, train, keep, stage.work, log, save)
    good = _find(stage, store, ranks, control)
    if good is not None:
        _must_match(good, facts)
        same = good.meta["parallel"] == facts["parallel"] and good.meta["world_size"] == ranks.world
        state.load(good.path, wrapped, optimizer, scheduler, same)
        current.step, current.consumed = good.step, int(good.meta["consumed_samples"])
        if ranks.first:
            layout = "" if same else " (saved with another layout: random streams start anew)"
            say(f"pretrain: resumed at step {good.step} from {good.path}{layout}")
            stage.work.event("workload.resumed", step=good.step, checkpoint=str(good.path))

    finished = loop(current)
    if ranks.first:
        if log:
            log.flush()
        if finished:
            _publish(stage, store, current.step, data_dir)
            say(f"pretrain: complete at step {current.step}: {stage.artifact}")
        else:
            say(f"pretrain: asked to stop; step {current.step} is saved")
        stage.work.flush()
    dist.barrier(group=control)  # nobody exits (and gets the others killed) before rank 0 is done
    return COMPLETE if finished else PROGRESS_MADE


def _find(stage: Stage, store: CheckpointStore, ranks: Any, control: Any) -> Good | None:
    """Rank 0 looks, everybody gets the answer."""
    import torch.distributed as dist

    def damaged(path: Path, reason: str) -> None:
        say(f"pretrain: a checkpoint does not verify ({reason}): set aside as {path.name}")
        stage.work.event("checkpoint.quarantined", path=str(path), reason=reason)

    answer = [store.newest_good(damaged) if ranks.first else None]
    dist.broadcast_object_list(answer, src=0, group=control)
    return answer[0]


def _must_match(good: Good, facts: Mapping[str, Any]) -> None:
    faults = []
    mine, theirs = facts["model"], good.meta["model"]
    for key in sorted((mine.keys() | theirs.keys()) - _INIT_ONLY):
        if mine.get(key) != theirs.get(key):
            faults.append(f"model.{key} is {theirs.get(key)} there, {mine.get(key)} here")
    if good.meta["data"]["tokenizer"] != facts["data"]["tokenizer"]:
        faults.append("the tokenizer is another one")
    elif good.meta["data"]["train_bin"] != facts["data"]["train_bin"]:
        faults.append("the training data changed, its position means nothing")
    for key in ("seq_length", "seed", "precision"):
        if good.meta[key] != facts[key]:
            faults.append(f"train.{key} is {good.meta[key]} there, {facts[key]} here")
    # Megatron stores the optimizer's state under other keys: it cannot be resharded over these.
    for key in ("distributed_optimizer", "expert"):
        there, here = good.meta["parallel"][key], facts["parallel"][key]
        if there != here:
            faults.append(f"parallel.{key} is {there} there, {here} here")
    if faults:
        raise CheckpointFault(
            f"{good.path} does not match this stage: {'; '.join(faults)}",
            hint="resume with the settings it was saved with, or start in a new run",
        )


def _publish(stage: Stage, store: CheckpointStore, step: int, data_dir: Path) -> None:
    """The stage's artifact: the final checkpoint (hard links where possible) and the tokenizer."""
    source = store.path(step)
    meta = dict(artifact.load(source).meta)
    meta.update(checkpoint="checkpoint", tokenizer="tokenizer.json", saved_as=str(source))
    with stage.new_artifact(KIND, meta) as directory:
        shutil.copytree(
            source,
            directory / "checkpoint",
            copy_function=_link,
            ignore=shutil.ignore_patterns(artifact.MANIFEST),
        )
        shutil.copy2(data_dir / "tokenizer.json", directory / "tokenizer.json")
        (directory / "model.json").write_text(json.dumps(meta, indent=1, sort_keys=True) + "\n")


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)
    return target


if __name__ == "__main__":
    sys.exit(main(run, "Pre-train a GPT."))
