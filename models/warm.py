"""All that a training program imports, so that the node's warm server has done it before a rank starts.

Importing it may decide nothing that belongs to the rank: no thread count, no device, no patch for CPU
(``runtime.prepare`` does those in each process), and it must not initialise CUDA. What a program loads
later than this costs every restart: ``tests/models/test_warm.py`` names it, and compares losses warm and
cold to the last digit.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import warnings

import models

from . import data, te_guard

#: What Megatron and torch load only when it is first used; names differ between versions.
_ON_FIRST_USE = (
    "encodings.idna",
    "megatron.core.datasets.helpers",
    "megatron.core.dist_checkpointing.strategies.cached_metadata_filesystem_reader",
    "megatron.core.dist_checkpointing.strategies.state_dict_saver",
    "megatron.core.dist_checkpointing.strategies.torch",
    "torch.profiler._cupti_monitor",
    "torch.utils.serialization.config",
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # "Apex is not installed …", once per module
    # As in prepare(): whether megatron may see Transformer Engine is settled before it is imported.
    te_guard.choose()
    import megatron.core  # noqa: F401
    import torch.distributed  # noqa: F401

    for _package in (models, data):
        for _found in pkgutil.iter_modules(_package.__path__, f"{_package.__name__}."):
            importlib.import_module(_found.name)
    for _name in _ON_FIRST_USE:
        with contextlib.suppress(ImportError):
            importlib.import_module(_name)
