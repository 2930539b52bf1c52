"""A second look at a number that is none: the same step once more, from the same inputs and parameters.

If it comes out differently, hardware is suspected: exit 16, run elsewhere, with both values and whose
they are. If it comes out the same, the result itself is wrong: exit 17, stop. The idea is Megatron-LM's
rerun state machine, for the one case that ends a run anyway. ``tests/models/test_rerun.py``.
Import only after ``runtime.prepare()``.
"""

from __future__ import annotations

import math
import os
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import torch.distributed as dist

from resiliency import contract

from . import optim
from .settings import RerunElsewhere, ResultRejected

if TYPE_CHECKING:
    from .train_loop import Run


@dataclass
class Sum:
    """Of this rank's losses in one step, over ``count`` micro-batches."""

    total: float
    count: int
    rehearsed: bool = False  # a rehearsal made it what it is: it stays so


def _bits(value: float) -> bytes:
    # One NaN is as good as another; infinities have their sign.
    return b"nan" if math.isnan(value) else struct.pack("<d", value)


def judge_loss(run: Run, first: Sum, loss: float) -> NoReturn:
    """The loss is no number on some rank. Collective; raises RerunElsewhere or ResultRejected."""
    second = sum(float(loss) for loss in run.compute.again(run.consumed))
    if first.rehearsed:
        second = first.total
    _judge(run, "loss", first.total, second, loss, mine=_bits(first.total) != _bits(second))


def judge_norm(run: Run, losses: Sum, norm: float) -> NoReturn:
    """The gradient norm is no number; nothing was changed by it. Collective; raises as judge_loss."""
    second = sum(float(loss) for loss in run.compute.again(run.consumed))
    again = optim.norm_of_gradients(run.optimizer)
    # The norm is everybody's: only another loss tells whose fault it was.
    _judge(run, "gradient norm", norm, again, norm, mine=_bits(second) != _bits(losses.total))


def _judge(run: Run, what: str, one: float, two: float, shown: float, mine: bool) -> NoReturn:
    node = os.environ.get(contract.ENV_NODE) or socket.gethostname()
    word = (run.ranks.rank, node, one, two, mine or _bits(one) != _bits(two), mine)
    everybody: list[Any] = [None] * run.ranks.world
    dist.all_gather_object(everybody, word, group=run.control)
    bad = sum(not math.isfinite(word[2]) for word in everybody)
    first_sample, last_sample = run.consumed, run.consumed + run.train.global_batch_size - 1
    place = (
        f"at step {run.step + 1}"
        + (f" on {bad} of {run.ranks.world} ranks" if what == "loss" else "")
        + f" (samples {first_sample} to {last_sample}, "
        + f"learning rate {optim.learning_rate(run.optimizer):g})"
    )
    if run.log:
        run.log.flush()
    run.saver.finish()  # what is being saved is from before it
    differing = [word for word in everybody if word[4]]
    if differing:
        whose = next((word for word in differing if word[5]), None)
        values = "; ".join(f"rank {w[0]} on {w[1]}: {w[2]!r} then {w[3]!r}" for w in differing[:4])
        raise RerunElsewhere(
            f"the {what} is {shown} {place}, and not the same when computed again: {values}",
            hint="the next attempt runs elsewhere, from the newest checkpoint",
            rank=whose[0] if whose else None,
            node=whose[1] if whose else None,
            culprit=mine,
        )
    raise ResultRejected(
        f"the {what} is {shown} {place}; computed again it is the same",
        hint="lower train.lr, lengthen train.warmup_steps, or look at those samples; "
        "the newest checkpoint is from before it",
    )
