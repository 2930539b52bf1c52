"""Files of a checkpoint in torch's distributed format, as Megatron reads it (torch_dist).

Each rank writes one data file and a small part file that says what is in it; when all have, rank 0 makes
the format's metadata from the parts. No rank waits for another, so all of it can happen beside training.
Nothing here is collective. ``tests/models/test_pretrain.py`` loads what it writes through Megatron.
Import only after ``runtime.prepare()``.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import math
import os
import pickle
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import torch
from megatron.core.dist_checkpointing.core import CheckpointingConfig, save_config
from megatron.core.dist_checkpointing.strategies.common import COMMON_STATE_FNAME
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from resiliency.durable import fsync_dir

from .pieces import Piece

_METADATA = ".metadata"


class Incomplete(RuntimeError):
    """The ranks' parts do not make up the whole state."""


class _Summed:
    """A file to append to that knows its length and checksums."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sha = hashlib.sha256()
        self._crc = 0
        self.length = 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._file.write(view)
        self._sha.update(view)
        self._crc = zlib.crc32(view, self._crc)
        self.length += view.nbytes
        return view.nbytes

    def flush(self) -> None: ...

    def facts(self) -> dict[str, Any]:
        """As an artifact's manifest has them."""
        return {"bytes": self.length, "sha256": self._sha.hexdigest(), "crc32": f"{self._crc:08x}"}


def part_path(directory: Path, rank: int) -> Path:
    return directory / f".part-{rank:05d}.json"


def pack(objects: dict[str, list[Any]]) -> dict[str, bytes]:
    """Objects as they are now, in the form they are stored in."""
    # Most are modules' empty extra states.
    return {
        key: _pack_nothing(len(values)) if all(value is None for value in values) else _pack(values)
        for key, values in objects.items()
    }


def _pack(values: list[Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(values, buffer)
    return buffer.getvalue()


@functools.cache
def _pack_nothing(count: int) -> bytes:
    return _pack([None] * count)


def write_rank(
    directory: Path,
    rank: int,
    pieces: Sequence[Piece],
    tensors: Sequence[torch.Tensor],
    objects: dict[str, bytes],
    go_on: Callable[[], bool] = lambda: True,
) -> int:
    """This rank's data file, durable, and its part; bytes written. ``tensors``: what to write of ``pieces``.

    Raises OSError; ends early, without a part, when ``go_on`` says no.
    """
    directory.mkdir(parents=True, exist_ok=True)
    items: list[dict[str, Any]] = []
    files: dict[str, Any] = {}
    name = f"__{rank}_0.distcp"
    if pieces or objects:
        with (directory / name).open("wb", buffering=0) as file:
            out = _Summed(file)
            for key, content in objects.items():
                items.append({"key": key, "at": out.length, "length": len(content)})
                out.write(content)
            for piece, tensor in zip(pieces, tensors, strict=True):
                if not go_on():
                    return 0
                at = out.length
                torch.save(tensor.view(piece.size), out)
                items.append(
                    {
                        "key": piece.key,
                        "at": at,
                        "length": out.length - at,
                        "dtype": str(tensor.dtype).removeprefix("torch."),
                        "shape": piece.shape,
                        "offset": piece.offset,
                        "size": piece.size,
                    }
                )
            os.fsync(file.fileno())
        files[name] = out.facts()
    text = json.dumps({"rank": rank, "file": name, "files": files, "items": items})
    path = part_path(directory, rank)
    path.with_suffix(".tmp").write_text(text)
    os.replace(path.with_suffix(".tmp"), path)
    return sum(int(facts["bytes"]) for facts in files.values())


def finish(directory: Path, world: int, common: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Make the whole of the ranks' parts; the facts of their files. Rank 0, once all have written.

    Raises Incomplete when a part of the state is missing or there twice.
    """
    tensors: dict[str, TensorStorageMetadata] = {}
    stored: dict[str, Any] = {}
    places: dict[MetadataIndex, _StorageInfo] = {}
    files: dict[str, dict[str, Any]] = {}
    for rank in range(world):
        part = json.loads(part_path(directory, rank).read_text())
        files |= part["files"]
        for item in part["items"]:
            place = _StorageInfo(part["file"], item["at"], item["length"])
            if "shape" not in item:
                stored[item["key"]] = BytesStorageMetadata()
                places[MetadataIndex(item["key"])] = place
                continue
            size = torch.Size(item["shape"])
            tensor = tensors.setdefault(
                item["key"],
                TensorStorageMetadata(TensorProperties(dtype=getattr(torch, item["dtype"])), size, []),
            )
            if tensor.size != size:
                raise Incomplete(f"{item['key']} is {list(size)} and {list(tensor.size)} on different ranks")
            offset = torch.Size(item["offset"])
            index = MetadataIndex(item["key"], offset, len(tensor.chunks))
            if index in places:
                raise Incomplete(f"{item['key']} was written twice at {list(offset)}")
            tensor.chunks.append(ChunkStorageMetadata(offset, torch.Size(item["size"])))
            places[index] = place
    for key, tensor in tensors.items():
        written = sum(math.prod(chunk.sizes) for chunk in tensor.chunks)
        if written != math.prod(tensor.size):
            raise Incomplete(f"{key}: {written} of {math.prod(tensor.size)} elements were written")
    torch.save(common, directory / COMMON_STATE_FNAME)
    with (directory / _METADATA).open("wb") as file:
        pickle.dump(Metadata(state_dict_metadata={**tensors, **stored}, storage_data=places), file)
    save_config(CheckpointingConfig("torch_dist", 1), str(directory))
    for rank in range(world):
        part_path(directory, rank).unlink()
    fsync_dir(directory)
    return files
