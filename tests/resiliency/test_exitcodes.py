"""The exit-code contract: one table, and a verdict for each of its codes."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from resiliency import exitcodes
from resiliency.diagnosis import AttemptEvidence, diagnose


def test_the_codes_others_rely_on() -> None:
    """Numbers of other programs and of documents: never to change."""
    assert (exitcodes.COMPLETE, exitcodes.RERUN_ELSEWHERE, exitcodes.RESULT_REJECTED) == (0, 16, 17)
    assert (exitcodes.PROGRESS_MADE, exitcodes.NEEDS_HUMAN) == (75, 76)
    assert (exitcodes.DO_NOT_RESTART, exitcodes.WATCHDOG) == (93, 124)
    assert (exitcodes.NOT_EXECUTABLE, exitcodes.NOT_FOUND) == (126, 127)


@pytest.mark.parametrize("code", sorted(exitcodes.MEANING))
def test_each_code_has_a_verdict_of_its_own(code: int) -> None:
    seen = AttemptEvidence(scheduler_state="FAILED" if code else "COMPLETED", exit_code=code, started=True)
    verdict = diagnose(seen)
    assert verdict.category != "unknown"
    assert verdict.confidence > 0.5


@pytest.mark.parametrize(
    ("code", "number"), [(0, None), (1, None), (128, None), (137, 9), (143, 15), (-9, 9), (255, None)]
)
def test_signal_of(code: int, number: int | None) -> None:
    assert exitcodes.signal_of(code) == number


def test_from_returncode_agrees_with_the_shell() -> None:
    argv = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
    mine = exitcodes.from_returncode(subprocess.run(argv, check=False).returncode)
    script = '"$@"; exit $?'
    shell = subprocess.run(["/bin/sh", "-c", script, "sh", *argv], check=False, stderr=subprocess.DEVNULL)
    assert mine == shell.returncode == 128 + signal.SIGKILL
    assert exitcodes.from_returncode(3) == 3


@pytest.mark.parametrize(
    ("code", "phrase"),
    [
        (0, "complete"),
        (75, "progress made, resume"),
        (137, "ended by SIGKILL"),
        (-11, "ended by SIGSEGV"),
        (128 + 64, "ended by SIGRTMAX"),
        (128 + 60, "ended by signal 60"),
        (42, "exit code 42"),
    ],
)
def test_describe(code: int, phrase: str) -> None:
    assert exitcodes.describe(code) == phrase


def test_a_code_without_a_meaning_is_said_once() -> None:
    assert exitcodes.phrase(1) == "exit code 1"
    assert exitcodes.phrase(75) == "exit code 75: progress made, resume"
    assert exitcodes.phrase(137) == "exit code 137: ended by SIGKILL"
