"""Ranks, device and process groups of a training program, from the launcher's environment.

Works under torchrun, ft_launcher and srun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_*) and as one plain
process. Without CUDA everything runs on gloo. Import megatron only after ``prepare()``.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .settings import Parallel

#: After this, torch waits for rank 0 in its own way, and says so.
_STORE_S = 20.0


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


class Timing:
    """Seconds of what lies between the start of this process and its first step, by name.

    A phase entered again adds up. Phases inside one another are told apart by whoever names them.
    """

    def __init__(self) -> None:
        self.phases: dict[str, float] = {}

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.add(name, time.monotonic() - began)

    def add(self, name: str, seconds: float) -> None:
        self.phases[name] = round(self.phases.get(name, 0.0) + seconds, 3)


#: This process's. ``prepare`` fills in ``python`` and ``imports``, ``connect`` and ``split`` ``groups``.
TIMING = Timing()


def process_age() -> float:
    """Seconds since this process was started, or forked by the warm server."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # starttime, since boot (proc(5))
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)


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
    if "python" not in TIMING.phases:
        TIMING.add("python", process_age())
    with TIMING.phase("imports"):
        return _prepare(threads)


def _prepare(threads: int | None) -> Ranks:
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
    with TIMING.phase("groups"):
        _connect(ranks, timeout_minutes)


def _connect(ranks: Ranks, timeout_minutes: float) -> None:
    import torch.distributed as dist

    backend = "nccl" if ranks.cuda else "gloo"
    timeout = datetime.timedelta(minutes=timeout_minutes)
    if "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ and "RANK" in os.environ:
        _wait_for_store(ranks)
        dist.init_process_group(backend, timeout=timeout)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)


def _wait_for_store(ranks: Ranks) -> None:
    """Until rank 0 listens: torch, refused once, asks again only after a whole second."""
    if ranks.first or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    deadline = time.monotonic() + _STORE_S
    # All ranks look: the more there are, the more seldom each of them.
    pause = 0.01 + 0.0005 * ranks.world
    while time.monotonic() < deadline:
        try:
            socket.create_connection(address, timeout=1.0).close()
            return
        except OSError:
            time.sleep(pause * (0.5 + ranks.rank % 16 / 16))


def split(parallel: Parallel, seed: int) -> None:
    """Megatron's process groups, and one seed for every random stream."""
    with TIMING.phase("groups"):
        _split(parallel, seed)


def _split(parallel: Parallel, seed: int) -> None:
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
