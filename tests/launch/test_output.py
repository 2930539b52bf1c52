"""Output from pipe to log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launch.output import Relay


def send(relay: Relay, *blocks: bytes) -> None:
    copy = os.dup(relay.writer)
    relay.started()
    for block in blocks:
        os.write(copy, block)
    os.close(copy)
    relay.finish(20)


def test_everything_arrives_and_lines_are_whole(tmp_path: Path) -> None:
    lines: list[bytes] = []
    relay = Relay(tmp_path / "logs" / "n.log", lines.append)
    send(relay, b"one\ntw", b"o\n\xff\xfe\n", b"no newline")
    assert relay.path.read_bytes() == b"one\ntwo\n\xff\xfe\nno newline"
    assert lines == [b"one", b"two", b"\xff\xfe", b"no newline"]


def test_a_second_attempt_appends(tmp_path: Path) -> None:
    for word in (b"first\n", b"second\n"):
        send(Relay(tmp_path / "n.log"), word)
    assert (tmp_path / "n.log").read_bytes() == b"first\nsecond\n"


def test_a_full_disk_drops_output_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[bytes] = []
    send(Relay(Path("/dev/full"), lines.append), b"a\n", b"b\n")
    assert lines == [b"a", b"b"]
    assert capsys.readouterr().err.count("output is dropped") == 1


def test_an_endless_line_does_not_fill_the_memory(tmp_path: Path) -> None:
    lines: list[bytes] = []
    relay = Relay(tmp_path / "n.log", lines.append)
    send(relay, *[b"x" * 50_000] * 20, b"\nafter\n")
    assert relay.path.stat().st_size == 20 * 50_000 + 7
    assert lines[-1] == b"after" and max(map(len, lines)) < 200_000
