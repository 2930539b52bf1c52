"""The ``pretrain`` stage: a GPT on Megatron-Core, from a text stage's dataset to a final checkpoint.

``python -m models.pretrain --config stage.json``, one process a rank (torchrun, ft_launcher, srun) or
one process alone. Resumes from the newest checkpoint that verifies. On the same layout an interrupted
run gives the same losses as an uninterrupted one, to the last digit (``tests/models/test_pretrain.py``).
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from resiliency import artifact
from resiliency.exitcodes import COMPLETE, PROGRESS_MADE
from resiliency.fence import Fence

from . import prepare_text
from .checkpoint import KIND, CheckpointStore, Good
from .layout import check_layout, data_parallel_size, resolve_model
from .settings import (
    Checkpoint,
    ConfigFault,
    Parallel,
    Train,
    plain,
    read_checkpoint,
    read_parallel,
    read_train,
)
from .stage import Stage, already_complete, main, say


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
    keep: Checkpoint,
    data_dir: Path,
    data: artifact.Manifest,
) -> int:
    import torch
    import torch.distributed as dist

    from . import cadence, gpt, optim, recovery, runtime, state
    from .compute import Compute
    from .data.stream import TokenIds, TrainingStream
    from .local_tier import LocalTier
    from .raw_state import RawState
    from .saving import Saver
    from .train_log import TrainLog, metrics_path
    from .train_loop import Run
    from .train_loop import train as loop

    work, timing = stage.work, runtime.TIMING
    fence = Fence.from_env()
    with timing.phase("groups"):
        control = runtime.control_group(ranks)
    if ranks.first:
        fence.check()
        stage.complete(KIND)  # sets a damaged artifact aside
    work.report(step=0, section="model")
    with timing.phase("model"):
        config = gpt.transformer_config(shape, parallel, train)
        chunks = gpt.build(config, shape, int(data.meta["vocab_size"]), train.seq_length)
        parameters = gpt.parameter_count(chunks)
        wrapped = optim.wrap(config, chunks, parallel)
        optimizer, scheduler = optim.build(wrapped, parallel, train)
    work.report(step=0, section="data")
    with timing.phase("data"):
        identity = data.files["tokenizer.json"]["sha256"]
        tokens = TokenIds(int(data.meta["vocab_size"]), int(data.meta["eod"]), identity)
        cache = stage.directory / "data-cache"
        stream = TrainingStream([data_dir / "train"], tokens, train.seq_length, train.seed, cache)
        epoch = stream.samples_per_epoch  # collective
    if ranks.first:
        say(f"pretrain: {ranks.layers}")
        say(
            f"pretrain: {parameters} parameters on each of {ranks.world} ranks, "
            f"{data_parallel_size(plain(parallel), ranks.world)} data-parallel, {train.precision}, "
            f"{epoch} sequences of {train.seq_length} tokens an epoch"
        )

    facts = {
        "model": shape,
        "parallel": plain(parallel),
        "world_size": ranks.world,
        "data": {"train_bin": data.files["train.bin"]["sha256"], "tokenizer": identity},
        "seq_length": train.seq_length,
        "seed": train.seed,
        "precision": train.precision,
    }
    store = CheckpointStore(stage.directory / "checkpoints", keep.keep)
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()
    work.report(step=0, section="load")
    gc.freeze()  # Megatron collects garbage as it loads: not through all that was imported and built
    with timing.phase("load"):
        copies = LocalTier(ranks, control, RawState(wrapped, optimizer, scheduler), keep, digest, work)

        def load(good: Good, same: bool) -> None:
            state.load(good.path, wrapped, optimizer, scheduler, same)

        found = recovery.resume(ranks, control, store, copies, facts, load, work)
    log = None
    if ranks.first:
        path = metrics_path(stage.directory, work.attempt)
        log = TrainLog(path, train.steps, train.log_interval, train.global_batch_size)
    saver = Saver(
        ranks, control, store, lambda: state.collect(wrapped, optimizer, scheduler), facts, work,
        beside=keep.async_, fence=fence,
    )  # fmt: skip
    device = torch.device("cuda", torch.cuda.current_device()) if ranks.cuda else torch.device("cpu")
    compute = Compute(wrapped, optimizer, stream, train, device, work)
    current = Run(
        ranks, control, compute, optimizer, scheduler, train, keep, work, log, saver, copies,
        cadence.from_run(keep, work),
    )  # fmt: skip
    if found is not None:
        current.step, current.consumed, current.saved = found
    gc.freeze()  # so that a collection amid a step does not go through all that setting up has made
    try:
        finished = loop(current)
    finally:
        if sys.exc_info()[0] is not None:
            saver.give_up()
    copies.close()
    if ranks.first:
        if log:
            log.flush()
        if finished:
            fence.check()
            _publish(stage, store, current.step, data_dir)
            say(f"pretrain: complete at step {current.step}: {stage.artifact}")
        else:
            say(f"pretrain: asked to stop; step {current.step} is saved")
        work.flush()
    dist.barrier(group=control)  # nobody exits (and gets the others killed) before rank 0 is done
    return COMPLETE if finished else PROGRESS_MADE


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
