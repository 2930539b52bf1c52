"""Writes and reads Megatron's IndexedDataset (.bin and .idx) as plain token arrays.

The writer imports megatron-core (and so torch); the readers need numpy only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

_HEADER = b"MMIDIDX\x00\x00"
_DTYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}


class SplitWriter:
    """One split's dataset. Each document gets the end-of-document token appended."""

    def __init__(self, prefix: Path, vocab_size: int, eod: int) -> None:
        from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder

        self.prefix, self.eod = prefix, eod
        self.documents = self.tokens = 0
        self._builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=DType.optimal_dtype(vocab_size))

    def add(self, ids: Iterable[int]) -> None:
        import torch

        tokens = torch.tensor([*ids, self.eod], dtype=torch.int64)
        self._builder.add_document(tokens, [len(tokens)])
        self.documents += 1
        self.tokens += len(tokens)

    def close(self) -> None:
        self._builder.finalize(f"{self.prefix}.idx")


def read_tokens(prefix: Path) -> np.ndarray[Any, np.dtype[Any]]:
    """All tokens of a dataset in order, memory-mapped, read-only."""
    with open(f"{prefix}.idx", "rb") as index:
        if index.read(len(_HEADER)) != _HEADER:
            raise ValueError(f"{prefix}.idx is not a Megatron index")
        _, code = struct.unpack("<QB", index.read(9))
    if Path(f"{prefix}.bin").stat().st_size == 0:
        return np.zeros(0, dtype=_DTYPES[code])
    return np.memmap(f"{prefix}.bin", dtype=_DTYPES[code], mode="r")
