"""The runner of real commands: every way a command ends is an answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from resiliency.edges import SystemClock, SystemRunner

run = SystemRunner()


def test_output_and_code() -> None:
    done = run(["/bin/sh", "-c", "cat; echo err >&2; exit 3"], timeout_s=30, stdin="in")
    assert (done.returncode, done.stdout, done.stderr, done.ok) == (3, "in", "err\n", False)
    assert run(["true"], timeout_s=30).ok


def test_arguments_are_never_seen_by_a_shell(tmp_path: Path) -> None:
    hostile = f"; touch {tmp_path}/x; $(touch {tmp_path}/y) `id`"
    assert run(["printf", "%s", hostile], timeout_s=30).stdout == hostile
    assert list(tmp_path.iterdir()) == []


def test_bytes_that_are_not_text() -> None:
    assert run(["printf", r"a\377b"], timeout_s=30).stdout == "a\ufffdb"


def test_a_missing_program_answers_like_a_shell() -> None:
    done = run(["no-such-program-here"], timeout_s=30)
    assert (done.returncode, done.stderr) == (127, "no-such-program-here: command not found")


@pytest.mark.parametrize("kind", ["directory", "not executable", "no interpreter", "too long"])
def test_what_cannot_be_started_answers_126(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "program"
    argv = [str(path)]
    if kind == "directory":
        path.mkdir()
    elif kind == "too long":
        argv = ["/bin/true", "x" * (4 << 20)]
    else:
        path.write_bytes(b"\x7fELF nothing")
        path.chmod(0o755 if kind == "no interpreter" else 0o644)
    done = run(argv, timeout_s=30)
    assert done.returncode == 126 and done.stderr


def test_a_command_that_does_not_end_has_no_code_and_is_dead() -> None:
    done = run(["/bin/sh", "-c", "echo $$; exec sleep 600"], timeout_s=1.0)
    assert done.returncode is None and not done.ok
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_the_environment_is_what_was_given() -> None:
    done = run(["/usr/bin/env"], timeout_s=30, env={"ONLY": "this"})
    assert done.stdout == "ONLY=this\n"


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_a_command_dies_with_its_parent(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = (
        "import sys; from resiliency.edges import SystemRunner\n"
        "SystemRunner()(['/bin/sh', '-c', 'echo $$ > ' + sys.argv[1] + '; exec sleep 600'],"
        " timeout_s=600, die_with_parent=True)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(pid_file)])
    child = int(_wait(lambda: pid_file.exists() and pid_file.read_text().strip()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert _wait(lambda: not _alive(child))


def _wait(condition):  # type: ignore[no-untyped-def]
    """The first true answer within a minute."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.02)
    raise AssertionError("waited in vain")


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # dead, and not yet reaped by whoever adopted it


def test_the_clock_goes_forward() -> None:
    clock = SystemClock()
    before = clock.mono()
    clock.sleep(0.01)
    assert clock.mono() > before
    assert abs(clock.wall() - time.time()) < 5
