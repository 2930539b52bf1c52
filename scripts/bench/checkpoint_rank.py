"""One rank of bench_checkpoint: saves and restores one state in all ways, in turns; rank 0 prints JSON.

Usage: checkpoint_rank.py SCRATCH ROUNDS PLAIN|DISTRIBUTED, under torchrun's variables. Not a bench itself.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from models import runtime
from models.layout import resolve_model
from models.settings import Checkpoint, Parallel, Train

#: 10.6 M parameters: 127 MB with the optimizer's state in single precision.
SHAPE = {
    "num_layers": 8,
    "hidden_size": 320,
    "ffn_hidden_size": 1024,
    "num_attention_heads": 4,
    "num_query_groups": 2,
}


def main(scratch: Path, rounds: int, kind: str) -> None:
    ranks = runtime.prepare(1)
    runtime.connect(ranks)
    parallel = Parallel(distributed_optimizer=kind == "DISTRIBUTED")
    runtime.split(parallel, 7)

    import torch
    import torch.distributed as dist

    from models import gpt, optim, recovery, state
    from models.checkpoint import CheckpointStore
    from models.local_tier import LocalTier
    from models.raw_state import RawState
    from models.saving import Saver
    from resiliency.workload import Workload

    train = Train(steps=10, precision="fp32", seq_length=64, threads=1)
    shape = resolve_model(SHAPE)
    config = gpt.transformer_config(shape, parallel, train)
    chunks = optim.wrap(config, gpt.build(config, shape, 320, train.seq_length), parallel)
    optimizer, scheduler = optim.build(chunks, parallel, train)
    for chunk in chunks:
        chunk.zero_grad_buffer()
        for parameter in chunk.parameters():
            parameter.main_grad.normal_()
    optim.step(optimizer)

    work, control = Workload(), dist.group.WORLD
    facts: dict[str, Any] = {"parallel": {}, "world_size": ranks.world}
    store = CheckpointStore(scratch / "checkpoints", keep=2)

    def collect() -> Any:
        return state.collect(chunks, optimizer, scheduler)

    beside = Saver(ranks, control, store, collect, facts, work)
    waiting = Saver(ranks, control, store, collect, facts, work, beside=False)
    beside.prepare()
    settings = Checkpoint(local_interval=1)
    raw = RawState(chunks, optimizer, scheduler)
    copies = LocalTier(ranks, control, raw, settings, "digest", work)
    copies.prepare()

    def slowest(seconds: float) -> float:
        worst = torch.tensor([seconds])
        dist.all_reduce(worst, op=dist.ReduceOp.MAX)
        return float(worst.item())

    def timed(what: Callable[[], Any]) -> float:
        dist.barrier()
        began = time.perf_counter()
        what()
        return slowest(time.perf_counter() - began)

    number = 0

    def megatron() -> None:
        nonlocal number
        number += 1
        directory = store.scratch(number, "peer")
        if ranks.first:
            directory.mkdir(parents=True)
        dist.barrier()
        state.save(directory, chunks, optimizer, scheduler)
        if ranks.first:
            store.commit(directory, number, {**facts, "consumed_samples": 0})
        dist.barrier()

    def ours(saver: Saver) -> float:
        nonlocal number
        number += 1
        return saver.start(number, 0)

    def settled() -> None:
        while True:
            words = torch.tensor(copies.words(), dtype=torch.float64)
            dist.all_reduce(words)
            copies.heard(words.tolist())
            if not words[0]:
                return
            time.sleep(0.005)

    def copy() -> None:
        nonlocal number
        number += 1
        copies.take_if_due(number, 0)

    def from_memory() -> None:
        tier = LocalTier(ranks, control, raw, settings, "digest", work)
        choice = tier.find(-1)
        assert choice is not None
        assert tier.restore(choice) is not None

    def verify() -> None:
        assert recovery._newest_good(ranks, control, store, work) is not None

    def load() -> None:
        state.load(store.path(store.steps()[0]), chunks, optimizer, scheduler, True)

    gc.freeze()  # as the program does
    taken: dict[str, list[float]] = {}
    settled()
    for _ in range(rounds + 1):
        row = {"megatron": timed(megatron), "waiting": timed(lambda: ours(waiting))}
        row["beside"] = timed(lambda: ours(beside))
        row["beside until committed"] = row["beside"] + timed(beside.finish)
        row["copy"] = timed(copy)
        row["copy until replicated"] = row["copy"] + timed(settled)
        row["verify"], row["load"], row["from memory"] = timed(verify), timed(load), timed(from_memory)
        if ranks.first:
            store.prune()
        for name, seconds in row.items():
            taken.setdefault(name, []).append(seconds)
    if ranks.first:
        figures: dict[str, Any] = {name: statistics.median(v[1:]) for name, v in taken.items()}
        # A machine with other work shows best what a thing costs by itself in its quickest round.
        figures["lowest"] = {name: round(min(v[1:]), 4) for name, v in taken.items()}
        path = store.path(store.steps()[0])
        figures["megabytes"] = sum(f.stat().st_size for f in path.iterdir()) / 1e6
        print(json.dumps(figures), flush=True)
    dist.barrier()
    shutil.rmtree(os.environ["TRAINMASTER_NODE_DIR"], ignore_errors=True)
    runtime.disconnect()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
