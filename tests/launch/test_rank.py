"""The shim: the program runs as if by itself, and its end is recorded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launch import rank

from .conftest import ROOT, until

SHIM = str(ROOT / "launch" / "rank.py")


def run(
    tmp_path: Path, body: str, *options: str, argv: list[str] | None = None, **env: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    program = tmp_path / "program.py"
    program.write_text(body)
    done = subprocess.run(
        [sys.executable, SHIM, *options, "--", *(argv or [str(program), "a b", "--", "c"])],
        capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, rank.ENV_DIR: str(tmp_path), "RANK": "3", **env},
    )  # fmt: skip
    end = tmp_path / f"3.{env.get('TORCHELASTIC_RESTART_COUNT', '0')}.end"
    return done, json.loads(end.read_text()) if end.exists() else {}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("pass", 0),
        ("import sys; sys.exit()", 0),
        ("import sys; sys.exit(75)", 75),
        ("import sys; sys.exit('words')", 1),
        ("raise SystemExit(256 + 7)", 7),
        ("import sys; sys.exit(True)", 1),
    ],
)
def test_codes_are_the_interpreters(tmp_path: Path, body: str, code: int) -> None:
    program = tmp_path / "plain.py"
    program.write_text(body)
    plain = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
    done, end = run(tmp_path, body)
    assert done.returncode == plain.returncode == code == end["code"]
    assert done.stderr == plain.stderr


def test_an_exception_keeps_its_traceback_and_is_summed_up(tmp_path: Path) -> None:
    done, end = run(tmp_path, "def f():\n    raise ValueError('first line\\nsecond')\nf()")
    assert done.returncode == 1
    assert "in f" in done.stderr and "second" in done.stderr
    assert (end["code"], end["summary"]) == (1, "ValueError: first line")


@pytest.mark.parametrize(
    ("error", "category"),
    [
        ("OSError(28, 'No space left')", "storage_full"),
        ("MemoryError()", "host_oom"),
        ("OSError(2, 'no file')", ""),
    ],
)
def test_plain_causes_are_named(tmp_path: Path, error: str, category: str) -> None:
    _, end = run(tmp_path, f"raise {error}")
    assert end["category"] == category


def test_the_program_sees_its_own_world(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("WORD = 'mine'")
    body = """
import helper, json, os, sys
print(json.dumps([sys.argv[1:], __name__, helper.WORD, any(p.endswith('/launch') for p in sys.path),
                  os.environ['TRAINMASTER_CYCLE']]))
"""
    done, _ = run(tmp_path, body, TORCHELASTIC_RESTART_COUNT="2")
    assert json.loads(done.stdout) == [["a b", "--", "c"], "__main__", "mine", False, "2"]


def test_modules_and_spawned_children_work(tmp_path: Path) -> None:
    body = """
import multiprocessing
def child(queue):
    queue.put(__name__)
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    print(queue.get(timeout=50))
    process.join()
"""
    (tmp_path / "asmodule.py").write_text(body)
    for argv in (["-m", "asmodule"], [str(tmp_path / "asmodule.py")]):
        done, end = run(tmp_path, "", argv=argv, PYTHONPATH=str(tmp_path))
        assert (done.stdout, end["code"]) == ("__mp_main__\n", 0), done.stderr


def test_under_a_launcher_75_looks_like_success_and_is_recorded(tmp_path: Path) -> None:
    done, end = run(tmp_path, "import sys; sys.exit(75)", "--launched")
    assert (done.returncode, end["code"]) == (0, 75)
    done, end = run(tmp_path, "import sys; sys.exit(76)", "--launched")
    assert (done.returncode, end["code"]) == (76, 76)


def test_any_command_can_be_a_rank(tmp_path: Path) -> None:
    done, end = run(tmp_path, "", "--exec", argv=["sh", "-c", "kill -9 $$"])
    assert (done.returncode, end["code"]) == (137, 137)
    done, end = run(tmp_path, "", "--exec", argv=["no-such-program"])
    assert (done.returncode, end["code"]) == (127, 127)


def test_a_full_record_directory_does_not_end_the_rank(tmp_path: Path) -> None:
    done, _ = run(tmp_path, "print('ran')", **{rank.ENV_DIR: str(tmp_path / "missing")})
    assert (done.returncode, done.stdout) == (0, "ran\n")


def test_a_step_wide_signal_ends_neither_the_rank_nor_spares_its_children(tmp_path: Path) -> None:
    body = """
import multiprocessing, os, subprocess, sys, time
if __name__ == "__main__":
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    worker.start()
    program = subprocess.Popen(["sleep", "600"])
    open("ready", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.02)
    worker.terminate(); program.terminate()
    worker.join(20); program.wait(20)
    print(worker.exitcode, program.returncode)
    sys.exit(75)
"""
    program = tmp_path / "program.py"
    program.write_text(body)
    with subprocess.Popen(
        [sys.executable, SHIM, "--", str(program)], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as shim:
        until(lambda: (tmp_path / "ready").exists())
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
            shim.send_signal(number)
        (tmp_path / "go").touch()
        out, _ = shim.communicate(timeout=60)
    assert (shim.returncode, out) == (75, "-15 -15\n")
