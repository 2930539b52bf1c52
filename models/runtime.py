"""Ranks, device and process groups of a training program, from the launcher's environment.

Works under torchrun, ft_launcher and srun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_*) and as one plain
process. Without CUDA everything runs on gloo. Import megatron only after ``prepare()``.
"""

from __future__ import annotations

import datetime
import os
import warnings
from dataclasses import dataclass
from typing import Any

from .settings import Parallel


@dataclass(frozen=True)
class Ranks:
    """Where this process stands. ``cuda`` says which of the two paths it takes."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    cuda: bool
    layers: str  # which layer implementation, and why

    @property
    def first(self) -> bool:
        return self.rank == 0


def environment_ranks() -> tuple[int, int, int, int]:
    """(rank, world size, local rank, local world size), all of one process when unset."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    return (
        int(os.environ.get("RANK", "0")),
        world,
        int(os.environ.get("LOCAL_RANK", "0")),
        int(os.environ.get("LOCAL_WORLD_SIZE", str(world))),
    )


def prepare(threads: int | None = None) -> Ranks:
    """Set threads and device, guard Transformer Engine, patch for CPU. Before any megatron import.

    The number of threads decides the order of floating-point sums: exact resume needs the same
    number each time, so it is fixed here and never left to the machine's load.
    """
    import torch

    from . import te_guard

    rank, world, local_rank, local_world = environment_ranks()
    cuda = torch.cuda.is_available()
    if not cuda:
        wanted = threads or int(os.environ.get("OMP_NUM_THREADS", "0"))
        cores = len(os.sched_getaffinity(0))
        torch.set_num_threads(wanted or max(1, cores // max(1, local_world)))
    _, why = te_guard.choose()
    with warnings.catch_warnings():
        # "Apex is not installed …" and the like, once per module and rank.
        warnings.simplefilter("ignore")
        import megatron.core  # noqa: F401

        from . import cpu_shim

        if cuda:
            torch.cuda.set_device(local_rank % torch.cuda.device_count())
        else:
            cpu_shim.install()
    return Ranks(rank, world, local_rank, local_world, cuda, why)


def connect(ranks: Ranks, timeout_minutes: float = 10) -> None:
    """Join the world's process group; a single process needs no port and no launcher."""
    import torch.distributed as dist

    backend = "nccl" if ranks.cuda else "gloo"
    timeout = datetime.timedelta(minutes=timeout_minutes)
    if "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ and "RANK" in os.environ:
        dist.init_process_group(backend, timeout=timeout)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)


def split(parallel: Parallel, seed: int) -> None:
    """Megatron's process groups, and one seed for every random stream."""
    import numpy
    import torch
    from megatron.core import parallel_state, tensor_parallel

    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=parallel.tensor,
        pipeline_model_parallel_size=parallel.pipeline,
        virtual_pipeline_model_parallel_size=(
            parallel.virtual_pipeline if parallel.virtual_pipeline > 1 else None
        ),
        context_parallel_size=parallel.context,
        expert_model_parallel_size=parallel.expert,
    )
    # As Megatron-LM: pipeline stages draw different weights, replicas the same.
    stage_seed = seed + 100 * parallel_state.get_pipeline_model_parallel_rank()
    numpy.random.seed(stage_seed % 2**32)
    torch.manual_seed(stage_seed)
    tensor_parallel.model_parallel_cuda_manual_seed(stage_seed)


def disconnect() -> None:
    """Leave the process groups; safe to call when never joined."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def control_group(ranks: Ranks) -> Any:
    """A gloo group of all ranks for small decisions: CPU tensors, no device stream involved."""
    import torch.distributed as dist

    return dist.group.WORLD if not ranks.cuda else dist.new_group(backend="gloo")
