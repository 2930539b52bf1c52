"""One optimizer step after another, until the last one, a request to stop, or a loss that is no number.

All ranks agree once a step, in one small all-reduce: on the loss, on whether it is finite, on
stopping and on saving. No rank decides alone. Import only after ``runtime.prepare()``.
``tests/models/test_pretrain.py`` holds it to exact resume and to draining.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.utils import get_batch_on_this_cp_rank

from resiliency.workload import Workload

from . import optim
from .data.stream import TrainingStream, micro_batches
from .runtime import Ranks
from .settings import Checkpoint, ResultRejected, Train
from .train_log import TrainLog


@dataclass
class Run:
    """Everything the loop works on."""

    ranks: Ranks
    control: Any  # gloo group of all ranks
    chunks: list[Any]
    optimizer: Any
    scheduler: Any
    stream: TrainingStream
    train: Train
    checkpoint: Checkpoint
    work: Workload
    log: TrainLog | None  # rank 0
    save: Callable[[int], float]  # step → seconds it took; collective
    step: int = 0
    consumed: int = 0  # samples


@dataclass(frozen=True)
class _Pulse:
    """What all ranks learn from each other at a step."""

    loss: float
    bad_ranks: int
    stop: bool
    save: bool


def train(run: Run) -> bool:
    """Train to the last step; False when asked to stop before (the state is then saved)."""
    last_save = time.monotonic()
    saved_at = run.step
    device = torch.device("cuda", torch.cuda.current_device()) if run.ranks.cuda else torch.device("cpu")
    for chunk in run.chunks:
        chunk.train()
    while run.step < run.train.steps:
        started = time.perf_counter()
        losses = _forward_backward(run, device)
        overdue = run.checkpoint.interval is None and time.monotonic() - last_save >= run.checkpoint.seconds
        pulse = _agree(run, losses, overdue)
        if pulse.bad_ranks:
            _reject(run, pulse, "loss", pulse.loss)
        lr = optim.learning_rate(run.optimizer)
        _, grad_norm, _ = run.optimizer.step()
        if grad_norm is None or not math.isfinite(float(grad_norm)):
            _reject(run, pulse, "gradient norm", float(grad_norm or math.nan))
        run.scheduler.step(increment=1)
        run.step += 1
        run.consumed += run.train.global_batch_size
        _tell(run, pulse.loss, float(grad_norm), lr, time.perf_counter() - started)
        last = run.step == run.train.steps
        if last or pulse.stop or pulse.save or _due(run):
            seconds = run.save(run.step)
            last_save, saved_at = time.monotonic(), run.step
            if run.log:
                run.log.pause(seconds)
        if pulse.stop and not last:
            return False
    if saved_at != run.step:
        raise AssertionError("the last step was not saved")
    return True


def _due(run: Run) -> bool:
    return run.checkpoint.interval is not None and run.step % run.checkpoint.interval == 0


def _forward_backward(run: Run, device: torch.device) -> list[torch.Tensor]:
    """Losses of this rank's micro-batches; empty except on the last pipeline stage."""
    settings = run.train
    run.stream.prepare(run.consumed, settings.global_batch_size)
    for chunk in run.chunks:
        chunk.zero_grad_buffer()
    run.optimizer.zero_grad()
    replicas = parallel_state.get_data_parallel_world_size()
    count = settings.global_batch_size // (settings.micro_batch_size * replicas)

    def batches() -> Iterator[dict[str, torch.Tensor]]:
        return micro_batches(
            run.stream, run.consumed, settings.global_batch_size, settings.micro_batch_size, device
        )

    single = len(run.chunks) == 1
    results = get_forward_backward_func()(
        forward_step_func=_forward,
        # Each virtual pipeline stage walks through the same micro-batches on its own.
        data_iterator=batches() if single else [batches() for _ in run.chunks],
        model=run.chunks,
        num_microbatches=count,
        seq_length=settings.seq_length,
        micro_batch_size=settings.micro_batch_size,
        decoder_seq_length=settings.seq_length,
        forward_only=False,
    )
    return [result["loss"] for result in results]


def _forward(batches: Iterator[dict[str, torch.Tensor]], model: Any) -> tuple[torch.Tensor, Any]:
    batch = get_batch_on_this_cp_rank(next(batches))
    output = model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"])
    return output, partial(_loss, batch["loss_mask"])


def _loss(mask: torch.Tensor, output: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Mean loss a token of the micro-batch.

    With context parallelism each rank has a part of the sequence. Megatron multiplies the loss by
    the number of parts, so the divisor must be the tokens of all parts: dividing by our own gives
    gradients that are too large by that factor, silently.
    """
    mask = mask.reshape(-1).float()
    total = torch.sum(output.float().reshape(-1) * mask)
    sums = torch.stack([total.detach(), mask.sum()])
    if parallel_state.get_context_parallel_world_size() > 1:
        dist.all_reduce(sums, group=parallel_state.get_context_parallel_group())
    return total / sums[1], {"loss": sums[0] / sums[1]}


def _agree(run: Run, losses: list[torch.Tensor], overdue: bool) -> _Pulse:
    # Replicas within a tensor or context group report the same loss: they weigh it equally.
    total = sum(float(loss) for loss in losses)
    facts = torch.tensor(
        [
            total if math.isfinite(total) else 0.0,
            float(len(losses)),
            0.0 if math.isfinite(total) else 1.0,
            float(run.work.should_stop()),
            # One clock decides: ranks' clocks differ.
            float(overdue and run.ranks.first),
        ],
        dtype=torch.float64,
    )
    dist.all_reduce(facts, group=run.control)
    summed, count, bad, stop, save = facts.tolist()
    return _Pulse(math.nan if bad else summed / count, int(bad), stop > 0, save > 0)


def _tell(run: Run, loss: float, grad_norm: float, lr: float, seconds: float) -> None:
    tokens = run.consumed * run.train.seq_length
    run.work.report(step=run.step, loss=loss, tokens=tokens)
    if run.log:
        run.log.step(
            {
                "step": run.step,
                "loss": loss,
                "lr": lr,
                "grad_norm": grad_norm,
                "consumed_samples": run.consumed,
                "tokens": tokens,
                "seconds": round(seconds, 6),
                "time": round(time.time(), 3),
            }
        )


def _reject(run: Run, pulse: _Pulse, what: str, value: float) -> None:
    """Stop on a number that is none, with the evidence; the last checkpoint is from before it."""
    first, last = run.consumed, run.consumed + run.train.global_batch_size - 1
    if run.log:
        run.log.flush()
    raise ResultRejected(
        f"the {what} is {value} at step {run.step + 1}"
        + (f" on {pulse.bad_ranks} of {run.ranks.world} ranks" if pulse.bad_ranks else "")
        + f" (samples {first} to {last}, learning rate {optim.learning_rate(run.optimizer):g})",
        hint="lower train.lr, lengthen train.warmup_steps, or look at those samples; "
        "the newest checkpoint is from before it",
    )
