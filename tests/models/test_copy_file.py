"""models.copy_file: a copy is whole or it is plainly none."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any

import pytest

from models.copy_file import CopyFile, Damaged, read_facts, room

CONTENT = os.urandom(10_000)
FACTS: dict[str, Any] = {"step": 7, "table": [["w", "float32", [2, 3], 0, 24]]}


def written(path: Path) -> CopyFile:
    file = CopyFile(path, room(len(CONTENT), 200))
    file.invalidate()
    file.payload(len(CONTENT))[:] = CONTENT
    file.seal(len(CONTENT), FACTS)
    return file


def test_comes_back_as_it_was(tmp_path: Path) -> None:
    written(tmp_path / "copy").close()
    file = CopyFile(tmp_path / "copy")
    assert file.facts() == FACTS == read_facts(tmp_path / "copy")
    assert file.verify() == len(CONTENT)
    assert bytes(file.payload(len(CONTENT))) == CONTENT


def test_not_whole_until_it_is_sealed_also_when_written_over(tmp_path: Path) -> None:
    file = CopyFile(tmp_path / "copy", room(len(CONTENT), 200))
    with pytest.raises(Damaged, match="not finished"):
        file.facts()
    file = written(tmp_path / "copy")
    file.invalidate()
    with pytest.raises(Damaged, match="not finished"):
        read_facts(tmp_path / "copy")


@pytest.mark.parametrize("seed", range(20))
def test_any_flipped_bit_of_it_is_found(tmp_path: Path, seed: int) -> None:
    file = written(tmp_path / "copy")
    whole = len(file.whole())
    chance = random.Random(seed)
    used = [range(36), range(4096, 4096 + len(CONTENT)), range(whole - 40, whole)]
    at = chance.choice(chance.choice(used))
    file.map[at] ^= 1 << chance.randrange(8)
    with pytest.raises(Damaged):
        file.verify()


@pytest.mark.parametrize("size", [0, 10, 4096, 9000])
def test_truncated(tmp_path: Path, size: int) -> None:
    written(tmp_path / "copy").close()
    os.truncate(tmp_path / "copy", size)
    with pytest.raises(Damaged):
        read_facts(tmp_path / "copy")


def test_room_is_taken_when_it_is_made(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught:
        CopyFile(tmp_path / "copy", 1 << 60)
    assert caught.value.errno in (errno.ENOSPC, errno.EFBIG)
    assert not (tmp_path / "copy").exists()


def test_a_description_that_outgrew_its_room_is_refused(tmp_path: Path) -> None:
    file = CopyFile(tmp_path / "copy", room(100, 10))
    with pytest.raises(OSError, match="outgrew"):
        file.seal(100, {"long": "x" * 20_000})
