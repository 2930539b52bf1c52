"""Training batches as a pure function of the number of samples consumed.

Sample i of the whole run is the same however often the run was interrupted, whatever the layout, and
even when ``train.steps`` changes: each epoch is a GPTDataset of its own, shuffled with seed + epoch
(Megatron's own multi-epoch index depends on the total number of samples asked for).
``tests/models/test_stream.py`` holds it to that. Import only after ``runtime.prepare()``.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

from models.settings import DataFault

from .indexed import read_tokens


@dataclass(frozen=True)
class TokenIds:
    """All that GPTDataset asks of a tokenizer; the text was tokenized by the text stage."""

    vocab_size: int
    eod: int
    identity: str  # digest of the tokenizer's file

    @property
    def unique_identifiers(self) -> dict[str, str]:
        return {"class": "TokenIds", "identity": self.identity}


class TrainingStream:
    """Samples of one or more indexed datasets, epoch after epoch."""

    def __init__(
        self,
        prefixes: list[Path],
        tokens: TokenIds,
        seq_length: int,
        seed: int,
        cache: Path,
    ) -> None:
        self._prefixes, self._tokens = prefixes, tokens
        self._seq_length, self._seed, self._cache = seq_length, seed, cache
        for prefix in prefixes:
            if len(read_tokens(prefix)) <= seq_length:
                raise DataFault(
                    f"{prefix} is shorter than one sequence of {seq_length} tokens",
                    hint="give the text stage more input or lower train.seq_length",
                )
        self._epochs: dict[int, Any] = {}
        self._size: int | None = None

    @property
    def samples_per_epoch(self) -> int:
        """Collective on first use: every rank calls it."""
        if self._size is None:
            self._size = len(self._epoch(0))
        return self._size

    def prepare(self, first: int, count: int) -> None:
        """Make samples [first, first + count) available. Collective: all ranks, same arguments."""
        size = self.samples_per_epoch
        needed = range(first // size, (first + count - 1) // size + 1)
        for epoch in [e for e in self._epochs if e < needed.start]:
            del self._epochs[epoch]
        for epoch in needed:
            self._epoch(epoch)

    def sample(self, index: int) -> dict[str, torch.Tensor]:
        """Sample ``index`` of the run: tokens, labels, loss_mask, position_ids of ``[seq_length]``."""
        epoch, place = divmod(index, self.samples_per_epoch)
        sample: dict[str, torch.Tensor] = self._epochs[epoch][place]
        return sample

    def _epoch(self, epoch: int) -> Any:
        if epoch not in self._epochs:
            self._epochs[epoch] = self._build(epoch)
        return self._epochs[epoch]

    def _build(self, epoch: int) -> Any:
        directory = self._cache / f"epoch-{epoch:05d}"
        marker = directory / "complete"
        if dist.get_rank() == 0 and directory.exists() and not marker.exists():
            shutil.rmtree(directory)  # a killed process left half an index here
        dist.barrier()
        config = GPTDatasetConfig(
            random_seed=self._seed + epoch,
            sequence_length=self._seq_length,
            blend_per_split=[([str(p) for p in self._prefixes], None), None, None],
            path_to_cache=str(directory),
            tokenizer=self._tokens,
            reset_position_ids=False,
            reset_attention_mask=False,
            eod_mask_loss=False,
            create_attention_mask=False,
        )
        dataset = BlendedMegatronDatasetBuilder(GPTDataset, [None, None, None], lambda: True, config).build()[
            0
        ]
        dist.barrier()
        if dist.get_rank() == 0 and not marker.exists():
            marker.touch()
        return dataset


def micro_batches(
    stream: TrainingStream, consumed: int, global_batch: int, micro_batch: int, device: torch.device
) -> Iterator[dict[str, torch.Tensor]]:
    """This rank's micro-batches of the step that starts after ``consumed`` samples.

    Micro-batch m of data-parallel rank d takes ``micro_batch`` samples from
    ``consumed + (m · ranks + d) · micro_batch``, as Megatron's pre-training sampler does.
    """
    rank = parallel_state.get_data_parallel_rank()
    ranks = parallel_state.get_data_parallel_world_size()
    for number in range(global_batch // (micro_batch * ranks)):
        first = consumed + (number * ranks + rank) * micro_batch
        rows = [stream.sample(index) for index in range(first, first + micro_batch)]
        yield {
            key: torch.stack([row[key] for row in rows]).to(device, non_blocking=True)
            for key in ("tokens", "labels", "loss_mask", "position_ids")
        }
