"""Host memory that a step copies its state into, so that training can go on while it is written.

Buffers are kept from one save to the next: memory that is new must be zeroed by the kernel first, which
takes longer than the copy. Import only after ``runtime.prepare()``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


class Pool:
    """One buffer a tensor, by position in the list that is copied."""

    def __init__(self) -> None:
        self._buffers: list[torch.Tensor] = []

    @property
    def bytes(self) -> int:
        return sum(buffer.numel() * buffer.itemsize for buffer in self._buffers)

    def reserve(self, tensors: Sequence[torch.Tensor]) -> None:
        """Make the buffers ahead, for tensors of these shapes."""
        del self._buffers[len(tensors) :]
        for index, tensor in enumerate(tensors):
            if index == len(self._buffers):
                self._buffers.append(_buffer(tensor))
            elif self._buffers[index].shape != tensor.shape or self._buffers[index].dtype != tensor.dtype:
                self._buffers[index] = _buffer(tensor)

    def copy(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors as they are now. Valid until the next copy."""
        self.reserve(tensors)
        on_device = False
        for buffer, tensor in zip(self._buffers, tensors, strict=True):
            on_device |= tensor.is_cuda
            buffer.copy_(tensor.detach(), non_blocking=True)
        if on_device:
            torch.cuda.synchronize()
        return list(self._buffers)


def _buffer(tensor: torch.Tensor) -> torch.Tensor:
    # zero_ touches every page now, wherever this runs.
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=tensor.is_cuda).zero_()
