"""The forward and backward passes of one step, as a function of parameters, position and random streams.

Repeatable: :meth:`Compute.again` gives the same numbers unless hardware does not (``models.rerun``).
Import only after ``runtime.prepare()``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.utils import get_batch_on_this_cp_rank, get_model_config

from resiliency.workload import Workload

from .data.stream import TrainingStream, micro_batches
from .settings import Train


class Compute:
    """Losses and gradients of the step that starts after ``consumed`` samples."""

    def __init__(
        self,
        chunks: list[Any],
        optimizer: Any,
        stream: TrainingStream,
        train: Train,
        device: torch.device,
        work: Workload,
    ) -> None:
        self.chunks, self.optimizer, self.stream, self.train = chunks, optimizer, stream, train
        self._device, self._work = device, work
        self._streams: tuple[Any, ...] = ()
        self._mark_waits(work)

    def _mark_waits(self, work: Workload) -> None:
        """Tell when this rank waits for the others' gradients."""
        config = get_model_config(self.chunks[0])
        reduce: Callable[..., Any] = config.finalize_model_grads_func

        def marked(*arguments: Any, **named: Any) -> Any:
            with work.collective():
                return reduce(*arguments, **named)

        config.finalize_model_grads_func = marked

    def losses(self, consumed: int) -> list[torch.Tensor]:
        """Of this rank's micro-batches; empty except on the last pipeline stage. Collective."""
        began = time.perf_counter()
        self.stream.prepare(consumed, self.train.global_batch_size)
        self._work.waited("data", time.perf_counter() - began)
        self._streams = (
            torch.get_rng_state(),
            torch.cuda.get_rng_state(),
            tensor_parallel.get_cuda_rng_tracker().get_states(),
        )
        return self._pass(consumed)

    def again(self, consumed: int) -> list[torch.Tensor]:
        """The same once more, from the same random streams. Before the parameters change. Collective."""
        here, device, tracker = self._streams
        torch.set_rng_state(here)
        torch.cuda.set_rng_state(device)
        tensor_parallel.get_cuda_rng_tracker().set_states(tracker)
        return self._pass(consumed)

    def _pass(self, consumed: int) -> list[torch.Tensor]:
        settings = self.train
        for chunk in self.chunks:
            chunk.zero_grad_buffer()
        self.optimizer.zero_grad()
        replicas = parallel_state.get_data_parallel_world_size()
        count = settings.global_batch_size // (settings.micro_batch_size * replicas)

        def batches() -> Iterator[dict[str, torch.Tensor]]:
            found = micro_batches(
                self.stream, consumed, settings.global_batch_size, settings.micro_batch_size, self._device
            )
            return self._work.waiting("data", found)

        single = len(self.chunks) == 1
        results = get_forward_backward_func()(
            forward_step_func=_forward,
            # Each virtual pipeline stage walks through the same micro-batches on its own.
            data_iterator=batches() if single else [batches() for _ in self.chunks],
            model=self.chunks,
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
