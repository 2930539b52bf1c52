"""Real programs as site checks: what their ends mean, and that nothing of them stays behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch.preflight import CheckPlace, Settings, run_checks
from launch.preflight.running import run_all
from launch.preflight.site import DETAIL, first_line, probes, run_bounded
from resiliency.health import Check, Status

ROOT = Path(__file__).resolve().parents[3]


def site(tmp_path: Path, text: str, timeout: float = 20.0) -> Check:
    program = tmp_path / "check.sh"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    (one,) = run_all(probes([str(program)]), CheckPlace("n7", tmp_path, tmp_path), timeout).checks
    assert one.name == "site:check.sh"
    return one


@pytest.mark.parametrize(
    ("code", "status"), [(0, "OK"), (1, "WARN"), (2, "CRITICAL"), (3, "UNKNOWN"), (127, "UNKNOWN")]
)
def test_the_exit_code_is_the_answer(tmp_path: Path, code: int, status: str) -> None:
    found = site(tmp_path, f"echo; echo the disk is fine; echo more; exit {code}")
    assert found.status.value == status
    assert "the disk is fine" in found.detail and "more" not in found.detail


def test_a_signal_is_no_answer(tmp_path: Path) -> None:
    found = site(tmp_path, "kill -9 $$")
    assert found.status is Status.UNKNOWN and "signal 9" in found.detail


def test_it_is_told_where_it_is(tmp_path: Path) -> None:
    found = site(tmp_path, 'echo "$TRAINMASTER_NODE $TRAINMASTER_RUN_DIR"')
    assert found.detail == f"n7 {tmp_path}"


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("after", ["sleep 600", "exit 0"], ids=["late", "left-something-behind"])
def test_it_goes_with_all_that_it_started(tmp_path: Path, after: str) -> None:
    text = f"sleep 600 & echo $! > {tmp_path}/pid; echo begun; {after}"
    found = site(tmp_path, text, 2.0 if after != "exit 0" else 20.0)
    if after != "exit 0":
        assert found.status is Status.UNKNOWN and found.detail.endswith("was killed: begun")
    else:
        assert found.status is Status.OK
    pid = int((tmp_path / "pid").read_text())
    until = time.monotonic() + 10
    while not gone(pid) and time.monotonic() < until:
        time.sleep(0.02)
    assert gone(pid)


def test_an_exit_code_that_somebody_else_collected_is_no_good_one(tmp_path: Path) -> None:
    """The agent reaps what is left of a cycle; subprocess would then say 0. Here the kernel collects it."""
    program = tmp_path / "check.sh"
    program.write_text("#!/bin/sh\nexit 2\n")
    program.chmod(0o755)
    code = (
        "import signal, sys, time; from launch.preflight.site import judge, run_bounded; "
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
        "check = judge('site:check', *run_bounded([sys.argv[1]], time.monotonic() + 60)); "
        "print(check.status.value, check.detail)"
    )
    argv = [sys.executable, "-c", code, str(program)]
    said = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert said.startswith("UNKNOWN") and "lost" in said


def test_what_cannot_be_run_says_so(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no program")
    names = [str(tmp_path / "missing"), str(tmp_path / "data"), "bad\0name"]
    found = run_all(probes(names), CheckPlace("n", tmp_path, tmp_path), 10).checks
    assert [check.status for check in found] == [Status.UNKNOWN] * 3
    assert "No such file" in found[0].detail and "ermission" in found[1].detail


def test_no_shell_reads_its_name(tmp_path: Path) -> None:
    found = run_all(probes([f"touch {tmp_path}/made"]), CheckPlace("n", tmp_path, tmp_path), 10)
    assert found.checks[0].status is Status.UNKNOWN and not (tmp_path / "made").exists()


def test_two_of_one_name_are_told_apart() -> None:
    assert [p.name for p in probes(["/a/check", "/b/check"])] == ["site:check", "site:/b/check"]


def test_a_flood_of_output_blocks_nothing(tmp_path: Path) -> None:
    found = site(tmp_path, "echo first; head -c 3000000 /dev/zero | tr '\\0' x; exit 1")
    assert (found.status, found.detail) == (Status.WARN, "first")


def test_a_closed_output_is_no_end(tmp_path: Path) -> None:
    assert site(tmp_path, "exec >&-; sleep 0.3; exit 2").status is Status.CRITICAL


def test_a_line_is_made_fit_to_be_shown() -> None:
    assert first_line(b"\n\x1b[31mred\x07\n") == "[31mred"
    assert len(first_line(b"x" * 5000)) == DETAIL
    assert "hunter2" not in first_line(b"password=hunter2secret")
    assert first_line(b"\xff\xfe ok") == "\ufffd\ufffd ok"


def test_stdin_is_empty_and_nothing_leaks(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    code, output, _ = run_bounded(["/bin/cat"], time.monotonic() + 10)
    assert (code, output) == (0, b"")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_bad_node_fails_and_restarts_do_not_ask_again(tmp_path: Path) -> None:
    settings = Settings.read({"site": ["/bin/false"], "timeout": 20})
    place = CheckPlace("n", tmp_path, tmp_path)
    full = [check.name for check in run_checks(settings, place).checks]
    quick = [check.name for check in run_checks(settings, place, quick=True).checks]
    assert "site:false" in full and "site:false" not in quick
