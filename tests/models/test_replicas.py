"""models.replicas: copies sent over real sockets, whole or refused."""

from __future__ import annotations

import json
import os
import socket
import struct
from pathlib import Path

import pytest

from models.copy_file import CopyFile, Damaged, read_facts, room
from models.replicas import Receiver, Sender

SECRET = "secret of this cycle"


def a_copy(directory: Path, step: int, size: int = 3_000_000) -> tuple[CopyFile, bytes]:
    file = CopyFile(directory / f"own-{step}", room(size, 100))
    content = os.urandom(size)
    file.payload(size)[:] = content
    file.seal(size, {"step": step})
    return file, content


@pytest.fixture
def partner(tmp_path: Path) -> Path:
    (tmp_path / "partner").mkdir()
    return tmp_path / "partner"


def test_arrives_whole_and_again_over_the_one_before(tmp_path: Path, partner: Path) -> None:
    receiver = Receiver(partner, SECRET)
    sender = Sender("127.0.0.1", receiver.port, SECRET)
    for step in (1, 2, 3):
        file, content = a_copy(tmp_path, step)
        sender.send("0-0.replica", file)
        got = CopyFile(partner / "0-0.replica")
        assert got.facts() == {"step": step}
        assert bytes(got.payload(got.verify())) == content
    assert [path.name for path in partner.iterdir()] == ["0-0.replica"]
    sender.close()
    receiver.close()


def test_a_damaged_copy_is_refused_and_leaves_nothing_valid(tmp_path: Path, partner: Path) -> None:
    receiver = Receiver(partner, SECRET)
    file, _ = a_copy(tmp_path, 1)
    file.map[5000] ^= 1
    with pytest.raises(OSError, match="refused"):
        Sender("127.0.0.1", receiver.port, SECRET).send("0-0.replica", file)
    with pytest.raises(Damaged):
        read_facts(partner / "0-0.replica")
    receiver.close()


def test_a_sender_that_dies_amid_a_copy_leaves_nothing_valid_and_the_next_one_is_served(
    tmp_path: Path, partner: Path
) -> None:
    receiver = Receiver(partner, SECRET)
    sender = Sender("127.0.0.1", receiver.port, SECRET)
    file, _ = a_copy(tmp_path, 1)
    sender.send("0-0.replica", file)
    sender.close()
    with socket.create_connection(("127.0.0.1", receiver.port)) as dying:
        said = {"secret": SECRET, "name": "0-0.replica", "length": file.size, "room": file.size}
        greeting = json.dumps(said).encode()
        dying.sendall(struct.pack("<I", len(greeting)) + greeting)
        assert dying.recv(1) == b"y"
        dying.sendall(bytes(100_000))
    again, _ = a_copy(tmp_path, 2)
    following = Sender("127.0.0.1", receiver.port, SECRET)
    following.send("0-1.replica", again)
    with pytest.raises(Damaged):
        read_facts(partner / "0-0.replica")
    assert read_facts(partner / "0-1.replica") == {"step": 2}
    receiver.close()


@pytest.mark.parametrize("name", ["../0-0.replica", ".hidden"])
def test_strangers_and_strange_names_get_no_place(tmp_path: Path, partner: Path, name: str) -> None:
    receiver = Receiver(partner, SECRET)
    file, _ = a_copy(tmp_path, 1)
    with pytest.raises(OSError):
        Sender("127.0.0.1", receiver.port, "guessed").send("0-0.replica", file)
    with pytest.raises(OSError):
        Sender("127.0.0.1", receiver.port, SECRET).send(name, file)
    assert list(partner.iterdir()) == []
    receiver.close()


def test_no_room_is_said(tmp_path: Path, partner: Path) -> None:
    receiver = Receiver(partner / "gone", SECRET)
    file, _ = a_copy(tmp_path, 1)
    with pytest.raises(OSError, match="refused"):
        Sender("127.0.0.1", receiver.port, SECRET).send("0-0.replica", file)
    receiver.close()
