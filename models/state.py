"""A training run's state in Megatron's distributed checkpoint format (torch_dist).

Model, optimizer, schedule and random streams; the position in the data is in the manifest's meta. The
format is independent of the layout, except for the random streams: those are restored on the same
layout only. Import only after ``runtime.prepare()``.
"""

from __future__ import annotations

import queue
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, tensor_parallel
from megatron.core.dist_checkpointing.mapping import (
    ShardedObject,
    ShardedTensor,
    apply_factories,
)
from megatron.core.dist_checkpointing.strategies import filesystem_async

from . import optim, pieces
from .gpt import unwrap
from .pieces import Pieces
from .settings import CheckpointFault


def _chunk_key(index: int, chunks: list[Any]) -> str:
    return "model" if len(chunks) == 1 else f"model{index}"


def _model_state(chunks: list[Any]) -> dict[str, Any]:
    return {
        _chunk_key(index, chunks): unwrap(chunk).sharded_state_dict() for index, chunk in enumerate(chunks)
    }


def _random_state() -> dict[str, Any]:
    return {
        "python": random.getstate(),
        "numpy": numpy.random.get_state(),
        "torch": torch.get_rng_state(),
        "device": torch.cuda.get_rng_state(),
        "tracker": tensor_parallel.get_cuda_rng_tracker().get_states(),
    }


def _sharded_random(state: Any) -> ShardedObject:
    return ShardedObject("random", state, (dist.get_world_size(),), (dist.get_rank(),), replica_id=0)


def _no_manager() -> None:
    """Keep Megatron from starting a Manager process to hand write results over.

    That is for saves finished by another process. Ours are finished by this one, where a plain queue
    does the same: the Manager costs seconds (it imports the program anew), needs torch's memory
    again, and outlives a rank that is killed, holding its output open
    (``kill_after`` in ``tests/models/test_pretrain.py`` would wait in vain).
    """
    writer: Any = filesystem_async
    if getattr(writer, "_results_queue", None) is None:
        writer._results_queue = queue.Queue()


def collect(chunks: list[Any], optimizer: Any, scheduler: Any) -> Pieces:
    """What this rank has to write, as references to the live state. Not collective."""
    state = _model_state(chunks)
    state["scheduler"] = scheduler.state_dict()
    state["random"] = _sharded_random(_random_state())
    return pieces.collect(state, optimizer)


def save(directory: Path, chunks: list[Any], optimizer: Any, scheduler: Any) -> None:
    """Write this run's state into an empty directory, by Megatron's own writer. Collective.

    Training saves by ``saving.Saver``; this is what its files are compared with.
    """
    state = _model_state(chunks)
    state["optimizer"] = optimizer.sharded_state_dict(state, metadata=dict(pieces.METADATA))
    state["scheduler"] = scheduler.state_dict()
    state["random"] = _sharded_random(_random_state())
    _no_manager()
    dist_checkpointing.save(state, str(directory))


def load(directory: Path, chunks: list[Any], optimizer: Any, scheduler: Any, same_layout: bool) -> None:
    """Restore a run. Collective. Raises ``CheckpointFault`` when it is another model's."""
    _check_shapes(directory, chunks)
    optim.prime(optimizer)
    state = _model_state(chunks)
    state["optimizer"] = optimizer.sharded_state_dict(state, is_loading=True, metadata=dict(pieces.METADATA))
    if same_layout:
        state["random"] = _sharded_random(None)
    loaded = _load(directory, state)
    _load_model(loaded, chunks)
    optimizer.load_state_dict(loaded["optimizer"])
    optim.unshare_steps(optimizer)
    scheduler.load_state_dict(loaded["scheduler"])
    if same_layout:
        streams = loaded["random"]
        random.setstate(streams["python"])
        numpy.random.set_state(streams["numpy"])
        torch.set_rng_state(streams["torch"])
        torch.cuda.set_rng_state(streams["device"])
        tensor_parallel.get_cuda_rng_tracker().set_states(streams["tracker"])


def load_model(directory: Path, chunks: list[Any]) -> None:
    """Restore the weights only, from whatever layout they were saved with."""
    _check_shapes(directory, chunks)
    _load_model(_load(directory, _model_state(chunks)), chunks)


def _load_model(loaded: Mapping[str, Any], chunks: list[Any]) -> None:
    for index, chunk in enumerate(chunks):
        unwrap(chunk).load_state_dict(loaded[_chunk_key(index, chunks)])


def _load(directory: Path, state: dict[str, Any]) -> dict[str, Any]:
    try:
        loaded: dict[str, Any] = dist_checkpointing.load(state, str(directory))
    except dist_checkpointing.core.CheckpointingException as error:
        raise CheckpointFault(
            f"{directory} does not fit this stage: {str(error).strip().splitlines()[0]}",
            hint="resume with the settings it was saved with, or start in a new run",
        ) from error
    return loaded


def _check_shapes(directory: Path, chunks: list[Any]) -> None:
    """Every tensor of the model is there, with its shape. Megatron's own error names no key."""
    stored = dist_checkpointing.load_tensors_metadata(str(directory))
    wanted = _model_state(chunks)
    apply_factories(wanted)
    faults = []
    for key, tensor in _sharded_tensors(wanted):
        if key not in stored:
            faults.append(f"{key} is not in the checkpoint")
        elif (
            tuple(stored[key].global_shape) != tuple(tensor.global_shape) and not tensor.allow_shape_mismatch
        ):
            faults.append(
                f"{key} is {list(stored[key].global_shape)} in the checkpoint, "
                f"{list(tensor.global_shape)} in the model"
            )
    if faults:
        more = f" and {len(faults) - 3} more" if len(faults) > 3 else ""
        raise CheckpointFault(
            f"{directory} is not this model's: {'; '.join(faults[:3])}{more}",
            hint="resume with the model it was saved with, or start in a new run",
        )


def _sharded_tensors(state: Any) -> list[tuple[str, ShardedTensor]]:
    if isinstance(state, ShardedTensor):
        return [(state.key, state)]
    if isinstance(state, dict):
        return [pair for value in state.values() for pair in _sharded_tensors(value)]
    if isinstance(state, (list, tuple)):
        return [pair for value in state for pair in _sharded_tensors(value)]
    return []
