"""One optimizer step after another, until the last one, a request to stop, or a loss that is no number.

All ranks agree once a step, in one small all-reduce: on the loss, on whether it is finite, on stopping, on
saving, and on how the save and the copies that are under way come along. No rank decides alone. Import only
after ``runtime.prepare()``. ``tests/models/test_pretrain.py`` holds it to exact resume and to draining.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from resiliency import faults
from resiliency.workload import Workload

from . import optim, rerun
from .cadence import Cadence
from .compute import Compute
from .local_tier import LocalTier
from .runtime import TIMING, Ranks
from .saving import WORDS, Saver
from .settings import Checkpoint, Train
from .train_log import TrainLog


@dataclass
class Run:
    """Everything the loop works on."""

    ranks: Ranks
    control: Any  # gloo group of all ranks
    compute: Compute
    optimizer: Any
    scheduler: Any
    train: Train
    checkpoint: Checkpoint
    work: Workload
    log: TrainLog | None  # rank 0
    saver: Saver
    copies: LocalTier
    cadence: Cadence
    step: int = 0
    consumed: int = 0  # samples
    saved: int | None = None  # step that is in a checkpoint, or on its way into one
    began: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class _Pulse:
    """What all ranks learn from each other at a step."""

    loss: float
    bad_ranks: int
    stop: bool
    save: bool
    saver: Sequence[float]
    copies: Sequence[float]


def train(run: Run) -> bool:
    """Train to the last step; False when asked to stop before. The state is then saved."""
    for chunk in run.compute.chunks:
        chunk.train()
    run.work.report(step=run.step, section="compile")  # the first step takes longer than any other
    first, due = True, False
    while run.step < run.train.steps:
        started = time.perf_counter()
        faults.at_step(run.step + 1)
        losses = _sum(run.compute.losses(run.consumed))
        pulse = _agree(run, losses)
        run.saver.heard(pulse.saver)
        run.copies.heard(pulse.copies)
        if pulse.bad_ranks:
            rerun.judge_loss(run, losses, pulse.loss)
        lr = optim.learning_rate(run.optimizer)
        grad_norm = optim.step(run.optimizer)
        if not math.isfinite(grad_norm):
            rerun.judge_norm(run, losses, grad_norm)
        run.scheduler.step(increment=1)
        run.step += 1
        run.consumed += run.train.global_batch_size
        _tell(run, pulse.loss, grad_norm, lr, time.perf_counter() - started)
        if first:
            first = False
            _first_step_done(run, time.perf_counter() - started)
        last = run.step == run.train.steps
        if last or pulse.stop:
            _save_last(run)
            return last
        due = _save_if_due(run, due or pulse.save or _due(run))
        run.copies.take_if_due(run.step, run.consumed)
    if run.saved != run.step:  # the last step came from copies in memory: no checkpoint has it yet
        _save_last(run)
    return True


def _first_step_done(run: Run, seconds: float) -> None:
    TIMING.add("first_step", seconds)
    run.work.timing(TIMING.phases, run.step)
    run.saver.prepare()
    run.copies.prepare()


def _due(run: Run) -> bool:
    return run.checkpoint.interval is not None and run.step % run.checkpoint.interval == 0


def _save_if_due(run: Run, due: bool) -> bool:
    """Start a save that is due unless one is under way; whether it still has to be done."""
    if not due or run.saver.busy:
        if due:
            run.cadence.waits(run.step)
        return due
    _save(run)
    return False


def _save_last(run: Run) -> None:
    """What this run leaves behind: this very step, committed before anybody leaves."""
    run.saver.finish()
    if run.saved != run.step:
        _save(run)
        run.saver.finish()


def _save(run: Run) -> None:
    if run.log:
        run.log.flush()
    stall = run.saver.start(run.step, run.consumed)
    run.saved = run.step
    run.cadence.started(stall)
    if run.log:
        run.log.pause(stall)


def _sum(losses: list[torch.Tensor]) -> rerun.Sum:
    return rerun.Sum(sum(float(loss) for loss in losses), len(losses))


def _agree(run: Run, losses: rerun.Sum) -> _Pulse:
    # Replicas within a tensor or context group report the same loss: they weigh it equally.
    total = faults.loss(losses.total)
    losses.rehearsed = total != losses.total and math.isfinite(losses.total)
    losses.total = total
    facts = torch.tensor(
        [
            total if math.isfinite(total) else 0.0,
            float(losses.count),
            0.0 if math.isfinite(total) else 1.0,
            float(run.work.should_stop()),
            # One clock decides: ranks' clocks differ.
            float(run.ranks.first and run.cadence.overdue(run.step, run.saver)),
            *run.saver.words(),
            *run.copies.words(),
        ],
        dtype=torch.float64,
    )
    with run.work.collective():
        dist.all_reduce(facts, group=run.control)
    summed, count, bad, stop, save, *rest = facts.tolist()
    return _Pulse(
        math.nan if bad else summed / count, int(bad), stop > 0, save > 0, rest[:WORDS], rest[WORDS:]
    )


def _tell(run: Run, loss: float, grad_norm: float, lr: float, seconds: float) -> None:
    tokens = run.consumed * run.train.seq_length
    run.work.report(step=run.step, loss=loss, tokens=tokens)
    run.cadence.stepped(seconds)
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
