"""The exit-code contract between workload, launcher and chain: one table.

``diagnosis`` turns a code into a verdict, ``launch`` passes codes through unchanged, docs list this
table; ``tests/resiliency/test_exitcodes.py`` keeps the three the same.
"""

from __future__ import annotations

from typing import Final

COMPLETE: Final = 0
RERUN_ELSEWHERE: Final = 16  # Megatron-LM rerun state machine: tell bad hardware from bad data
RESULT_REJECTED: Final = 17  # Megatron-LM rerun state machine: result cannot be trusted, stop
PROGRESS_MADE: Final = 75  # sysexits EX_TEMPFAIL: state is saved, run me again
NEEDS_HUMAN: Final = 76  # sysexits EX_PROTOCOL: cannot go on, a person must change something
DO_NOT_RESTART: Final = 93  # nvidia-resiliency-ext: the launcher must not restart
WATCHDOG: Final = 124  # timeout(1): no progress within the limit
NOT_EXECUTABLE: Final = 126  # shell: found, cannot be executed
NOT_FOUND: Final = 127  # shell: command not found

MEANING: Final[dict[int, str]] = {
    COMPLETE: "complete",
    RERUN_ELSEWHERE: "rerun elsewhere to tell bad hardware from bad data",
    RESULT_REJECTED: "result rejected, stop",
    PROGRESS_MADE: "progress made, resume",
    NEEDS_HUMAN: "cannot go on, needs a human",
    DO_NOT_RESTART: "do not restart",
    WATCHDOG: "watchdog: no progress within the limit",
    NOT_EXECUTABLE: "command is not executable",
    NOT_FOUND: "command not found",
}


def signal_of(code: int) -> int | None:
    """The signal number in a shell-style ``128+n`` code or Python's ``-n``; None if it is neither."""
    if code < 0:
        return -code
    return code - 128 if 128 < code <= 192 else None


def from_returncode(code: int) -> int:
    """Python's ``Popen.returncode`` (``-n`` for signal n) as a process exit code (``128+n``)."""
    return 128 - code if code < 0 else code


def describe(code: int) -> str:
    """One phrase for a person."""
    if code in MEANING:
        return MEANING[code]
    number = signal_of(code)
    if number is not None:
        import signal

        try:
            return f"ended by {signal.Signals(number).name}"
        except ValueError:
            return f"ended by signal {number}"
    return f"exit code {code}"


def phrase(code: int) -> str:
    """``exit code 75: progress made, resume``; a code without a meaning stands alone."""
    bare, said = f"exit code {code}", describe(code)
    return bare if said == bare else f"{bare}: {said}"
