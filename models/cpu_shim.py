"""Lets Megatron-Core run without CUDA, on CPU tensors and gloo. A no-op where CUDA exists.

Megatron-Core names CUDA in three ways: calls into ``torch.cuda``, ``device="cuda"`` in tensor
factories, and type names such as ``torch.cuda.FloatTensor``. Each patch below says what failed
without it (megatron-core 0.16.1). It may change nothing numerical: the same seed gives the same
weights and losses with or without a patch that is not needed.
``tests/models/test_cpu_shim.py`` holds it to the no-op and to training at all.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

_installed = False


class _Stream:
    """Stands for a CUDA stream: work on a CPU is already ordered."""

    def __init__(self, *_: Any, **__: Any) -> None: ...
    def wait_stream(self, *_: Any) -> None: ...
    def wait_event(self, *_: Any) -> None: ...
    def synchronize(self) -> None: ...
    def record_event(self, *_: Any) -> _Event:
        return _Event()

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: Any) -> None: ...


class _Event:
    """Stands for a CUDA event that has always happened."""

    def __init__(self, *_: Any, **__: Any) -> None: ...
    def record(self, *_: Any) -> None: ...
    def wait(self, *_: Any) -> None: ...
    def synchronize(self) -> None: ...
    def query(self) -> bool:
        return True

    def elapsed_time(self, *_: Any) -> float:
        return 0.0


def install() -> bool:
    """Patch torch (and two spots of megatron) for CPU; True if patched now or before."""
    global _installed
    if torch.cuda.is_available():
        return False
    if not _installed:
        _patch_cuda_calls()
        _patch_factories()
        _patch_types()
        _patch_rng()
        _patch_experts()
        _installed = True
    return True


def _patch_cuda_calls() -> None:
    cuda: Any = torch.cuda
    cpu = torch.device("cpu")
    # "Torch not compiled with CUDA enabled" in DDP buffers, optimizers and schedules.
    cuda.current_device = lambda: cpu
    cuda.set_device = lambda *_, **__: None
    cuda.synchronize = lambda *_, **__: None
    cuda.empty_cache = lambda: None
    # rank % device_count() in the asynchronous save worker: ZeroDivisionError, the parent hangs.
    cuda.device_count = lambda: 1
    # Streams and events of overlapped communication and of the loss reduction.
    cuda.Stream, cuda.Event = _Stream, _Event
    cuda.current_stream = cuda.default_stream = lambda *_, **__: _Stream()
    cuda.stream = lambda *_: contextlib.nullcontext()
    # The pipeline schedule marks its phases for nsys.
    cuda.nvtx.range_push = lambda *_, **__: 0
    cuda.nvtx.range_pop = lambda *_, **__: 0
    # Initialisation and checkpoint loading move parameters with .cuda().
    torch.Tensor.cuda = lambda self, *_, **__: self
    torch.nn.Module.cuda = lambda self, *_, **__: self


_FACTORIES = "tensor zeros ones empty full arange rand randn randint empty_like zeros_like ones_like"


def _patch_factories() -> None:
    # Some sixty factory calls in megatron-core hard-code device="cuda" and pinned memory.
    def on_cpu(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        @functools.wraps(make)
        def factory(*args: Any, **kwargs: Any) -> torch.Tensor:
            device = kwargs.get("device")
            if device is not None and str(device).startswith("cuda"):
                kwargs["device"] = "cpu"
            kwargs.pop("pin_memory", None)
            return make(*args, **kwargs)

        return factory

    for name in _FACTORIES.split():
        setattr(torch, name, on_cpu(getattr(torch, name)))


def _patch_types() -> None:
    # Optimizers and gradient clipping compare param.type() with 'torch.cuda.FloatTensor'.
    plain = torch.Tensor.type
    floats = {"torch.FloatTensor", "torch.HalfTensor", "torch.BFloat16Tensor"}

    def cuda_named(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if dtype is not None:
            return plain(self, dtype, *args, **kwargs)
        name = plain(self)
        return name.replace("torch.", "torch.cuda.", 1) if name in floats else name

    torch.Tensor.type = cuda_named


def _patch_rng() -> None:
    # model_parallel_cuda_manual_seed and dropout's RNG tracker use the CUDA generator.
    import megatron.core.tensor_parallel.random as mcore_random

    cuda: Any = torch.cuda
    tracker: Any = mcore_random
    cuda.get_rng_state = lambda *_, **__: torch.get_rng_state()
    cuda.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    cuda.manual_seed = torch.manual_seed
    tracker._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    tracker._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    # fork() warns when the CPU generator moved inside a CUDA context; here they are one.
    tracker.CudaRNGStatesTracker.fork = _fork


@contextlib.contextmanager
def _fork(self: Any, name: str = "model-parallel-rng") -> Iterator[None]:
    if name not in self.states_:
        raise KeyError(f"the random number state {name!r} was never added")
    outside = torch.get_rng_state()
    torch.set_rng_state(self.states_[name])
    try:
        yield
    finally:
        self.states_[name] = torch.get_rng_state()
        torch.set_rng_state(outside)


def _patch_experts() -> None:
    import megatron.core.transformer.moe.moe_utils as moe_utils
    import megatron.core.transformer.moe.token_dispatcher as dispatcher

    # 0.16.1 binds the name only with Transformer Engine: NameError in the router.
    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None
    # Only CUDA tensors became split sizes: all_to_all_single got tensors instead of integers.
    dispatcher.maybe_move_tensor_to_cpu = lambda tensor, as_numpy=False, record_stream=False: (
        tensor.numpy() if as_numpy and torch.is_tensor(tensor) else tensor
    )
