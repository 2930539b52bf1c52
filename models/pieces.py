"""What each rank writes of a run's state: parts of named tensors, without any exchange between ranks.

Megatron's sharded state says which part of which tensor a rank holds. Its distributed optimizer is the
exception: its fully reshardable format gathers all optimizer state on one rank first, which takes most of
a save. Here each rank writes its own flat share instead, cut into the boxes of the tensor that it covers;
what is stored is the same, and loads at any layout. ``tests/models/test_layouts.py`` holds it to that.
Import only after ``runtime.prepare()``.
"""

from __future__ import annotations

import bisect
import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.dist_checkpointing.dict_utils import nested_values
from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor, is_main_replica
from megatron.core.dist_checkpointing.state_dict_utils import save_preprocess
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

FULLY_RESHARDABLE = "fully_reshardable"
#: Loads at any layout; the alternatives tie a checkpoint to its layout.
METADATA = {"distrib_optim_sharding_type": FULLY_RESHARDABLE}
_STATES = ("param", "exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class Piece:
    """A box of a global tensor; ``data`` is the live tensor, of as many elements as ``size`` has."""

    key: str
    shape: tuple[int, ...]  # of the whole tensor
    offset: tuple[int, ...]
    size: tuple[int, ...]
    data: torch.Tensor


@dataclass
class Pieces:
    """All that one rank writes. ``objects``: key → what is pickled; ``common``: rank 0 writes it."""

    tensors: list[Piece] = field(default_factory=list)
    objects: dict[str, list[Any]] = field(default_factory=dict)
    common: dict[str, Any] = field(default_factory=dict)


def collect(state: dict[str, Any], optimizer: Any) -> Pieces:
    """Of a model's sharded state (and whatever else is in ``state``) and its optimizer. Not collective."""
    shares, replicated = _Shares(), []
    shadow = _shadow(optimizer, shares)
    state["optimizer"] = shadow.sharded_state_dict(state, metadata=dict(METADATA))
    sharded, common = save_preprocess(state, validate_access_integrity=False)
    found = Pieces(common=common)
    for part in nested_values(sharded):
        if isinstance(part, ShardedObject):
            if is_main_replica(part.replica_id):
                found.objects.setdefault(part.unique_key, []).append(part.data)
        elif part.data.is_meta:
            found.tensors += shares.pieces(part)
        elif _on_all_replicas(part):
            replicated.append(_whole(part))
        elif is_main_replica(part.replica_id):
            found.tensors.append(_whole(part))
    found.tensors += _mine(
        replicated,
        parallel_state.get_data_parallel_rank(with_context_parallel=True),
        parallel_state.get_data_parallel_world_size(with_context_parallel=True),
    )
    return found


def _whole(part: ShardedTensor) -> Piece:
    size = (1,) * part.prepend_axis_num + tuple(part.local_shape)
    return Piece(part.key, tuple(part.global_shape), tuple(part.global_offset), size, part.data)


def _on_all_replicas(part: ShardedTensor) -> bool:
    """Whether every data-parallel replica has it: then they share the writing. Experts have others."""
    replica = part.replica_id
    return (
        isinstance(replica, tuple)
        and len(replica) == 3
        and not any(replica[:2])
        and ".experts." not in part.key
    )


def _mine(pieces: list[Piece], replica: int, replicas: int) -> list[Piece]:
    """This replica's part of what all have: the largest first, each to the one with least to write."""
    loads = [0] * replicas
    mine = []
    for piece in sorted(pieces, key=lambda piece: (-piece.data.nbytes, piece.key, piece.offset)):
        writer = loads.index(min(loads))
        loads[writer] += piece.data.nbytes
        if writer == replica:
            mine.append(piece)
    return mine


# -- the distributed optimizer -----------------------------------------------------------------


@dataclass
class _Interval:
    """A parameter's place among the placeholders, and this rank's share of it, in elements."""

    start: int
    low: int = 0
    high: int = 0
    data: torch.Tensor | None = None


class _Shares:
    """Placeholders for gathered optimizer state: tensors without memory whose offsets say what they are."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._intervals: list[_Interval] = []
        self._end = 0
        self._first_instance = True

    def placeholders(self, optimizer: Any) -> dict[int, dict[Any, dict[str, Any]]]:
        """What ``get_parameter_state_dp_zero`` returns, and at the same time what this rank has of it."""
        self._first_instance = optimizer.distributed_optimizer_instance_id == 0
        found: dict[int, dict[Any, dict[str, Any]]] = {}
        for index, ranges in enumerate(optimizer.gbuf_ranges):
            buffer = optimizer.buffers[index]
            mine = {
                parameter: place["param"]
                for buckets in ranges.values()
                for bucket in buckets
                for parameter, place in bucket["param_map"].items()
            }
            whole: dict[str, Any] = {"numel_unpadded": buffer.numel_unpadded}
            for name in _STATES:
                base, self._end = self._end, self._end + buffer.numel
                whole[name] = torch.empty(self._end, dtype=torch.float32, device="meta")[base:]
                for parameter, (start, _, _) in buffer.param_index_map.items():
                    interval = _Interval(base + start)
                    if parameter in mine:
                        data = optimizer._get_main_param_and_optimizer_states(parameter)[name]
                        interval = _Interval(
                            base + start, mine[parameter].start, mine[parameter].end, data.detach().view(-1)
                        )
                    self._intervals.append(interval)
            found[index] = dict.fromkeys(ranges, whole)
        self._intervals.sort(key=lambda interval: interval.start)
        self._starts = [interval.start for interval in self._intervals]
        return found

    def pieces(self, part: ShardedTensor) -> Iterator[Piece]:
        """This rank's share of one tensor of the optimizer's state."""
        replica = part.replica_id
        if not isinstance(replica, tuple) or len(replica) != 3 or not part.data.is_contiguous():
            raise NotImplementedError(f"{part.key}: this optimizer state cannot be written in shares")
        if any(replica[:2]) or not self._first_instance:
            return  # the same share is written by another rank of the tensor or pipeline group
        at = part.data.storage_offset()
        interval = self._intervals[bisect.bisect_right(self._starts, at) - 1]
        if interval.data is None:
            return
        inside = at - interval.start
        low, high = max(interval.low, inside), min(interval.high, inside + part.data.numel())
        if low >= high:
            return
        axes = part.prepend_axis_num
        for offset, size, start, count in boxes(tuple(part.local_shape), low - inside, high - inside):
            begin = inside + start - interval.low
            where = tuple(part.global_offset[:axes]) + tuple(
                there + here for there, here in zip(part.global_offset[axes:], offset, strict=True)
            )
            yield Piece(
                part.key,
                tuple(part.global_shape),
                where,
                (1,) * axes + size,
                interval.data[begin : begin + count],
            )


def boxes(
    shape: tuple[int, ...], low: int, high: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int, int]]:
    """Cut elements ``low`` to ``high`` of a contiguous tensor into boxes: (offset, size, first, count)."""
    if low >= high:
        return
    if not shape:
        yield (), (), 0, 1
        return
    row = math.prod(shape[1:])
    first, last = low // row, (high - 1) // row
    whole_from = first if low % row == 0 else first + 1
    whole_to = last + 1 if high % row == 0 else last
    if whole_from > whole_to:  # all of it within one row
        whole_from = whole_to = first + 1
    parts = []
    if first < whole_from:
        parts.append((first, low, min(high, (first + 1) * row)))
    if whole_from < whole_to:
        rest = (0,) * (len(shape) - 1)
        begin = whole_from * row
        yield (whole_from, *rest), (whole_to - whole_from, *shape[1:]), begin, (whole_to - whole_from) * row
    if last >= whole_to and last > first:
        parts.append((last, last * row, high))
    for index, begin, end in parts:
        for offset, size, start, count in boxes(shape[1:], begin - index * row, end - index * row):
            yield (index, *offset), (1, *size), index * row + start, count


def _shadow(optimizer: Any, shares: _Shares) -> Any:
    """A stand-in whose sharded state has placeholders instead of what Megatron would gather."""
    if hasattr(optimizer, "chained_optimizers"):
        chain = copy.copy(optimizer)
        chain.chained_optimizers = [_shadow(part, shares) for part in optimizer.chained_optimizers]
        return chain
    if not isinstance(optimizer, DistributedOptimizer):
        return optimizer
    shadow: Any = copy.copy(optimizer)
    shadow.get_parameter_state_dp_zero = lambda *_, **__: shares.placeholders(optimizer)

    def sharded_state_dict(model: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        # As Megatron's, less its garbage collection.
        state: dict[str, Any] = optimizer.state_dict()
        state["param_state"] = shadow.sharded_param_state_fully_reshardable(model, False, dict(METADATA))
        state["param_state_sharding_type"] = FULLY_RESHARDABLE
        return state

    shadow.sharded_state_dict = sharded_state_dict
    return shadow
