"""Durable file operations among real, killed and racing processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from resiliency import durable
from resiliency.errors import LockBusy, StorageError


def python(code: str, *argv: str, **more: str) -> subprocess.Popen[str]:
    env = {**os.environ, **more}
    return subprocess.Popen([sys.executable, "-c", code, *argv], text=True, stdout=subprocess.PIPE, env=env)


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, _ = process.communicate()
    return process.returncode, out


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system without room."""
    where = tmp_path / "full"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(where)]
    if not (
        os.geteuid() == 0 and shutil.which("mount") and subprocess.run(mount, check=False).returncode == 0
    ):
        pytest.skip("needs the right to mount a small file system")
    yield where
    subprocess.run(["umount", str(where)], check=True)


def test_write_atomic_replaces_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "file"
    durable.write_atomic(path, "one")
    durable.write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_writer_killed_before_the_rename_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    durable.write_atomic(path, "old")
    code = "import sys; from pathlib import Path; from resiliency.durable import write_atomic\n"
    code += "write_atomic(Path(sys.argv[1]), 'new')"
    killed = python(code, str(path), TRAINMASTER_CRASH_AT="atomic.before_rename")
    assert finish(killed)[0] == -signal.SIGKILL
    assert path.read_text() == "old"


def test_a_full_disk_keeps_the_old_content_and_says_what_to_do(full: Path) -> None:
    path = full / "file"
    durable.write_atomic(path, "old")
    with pytest.raises(StorageError) as caught:
        durable.write_atomic(path, "x" * 200_000)
    assert str(path) in caught.value.message and "free space" in caught.value.hint
    assert path.read_text() == "old"
    assert [p.name for p in full.iterdir()] == ["file"]


def test_exactly_one_of_many_processes_creates(tmp_path: Path) -> None:
    path = tmp_path / "claim.json"
    code = "import os, sys, time; from pathlib import Path; from resiliency.durable import create_exclusive\n"
    code += "time.sleep(max(0, float(sys.argv[2]) - time.time()))\n"
    code += "print(create_exclusive(Path(sys.argv[1]), str(os.getpid()) * 10_000), os.getpid())"
    import time

    at = str(time.time() + 1.5)
    answers = [finish(process)[1].split() for process in [python(code, str(path), at) for _ in range(8)]]
    winners = [pid for won, pid in answers if won == "True"]
    assert len(answers) == 8 and len(winners) == 1
    assert path.read_text() == winners[0] * 10_000
    assert [p.name for p in tmp_path.iterdir()] == ["claim.json"]


def test_a_creator_killed_before_the_link_claims_nothing(tmp_path: Path) -> None:
    path = tmp_path / "claim.json"
    code = "import sys; from pathlib import Path; from resiliency.durable import create_exclusive\n"
    code += "create_exclusive(Path(sys.argv[1]), 'mine')"
    assert finish(python(code, str(path), TRAINMASTER_CRASH_AT="exclusive.before_link"))[0] == -9
    assert not path.exists()
    assert durable.create_exclusive(path, "next")
    assert not durable.create_exclusive(path, "late")
    assert path.read_text() == "next"


def test_long_names_fit(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250)
    assert durable.create_exclusive(path, "x")
    durable.write_atomic(path, "y")
    assert path.read_text() == "y"


HOLD = """
import sys, time
from pathlib import Path
from resiliency.durable import locked
with locked(Path(sys.argv[1]), wait_s=0):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_lock_is_refused_while_held_and_free_once_its_holder_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = python(HOLD, str(path))
    assert holder.stdout and holder.stdout.readline() == "held\n"
    with pytest.raises(LockBusy) as caught, durable.locked(path, wait_s=0.05, what="run x"):
        pass
    assert "run x" in caught.value.message and str(path) in caught.value.message
    holder.kill()
    holder.communicate()
    with durable.locked(path, wait_s=5):
        pass


def test_a_lock_is_released_after_an_exception(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(RuntimeError), durable.locked(path, wait_s=0):
        raise RuntimeError
    with durable.locked(path, wait_s=0):
        pass


def test_increments_under_a_lock_are_never_lost(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from resiliency.durable import locked\n"
    code += "n = Path(sys.argv[1])\n"
    code += "for _ in range(50):\n"
    code += "    with locked(n.with_suffix('.lock'), wait_s=120):\n"
    code += "        n.write_text(str(int(n.read_text()) + 1))"
    path = tmp_path / "n"
    path.write_text("0")
    assert [finish(p)[0] for p in [python(code, str(path)) for _ in range(3)]] == [0, 0, 0]
    assert path.read_text() == "150"


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda d: d / "nowhere" / "file", "does not exist"),
        (lambda d: d / "plain" / "file", "part of the path is a file"),
    ],
)
def test_errors_name_the_file_and_the_next_step(tmp_path: Path, make, hint: str) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "plain").write_text("")
    path = make(tmp_path)
    for act in (
        lambda: durable.write_atomic(path, "x"),
        lambda: durable.create_exclusive(path, "x"),
        lambda: durable.read_json(path),
        lambda: durable.locked(path).__enter__(),
    ):
        with pytest.raises(StorageError) as caught:
            act()
        assert str(path) in caught.value.message and hint in caught.value.hint


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b"{'a': 1}"])
def test_read_json_names_what_is_not_json(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(raw)
    with pytest.raises(StorageError, match=r"file\.json is not valid JSON"):
        durable.read_json(path)
    path.write_text(json.dumps({"a": 1}))
    assert durable.read_json(path) == {"a": 1}
