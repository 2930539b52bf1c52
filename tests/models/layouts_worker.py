"""Runs under torchrun with two ranks: several layouts from one checkpoint, printed as JSON.

Not a test itself; ``test_layouts.py`` starts it and judges what rank 0 prints.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from models import runtime
from models.layout import resolve_model
from models.settings import Checkpoint, Parallel, Train, plain

TRAIN = Train(
    steps=40,
    global_batch_size=8,
    micro_batch_size=2,
    seq_length=32,
    lr=2e-3,
    precision="fp32",
    threads=1,
)
DENSE: dict[str, Any] = {
    "num_layers": 4,
    "hidden_size": 32,
    "ffn_hidden_size": 64,
    "num_attention_heads": 4,
    "num_query_groups": 2,
}
EXPERTS = {**DENSE, "num_moe_experts": 4, "moe_router_topk": 2, "moe_aux_loss_coeff": 0.0}
STEPS = 3


def main(dataset: Path, scratch: Path) -> None:
    ranks = runtime.prepare(1)
    runtime.connect(ranks)
    results: dict[str, Any] = {}

    def case(
        name: str,
        shape: dict[str, Any],
        load: str | None,
        save: str | None = None,
        weights_only: bool = False,
        **split: Any,
    ) -> None:
        parallel = Parallel(**split)
        results[name] = run_case(ranks, dataset, scratch, shape, parallel, load, save, weights_only)

    case("data parallel", DENSE, None, "start")
    case("again", DENSE, "start")
    case("again, ours", DENSE, "start-ours")
    case("tensor", DENSE, "start", tensor=2)
    case("tensor and sequence", DENSE, "start", "tensor", tensor=2, sequence=True)
    case("pipeline", DENSE, "start", "pipeline", pipeline=2)
    case("interleaved pipeline", DENSE, "start", "interleaved", pipeline=2, virtual_pipeline=2)
    case("context", DENSE, "start", "context", context=2)
    case("distributed optimizer", DENSE, None, "sharded", distributed_optimizer=True)
    case("distributed optimizer, loaded", DENSE, "sharded", distributed_optimizer=True)
    case("distributed optimizer, loaded, ours", DENSE, "sharded-ours", distributed_optimizer=True)
    case("distributed optimizer, tensor", DENSE, "sharded-ours", "both", tensor=2, distributed_optimizer=True)
    case("experts", EXPERTS, None, "experts")
    case("experts, weights only", EXPERTS, "experts", weights_only=True)
    case("experts split, weights only", EXPERTS, "experts", weights_only=True, expert=2)
    if ranks.first:
        print("RESULTS " + json.dumps(results), flush=True)
    runtime.disconnect()


def run_case(
    ranks: Any,
    dataset: Path,
    scratch: Path,
    model: dict[str, Any],
    parallel: Parallel,
    load: str | None,
    save: str | None,
    weights_only: bool,
) -> dict[str, Any]:
    """Two steps, a save or a load of that state, then ``STEPS`` steps: their losses and norms."""
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state, tensor_parallel

    from models import gpt, optim, state
    from models.cadence import Cadence
    from models.compute import Compute
    from models.data.stream import TokenIds, TrainingStream
    from models.local_tier import LocalTier
    from models.raw_state import RawState
    from models.train_loop import Run, train
    from resiliency.workload import Workload

    tensor_parallel.get_cuda_rng_tracker().reset()
    runtime.split(parallel, seed=7)
    shape = resolve_model(model)
    config = gpt.transformer_config(shape, parallel, TRAIN)
    chunks = optim.wrap(config, gpt.build(config, shape, 320, TRAIN.seq_length), parallel)
    optimizer, scheduler = optim.build(chunks, parallel, TRAIN)
    tokens = TokenIds(320, 0, "test")
    stream = TrainingStream([dataset / "train"], tokens, TRAIN.seq_length, 3, scratch / "cache")
    rows: list[dict[str, Any]] = []

    class Log:
        def step(self, record: dict[str, Any]) -> None:
            rows.append(record)

        def pause(self, seconds: float) -> None: ...
        def flush(self) -> None: ...

    keep = Checkpoint(interval=1000)
    control, work = dist.group.WORLD, Workload()
    compute = Compute(chunks, optimizer, stream, TRAIN, torch.device("cpu"), work)
    copies = LocalTier(ranks, control, RawState(chunks, optimizer, scheduler), keep, "", work)
    log: Any = Log()
    run = Run(
        ranks, control, compute, optimizer, scheduler, TRAIN, keep, work, log, NoSaves(), copies,
        Cadence(keep, work),
    )  # fmt: skip

    def go(steps: int) -> None:
        run.train = Train(**{**plain(TRAIN), "steps": run.step + steps})
        train(run)

    shared = None
    if load is None:
        go(2)
    elif weights_only:
        state.load_model(scratch / load, chunks)
    else:
        counted = []
        original = optim.unshare_steps
        optim.unshare_steps = lambda o: counted.append(original(o)) or counted[-1]  # type: ignore[func-returns-value]
        state.load(scratch / load, chunks, optimizer, scheduler, same_layout=False)
        optim.unshare_steps = original
        shared = counted[0]
        run.step, run.consumed = 2, 2 * TRAIN.global_batch_size
    same_files = None
    if save is not None:
        same_files = write_both(ranks, scratch / save, chunks, optimizer, scheduler)
    rows.clear()
    go(STEPS)
    steps = [s["step"] for inner in optim.inner_optimizers(optimizer) for s in inner.state.values()]
    result = {
        "losses": [row["loss"] for row in rows],
        "norms": [row["grad_norm"] for row in rows],
        "steps": sorted({float(step) for step in steps}),
        "distinct": len({id(step) for step in steps}) == len(steps),
        "shared_after_load": shared,
        "same_files": same_files,
    }
    del torch
    parallel_state.destroy_model_parallel()
    return result


class NoSaves:
    """A saver with nothing to do."""

    busy, stall_s, save_s = False, None, None

    def words(self) -> list[float]:
        return [0.0] * 7

    def heard(self, sums: Any) -> None: ...
    def prepare(self) -> None: ...
    def finish(self) -> None: ...
    def start(self, step: int, consumed: int) -> float:
        return 0.0


def write_both(ranks: Any, directory: Path, chunks: Any, optimizer: Any, scheduler: Any) -> bool:
    """Save by Megatron's writer and by ours (``…-ours``); whether all tensors in them are the same."""
    import torch.distributed as dist
    from megatron.core import dist_checkpointing

    from models import dcp_files, state

    ours = directory.with_name(f"{directory.name}-ours")
    if ranks.first:
        directory.mkdir()
    dist.barrier()
    state.save(directory, chunks, optimizer, scheduler)
    found = state.collect(chunks, optimizer, scheduler)
    tensors = [piece.data for piece in found.tensors]
    dcp_files.write_rank(ours, ranks.rank, found.tensors, tensors, dcp_files.pack(found.objects))
    dist.barrier()
    if ranks.first:
        dcp_files.finish(ours, ranks.world, found.common)
    dist.barrier()
    theirs, mine = (dict(flat(dist_checkpointing.load_plain_tensors(str(d)))) for d in (directory, ours))
    return theirs.keys() == mine.keys() and all(mine[key].equal(theirs[key]) for key in theirs)


def flat(value: Any, name: str = "") -> Any:
    """Tensors below a nested state, by path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(inner, f"{name}/{key}")
    elif isinstance(value, (list, tuple)):
        yield from flat(dict(enumerate(value)), name)
    elif hasattr(value, "equal"):
        yield name, value


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
