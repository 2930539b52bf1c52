"""Optimizer and learning-rate schedule, with the guards torch's AdamW needs inside Megatron.

Megatron-Core is written for Transformer Engine's or Apex's Adam. With torch's, three things go wrong
around a checkpoint; each function below says which. ``tests/models/test_layouts.py`` and the
exact resume test hold it to that. Import only after ``runtime.prepare()``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import megatron.core.optimizer as mcore_optimizer
import torch
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.transformer.transformer_config import TransformerConfig

from .settings import Parallel, Train


def wrap(
    config: TransformerConfig, chunks: list[torch.nn.Module], parallel: Parallel
) -> list[DistributedDataParallel]:
    """Data-parallel model chunks; every replica starts from rank 0's weights."""
    ddp = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True,
        use_distributed_optimizer=parallel.distributed_optimizer,
        overlap_grad_reduce=False,
    )
    wrapped = [DistributedDataParallel(config, ddp, chunk) for chunk in chunks]
    for chunk in wrapped:
        chunk.broadcast_params()
    config.finalize_model_grads_func = finalize_model_grads
    return wrapped


def build(
    chunks: list[DistributedDataParallel], parallel: Parallel, train: Train
) -> tuple[Any, OptimizerParamScheduler]:
    """AdamW (decay on matrices only) with linear warm-up and cosine decay to ``min_lr``."""
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=train.lr,
            min_lr=train.min_lr,
            weight_decay=train.weight_decay,
            adam_beta1=train.beta1,
            adam_beta2=train.beta2,
            adam_eps=train.eps,
            clip_grad=train.clip_grad,
            bf16=train.precision == "bf16",
            params_dtype=torch.bfloat16 if train.precision == "bf16" else torch.float32,
            use_distributed_optimizer=parallel.distributed_optimizer,
        ),
        chunks,
    )
    if mcore_optimizer.USING_PYTORCH_OPTIMIZER:
        _let_step_be_absent()
    _refuse_bad_norm(optimizer)
    scheduler = OptimizerParamScheduler(
        optimizer,
        init_lr=0.0,
        max_lr=train.lr,
        min_lr=train.min_lr,
        lr_warmup_steps=train.warmup_steps,
        lr_decay_steps=train.steps,
        lr_decay_style="cosine",
        start_wd=train.weight_decay,
        end_wd=train.weight_decay,
        wd_incr_steps=train.steps,
        wd_incr_style="constant",
        # The schedule follows from the stage's settings and the step, not from the checkpoint:
        # a person who resumes with another learning rate gets it.
        use_checkpoint_opt_param_scheduler=False,
        override_opt_param_scheduler=True,
    )
    return optimizer, scheduler


def _refuse_bad_norm(optimizer: Any) -> None:
    """Change nothing when the gradient norm is no number; the parameters would be none afterwards."""
    norm_of, update = optimizer.get_grad_norm, optimizer.step_with_ready_grads

    def get_grad_norm() -> Any:
        optimizer.newest_norm = norm_of()
        return optimizer.newest_norm

    def step_with_ready_grads() -> bool:
        return math.isfinite(float(optimizer.newest_norm)) and bool(update())

    optimizer.get_grad_norm, optimizer.step_with_ready_grads = get_grad_norm, step_with_ready_grads


def step(optimizer: Any) -> float:
    """One update; the gradient norm. If that is no number, nothing was changed."""
    _, norm, _ = optimizer.step()
    return math.nan if norm is None else float(norm)


def norm_of_gradients(optimizer: Any) -> float:
    """The norm of the gradients as they are, without an update. Collective."""
    optimizer.prepare_grads()
    return float(optimizer.get_grad_norm())


def inner_optimizers(optimizer: Any) -> Iterator[Any]:
    """The torch optimizers inside Megatron's wrappers."""
    for part in getattr(optimizer, "chained_optimizers", [optimizer]):
        if getattr(part, "optimizer", None) is not None:
            yield part.optimizer


def prime(optimizer: Any) -> None:
    """Give the distributed optimizer a state to load into.

    Its ``sharded_state_dict`` reads ``state["step"]`` of every parameter: KeyError before the first
    step. Zeros are overwritten by the load.
    """
    for part in getattr(optimizer, "chained_optimizers", [optimizer]):
        if not isinstance(part, DistributedOptimizer) or not mcore_optimizer.USING_PYTORCH_OPTIMIZER:
            continue
        for group in part.optimizer.param_groups:
            for parameter in group["params"]:
                if not part.optimizer.state[parameter]:
                    part.optimizer.state[parameter] = {
                        "step": torch.tensor(0.0),
                        "exp_avg": torch.zeros_like(parameter.data),
                        "exp_avg_sq": torch.zeros_like(parameter.data),
                    }


def unshare_steps(optimizer: Any) -> int:
    """Give every parameter its own ``step`` tensor after a load; how many were shared.

    The distributed optimizer's load puts one tensor in the state of all parameters. AdamW then
    counts it up once per parameter: wrong bias correction, silently.
    """
    shared = 0
    seen: set[int] = set()
    for inner in inner_optimizers(optimizer):
        for state in inner.state.values():
            step = state.get("step")
            if torch.is_tensor(step):
                if id(step) in seen:
                    shared += 1
                    state["step"] = step.detach().clone()
                seen.add(id(state["step"]))
    return shared


@functools.cache
def _let_step_be_absent() -> None:
    # The fully reshardable format leaves "step" out of the tensors it loads, but the setter copies
    # every key of the state: KeyError 'step'. The step itself comes from the parameter groups.
    def set_states(self: Any, model_param: Any, tensors: dict[str, torch.Tensor]) -> None:
        group, order = self.model_param_group_index_map[model_param]
        main = self.optimizer.param_groups[group]["params"][order]
        targets = {"param": main, **self.optimizer.state[main]}
        missing = set(targets) - set(tensors) - {"step"}
        if missing:
            raise KeyError(f"the checkpoint has no optimizer state {sorted(missing)}")
        for key, target in targets.items():
            if key in tensors:
                target.copy_(tensors[key])

    DistributedOptimizer._set_main_param_and_optimizer_states = set_states


def learning_rate(optimizer: Any) -> float:
    """The rate the next step uses."""
    for group in optimizer.param_groups:
        if group.get("params"):
            return float(group["lr"])
    return float("nan")
