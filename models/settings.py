"""The pretrain stage's settings, read from its plain dict; every fault at once.

The control plane's schema has checked the file already; this reads it once more because a stage
program must also stand alone. May not import torch or megatron.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from resiliency.errors import TrainmasterError
from resiliency.exitcodes import NEEDS_HUMAN, RERUN_ELSEWHERE, RESULT_REJECTED


class ConfigFault(TrainmasterError):
    """The stage cannot go on as configured: a person must change something (exit code 76).

    ``category`` is a name of :mod:`resiliency.taxonomy`, written to the journal.
    """

    exit_code = NEEDS_HUMAN
    category = "config_error"


class DataFault(ConfigFault):
    """The input data is missing or cannot be used (exit code 76)."""

    category = "data_error"


class CheckpointFault(ConfigFault):
    """A checkpoint is not this model's (exit code 76)."""

    category = "checkpoint_mismatch"


class ResultRejected(TrainmasterError):
    """The result is not a number: going on would only burn the allocation (exit code 17)."""

    exit_code = RESULT_REJECTED
    category = "numeric"


class RerunElsewhere(TrainmasterError):
    """A result that is not the same when computed again: hardware is suspected (exit code 16).

    ``node`` and ``rank``: whose it is, None where that cannot be told (it then proves nothing against a
    node). ``culprit``: it is this rank's.
    """

    exit_code = RERUN_ELSEWHERE

    def __init__(self, message: str, *, hint: str, rank: int | None, node: str | None, culprit: bool) -> None:
        super().__init__(message, hint=hint)
        self.rank, self.node, self.culprit = rank, node, culprit
        self.category = "gpu_fault" if node is None else "sdc_suspected"


@dataclass(frozen=True)
class Parallel:
    """How the ranks share the work. 1 means: not split."""

    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    virtual_pipeline: int = 1
    sequence: bool = False
    distributed_optimizer: bool = False


@dataclass(frozen=True)
class Train:
    """One training run. Steps are optimizer steps, the learning rate decays by cosine."""

    steps: int
    global_batch_size: int = 8
    micro_batch_size: int = 1
    seq_length: int = 256
    lr: float = 3e-4
    min_lr: float = 0.0
    warmup_steps: int = 0
    weight_decay: float = 0.1
    clip_grad: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    seed: int = 1234
    precision: str = "bf16"
    log_interval: int = 10
    threads: int | None = None  # None: OMP_NUM_THREADS, else the cores shared by the node's ranks


@dataclass(frozen=True)
class Checkpoint:
    """When to save, and how many to keep."""

    interval: int | None = None  # steps; None ("auto"): by cost and failure rate, at first every ``seconds``
    seconds: float = 600.0
    keep: int = 3
    async_: bool = True  # written while training goes on
    local_interval: int | None = None  # steps between copies in the nodes' memory; None: no copies
    replicas: int = 1  # copies of each node's part on another node


def _number(kind: type, name: str, value: Any, low: float, strict: bool) -> list[str]:
    allowed = (int,) if kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed) or not math.isfinite(value):
        return [f"{name} must be {'a whole number' if kind is int else 'a number'}, not {value!r}"]
    if value < low or (strict and value <= low):
        return [f"{name} must be {'over' if strict else 'at least'} {low:g}, not {value!r}"]
    return []


# name: (type, lowest value, whether that value itself is excluded)
_TRAIN_RULES: dict[str, tuple[type, float, bool]] = {
    "steps": (int, 1, False),
    "global_batch_size": (int, 1, False),
    "micro_batch_size": (int, 1, False),
    "seq_length": (int, 2, False),
    "lr": (float, 0, True),
    "min_lr": (float, 0, False),
    "warmup_steps": (int, 0, False),
    "weight_decay": (float, 0, False),
    "clip_grad": (float, 0, False),
    "beta1": (float, 0, False),
    "beta2": (float, 0, False),
    "eps": (float, 0, True),
    "seed": (int, 0, False),
    "log_interval": (int, 1, False),
    "threads": (int, 1, False),
}


_CHECKPOINT_RULES: dict[str, tuple[type, float, bool]] = {
    "interval": (int, 1, False),
    "seconds": (float, 0, True),
    "keep": (int, 1, False),
    "local_interval": (int, 1, False),
    "replicas": (int, 0, False),
}


def _known(section: str, given: Mapping[str, Any], kind: type) -> tuple[dict[str, Any], list[str]]:
    names = {f.name for f in fields(kind)}
    faults = [
        f"{section}.{key} is unknown (known: {', '.join(sorted(names))})" for key in given if key not in names
    ]
    return {k: v for k, v in given.items() if k in names and v is not None}, faults


def read_train(given: Mapping[str, Any]) -> Train:
    """Raises ``ConfigFault`` naming every wrong value."""
    values, faults = _known("train", given, Train)
    for key, value in values.items():
        if key in _TRAIN_RULES:
            kind, low, strict = _TRAIN_RULES[key]
            faults += _number(kind, f"train.{key}", value, low, strict)
    if "steps" not in values:
        faults.append("train.steps is missing: how many optimizer steps to train")
    if values.get("precision", "bf16") not in ("fp32", "bf16"):
        faults.append(f"train.precision must be fp32 or bf16, not {values['precision']!r}")
    if not faults:
        train = Train(**values)
        if train.warmup_steps >= train.steps:
            faults.append(f"train.warmup_steps {train.warmup_steps} must be under train.steps {train.steps}")
        for key in ("beta1", "beta2"):
            if getattr(train, key) >= 1:
                faults.append(f"train.{key} must be under 1, not {getattr(train, key)!r}")
        if train.min_lr > train.lr:
            faults.append(f"train.min_lr {train.min_lr:g} is over train.lr {train.lr:g}")
    _stop_on(faults)
    return train


def read_parallel(given: Mapping[str, Any]) -> Parallel:
    """Raises ``ConfigFault``; the sizes themselves are judged by ``layout.check_layout``."""
    values, faults = _known("parallel", given, Parallel)
    for key, value in values.items():
        if key in ("sequence", "distributed_optimizer"):
            if not isinstance(value, bool):
                faults.append(f"parallel.{key} must be true or false, not {value!r}")
        else:
            faults += _number(int, f"parallel.{key}", value, 1, False)
    _stop_on(faults)
    return Parallel(**values)


def read_checkpoint(given: Mapping[str, Any]) -> Checkpoint:
    """Raises ``ConfigFault``."""
    renamed = {"async_" if key == "async" else key: value for key, value in given.items()}
    values, faults = _known("checkpoint", renamed, Checkpoint)
    if values.get("interval") == "auto":
        del values["interval"]
    for key, (kind, low, strict) in _CHECKPOINT_RULES.items():
        if key in values:
            faults += _number(kind, f"checkpoint.{key}", values[key], low, strict)
    if not isinstance(values.get("async_", True), bool):
        faults.append(f"checkpoint.async must be true or false, not {values['async_']!r}")
    if values.get("replicas") not in (None, 0, 1):
        faults.append(f"checkpoint.replicas must be 0 or 1, not {values['replicas']!r}")
    _stop_on(faults)
    return Checkpoint(**values)


def _stop_on(faults: list[str]) -> None:
    if faults:
        raise ConfigFault(
            "the stage's settings are wrong: " + "; ".join(faults),
            hint="correct the experiment file and submit again",
        )


def plain(settings: Any) -> dict[str, Any]:
    """A settings dataclass as a dict for a manifest."""
    return asdict(settings)
