"""Processes told apart by pid and start time, and trees found and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from orchestrator.schedulers.local import process
from orchestrator.schedulers.local.process import Identity


def wait_for(path: Path) -> str:
    end = time.monotonic() + 20
    while not path.exists() or not path.read_text().strip():
        assert time.monotonic() < end
        time.sleep(0.02)
    return path.read_text()


def test_a_name_with_spaces_and_brackets_is_read_right(tmp_path: Path) -> None:
    odd = tmp_path / "a ) R 1 (b"
    odd.symlink_to("/bin/sleep")
    child = subprocess.Popen([odd, "600"])
    try:
        found = process.read(child.pid)
        assert found is not None
        assert found.parent == os.getpid()
        assert found.session == os.getsid(child.pid)
        assert process.alive(found.identity)
    finally:
        child.kill()
        child.wait()


def test_a_zombie_is_not_alive_and_a_start_time_tells_reuse() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    who = process.identity(child.pid)
    assert not process.alive(who)
    child.wait()
    assert process.read(child.pid) is None
    me = process.identity(os.getpid())
    assert process.alive(me)
    assert not process.alive(Identity(me.pid, me.start - 1))


def test_a_signal_never_reaches_another_process_with_the_same_pid() -> None:
    child = subprocess.Popen(["sleep", "600"])
    who = process.identity(child.pid)
    assert process.send(Identity(who.pid, who.start + 1), signal.SIGKILL) is False
    assert child.poll() is None
    assert process.send(who, signal.SIGKILL) is True
    assert child.wait() == -signal.SIGKILL
    assert process.send(who, signal.SIGKILL) is False


def test_descendants_without_the_branches_that_are_not_ours(tmp_path: Path) -> None:
    script = "setsid sleep 600 & bash -c 'sleep 600 & echo $! > inner; wait' & echo $! > branch; wait"
    child = subprocess.Popen(["bash", "-c", script], cwd=tmp_path, start_new_session=True)
    try:
        branch, inner = int(wait_for(tmp_path / "branch")), int(wait_for(tmp_path / "inner"))
        everything = process.below([child.pid], process.table(), stop=lambda _: False)
        assert {branch, inner} < everything
        rest = process.below([child.pid], process.table(), stop=lambda pid: pid == branch)
        assert rest == everything - {branch, inner}
    finally:
        members = [process.identity(p) for p in [child.pid, *everything]]
        left = process.kill_all(lambda: [m for m in members if process.alive(m)], patience_s=5)
        child.wait()
    assert left == []


def test_orphans_come_to_the_subreaper_even_from_another_session(tmp_path: Path) -> None:
    program = (
        "import os, subprocess, sys, time; from orchestrator.schedulers.local import process;"
        "process.become_subreaper();"
        "subprocess.run(['bash', '-c', 'setsid sleep 600 & echo $! > orphan']);"
        "pid = int(open('orphan').read()); print(process.read(pid).parent == os.getpid());"
        "os.kill(pid, 9)"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "True"
