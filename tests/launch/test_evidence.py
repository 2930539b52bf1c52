"""Evidence of ranks that stand still, from real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launch import evidence
from resiliency.steprecord import Recorder, path_of

Start = Callable[..., subprocess.Popen[bytes]]

_HUNG = """
import time
def waits_for_ever():
    print("up", flush=True)
    time.sleep(1000)
def step():
    waits_for_ever()
step()
"""


@pytest.fixture
def start() -> Iterator[Start]:
    started = []

    def begin(code: str = _HUNG, **env: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, **env}
        )
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def without_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "py_spy", lambda: None)


def of(found: list[evidence.Found], kind: str) -> dict[int | None, evidence.Found]:
    return {item["rank"]: item for item in found if item["kind"] == kind}


needs_py_spy = pytest.mark.skipif(evidence.py_spy() is None, reason="needs py-spy")


@needs_py_spy
def test_the_stack_of_every_rank_stopped_ones_included(start: Start, tmp_path: Path) -> None:
    ranks = {0: start(), 1: start(), 2: start()}
    ranks[1].send_signal(signal.SIGSTOP)
    found = evidence.gather({n: one.pid for n, one in ranks.items()}, tmp_path / "new" / "dir", 20.0)
    stacks = of(found, "stack")
    assert sorted(stacks) == [0, 1, 2], found
    for rank, item in stacks.items():
        assert item["top_frame"] == "waits_for_ever (<string>:5)"
        assert item["file"].endswith(f"rank-{rank}.stack.txt")
        text = Path(item["file"]).read_text()
        assert "waits_for_ever" in text and "step" in text
    assert ranks[0].poll() is None  # still there, and as it was
    assert Path(f"/proc/{ranks[0].pid}/stat").read_text().split(") ")[1][0] == "S"


@needs_py_spy
def test_what_is_not_python_or_gone_is_told_by_the_kernel(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with subprocess.Popen(["sleep", "1000"]) as sleeper:
        try:
            found = evidence.gather({0: sleeper.pid, 1: gone.pid}, tmp_path, 20.0)
        finally:
            sleeper.kill()
    kernel = of(found, "kernel")
    assert kernel[0]["top_frame"].startswith("S (sleeping)")
    assert kernel[1]["top_frame"] == f"process {gone.pid} is gone"


def test_without_py_spy_the_kernel_s_word_is_kept(start: Start, tmp_path: Path, without_py_spy: None) -> None:
    rank = start()
    rank.send_signal(signal.SIGSTOP)
    _until(lambda: "T (" in evidence._kernel(0, rank.pid, tmp_path / "x")["top_frame"])  # type: ignore[index]
    [item] = evidence.gather({0: rank.pid}, tmp_path, 5.0)
    assert (item["kind"], item["top_frame"][:11]) == ("kernel", "T (stopped)")
    assert f"thread {rank.pid}" in (tmp_path / "rank-0.stack.txt").read_text()


def test_a_py_spy_that_does_not_answer_is_not_waited_for(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = tmp_path / "py-spy"
    stuck.write_text("#!/bin/sh\nexec sleep 1000\n")
    stuck.chmod(0o755)
    monkeypatch.setattr(evidence, "py_spy", lambda: str(stuck))
    rank = start()
    found = evidence.gather({0: rank.pid, 1: rank.pid}, tmp_path / "out", 0.3)
    assert sorted(of(found, "kernel")) == [0, 1]  # type: ignore[type-var]
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert not [pid for pid in children if Path(f"/proc/{pid}/comm").read_text().strip() == "sleep"]


def test_records_are_kept_as_they_are(tmp_path: Path, without_py_spy: None) -> None:
    records = tmp_path / "records"
    records.mkdir()
    for rank, loss in ((0, 2.5), (1, float("nan"))):
        record = Recorder(path_of(records, rank), rank)
        record.step, record.section, record.in_collective, record.loss = 12, b"step", rank == 0, loss
        record.beat = time.monotonic() - 5
        record.write()
    found = evidence.gather({}, tmp_path / "out", 1.0, records_dir=records, node="n1")
    [item] = found
    assert item["kind"] == "records" and item["file"].endswith("records.n1.json")
    data = json.loads(Path(item["file"]).read_text())
    assert (data["0"]["step"], data["0"]["in_collective"], data["1"]["in_collective"]) == (12, True, False)
    assert data["0"]["age_s"] >= 5 and data["1"]["loss"] == "nan"


def test_no_secret_of_a_command_line_is_kept(start: Start, tmp_path: Path) -> None:
    if evidence.py_spy() is None:
        pytest.skip("needs py-spy")
    rank = start(_HUNG + "\n# api_key=sk-verysecretvalue0123456789abcdef\n")
    evidence.gather({0: rank.pid}, tmp_path, 20.0)
    assert "verysecret" not in (tmp_path / "rank-0.stack.txt").read_text()


def test_a_flight_recorder_that_listens_is_asked(start: Start, tmp_path: Path, without_py_spy: None) -> None:
    pipe, dump = tmp_path / "pipe-3.pipe", tmp_path / "trace-3"
    os.mkfifo(pipe)
    rank = start(
        TORCH_NCCL_DEBUG_INFO_PIPE_FILE=str(tmp_path / "pipe-"),
        TORCH_NCCL_DEBUG_INFO_TEMP_FILE=str(tmp_path / "trace-"),
    )
    listening = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def watchdog() -> None:  # as NCCL's: polls, then dumps
        while not _read(listening):
            time.sleep(0.01)
        dump.write_bytes(b"a dump")

    thread = threading.Thread(target=watchdog)
    thread.start()
    try:
        found = evidence.gather({3: rank.pid}, tmp_path / "out", 20.0)
    finally:
        thread.join()
        os.close(listening)
    assert Path(of(found, "flight")[3]["file"]).read_bytes() == b"a dump"


def test_a_pipe_nobody_reads_or_that_is_a_file_holds_nothing_up(
    start: Start, tmp_path: Path, without_py_spy: None
) -> None:
    os.mkfifo(tmp_path / "p0.pipe")
    (tmp_path / "p1.pipe").write_text("")
    rank = start(
        TORCH_NCCL_DEBUG_INFO_PIPE_FILE=str(tmp_path / "p"),
        TORCH_NCCL_DEBUG_INFO_TEMP_FILE=str(tmp_path / "none"),
    )
    found = evidence.gather({0: rank.pid, 1: rank.pid}, tmp_path / "out", 600.0)
    assert sorted(item["kind"] for item in found) == ["kernel", "kernel"]
    assert (tmp_path / "p1.pipe").read_text() == ""


def test_an_earlier_dump_of_nccl_s_own_is_kept(start: Start, tmp_path: Path, without_py_spy: None) -> None:
    (tmp_path / "t0").write_bytes(b"earlier")
    rank = start(TORCH_FR_DUMP_TEMP_FILE=str(tmp_path / "t"))
    found = evidence.gather({0: rank.pid}, tmp_path / "out", 5.0)
    assert Path(of(found, "flight")[0]["file"]).read_bytes() == b"earlier"


@pytest.mark.skipif(not os.path.isdir("/proc/1"), reason="needs /proc")
def test_a_directory_that_cannot_be_made_is_an_oserror(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        evidence.gather({}, tmp_path / "file" / "dir", 1.0)


def test_py_spy_is_found_beside_python() -> None:
    found = evidence.py_spy()
    assert found is None or os.access(found, os.X_OK)
    assert found is not None or shutil.which("py-spy") is None


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 16)
    except BlockingIOError:
        return b""


def _until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
