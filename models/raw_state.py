"""A rank's state as it lies in memory: parameters, optimizer tensors, random streams, and a few numbers.

For copies that come back to the same layout: nothing is renamed, cut or gathered, so a copy costs what the
memory costs, and what comes back is the same to the last bit. Import only after ``runtime.prepare()``.
``tests/models/test_memory.py`` holds it to exact losses.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy
import torch
from megatron.core import tensor_parallel

from . import optim
from .copy_file import ALIGN
from .gpt import unwrap

_TRACKER = "random.tracker."


class Mismatch(RuntimeError):
    """A copy is not this program's state."""


class RawState:
    """The live state of one rank."""

    def __init__(self, chunks: list[Any], optimizer: Any, scheduler: Any) -> None:
        self._chunks, self._optimizer, self._scheduler = chunks, optimizer, scheduler

    def tensors(self) -> dict[str, torch.Tensor]:
        """Name → live tensor; random streams are copies already."""
        found: dict[str, torch.Tensor] = {}
        for index, chunk in enumerate(self._chunks):
            for name, value in unwrap(chunk).state_dict().items():
                if torch.is_tensor(value):
                    found[f"model{index}.{name}"] = value
        for name, parameter, state in self._parameters():
            found[f"{name}.param"] = parameter.data
            for key, value in state.items():
                if torch.is_tensor(value):
                    found[f"{name}.state.{key}"] = value
        found["random.torch"] = torch.get_rng_state()
        found["random.device"] = torch.cuda.get_rng_state()
        for name, stream in tensor_parallel.get_cuda_rng_tracker().get_states().items():
            found[_TRACKER + name] = stream
        return {name: value.detach() for name, value in found.items()}

    def _parameters(self) -> Iterator[tuple[str, torch.Tensor, dict[str, Any]]]:
        for number, inner in enumerate(optim.inner_optimizers(self._optimizer)):
            for group, settings in enumerate(inner.param_groups):
                for place, parameter in enumerate(settings["params"]):
                    yield f"optimizer{number}.{group}.{place}", parameter, inner.state[parameter]

    def numbers(self) -> dict[str, Any]:
        """What is not a tensor, for JSON."""
        kind, keys, position, has_gauss, gauss = numpy.random.get_state()
        version, words, spare = random.getstate()
        groups = [
            [group.get("step") for group in inner.param_groups]
            for inner in optim.inner_optimizers(self._optimizer)
        ]
        return {
            "scheduler": self._scheduler.state_dict(),
            "python": [version, list(words), spare],
            "numpy": [kind, [int(key) for key in keys], int(position), int(has_gauss), float(gauss)],
            "group_steps": [[s if isinstance(s, (int, float)) else None for s in steps] for steps in groups],
        }

    def restore(self, stored: dict[str, torch.Tensor], numbers: dict[str, Any]) -> None:
        """Make the live state what it was. Raises Mismatch before anything is changed."""
        self._make_room(stored)
        live = self.tensors()
        if live.keys() - {n for n in live if n.startswith(_TRACKER)} - stored.keys():
            missing = sorted(live.keys() - stored.keys())
            raise Mismatch(f"{missing[0]} is not in the copy")
        for name, target in live.items():
            if name in stored and (stored[name].shape != target.shape or stored[name].dtype != target.dtype):
                raise Mismatch(f"{name} is {list(stored[name].shape)} there, {list(target.shape)} here")
        for name, target in live.items():
            if not name.startswith("random."):
                target.copy_(stored[name])
        steps = numbers["group_steps"]
        for inner, known in zip(optim.inner_optimizers(self._optimizer), steps, strict=True):
            for group, step in zip(inner.param_groups, known, strict=True):
                if step is not None:
                    group["step"] = step
        self._scheduler.load_state_dict(numbers["scheduler"])
        version, words, spare = numbers["python"]
        random.setstate((version, tuple(words), spare))
        kind, keys, position, has_gauss, gauss = numbers["numpy"]
        numpy.random.set_state((kind, numpy.array(keys, dtype=numpy.uint32), position, has_gauss, gauss))
        torch.set_rng_state(stored["random.torch"].clone())
        torch.cuda.set_rng_state(stored["random.device"].clone())
        tensor_parallel.get_cuda_rng_tracker().set_states(
            {
                name.removeprefix(_TRACKER): value.clone()
                for name, value in stored.items()
                if name.startswith(_TRACKER)
            }
        )

    def _make_room(self, stored: dict[str, torch.Tensor]) -> None:
        """Optimizers make their tensors at the first step only: make those that are to be filled."""
        wanted: dict[str, list[str]] = {}
        for name in stored:
            owner, mark, key = name.partition(".state.")
            if mark and owner.startswith("optimizer"):
                wanted.setdefault(owner, []).append(key)
        for name, parameter, state in self._parameters():
            for key in wanted.get(name, ()):
                value = stored[f"{name}.state.{key}"]
                if key not in state:
                    # torch's Adam counts steps on the host; all else lies where the parameter does.
                    device = torch.device("cpu") if value.dim() == 0 else parameter.device
                    state[key] = torch.empty(value.shape, dtype=value.dtype, device=device)


class Layout:
    """Where each tensor lies in the bytes of a copy."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self.table: list[list[Any]] = []
        self.bytes = 0
        for name, tensor in tensors.items():
            dtype = str(tensor.dtype).removeprefix("torch.")
            size = tensor.numel() * tensor.itemsize
            self.table.append([name, dtype, list(tensor.shape), self.bytes, size])
            self.bytes += -(-size // ALIGN) * ALIGN

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        """Whether these are the same by name and shape; their order may change with a load."""
        return len(tensors) == len(self.table) and all(
            name in tensors and list(tensors[name].shape) == shape for name, _, shape, _, _ in self.table
        )


def views(payload: memoryview, table: list[list[Any]]) -> dict[str, torch.Tensor]:
    """The tensors in the bytes of a copy, without copying them."""
    whole = torch.frombuffer(payload, dtype=torch.uint8)
    found = {}
    for name, dtype, shape, at, size in table:
        found[name] = whole[at : at + size].view(getattr(torch, dtype)).view(shape)
    return found
