"""A site's own checks: programs that exit with 0 (good), 1 (warning) or 2 (bad node).

Anything else is UNKNOWN. Run without a shell; killed with its process group when its time is over, and
also what it left running when it ended. ``tests/launch/preflight/test_site.py``.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from resiliency import contract
from resiliency.health import Check, Status
from resiliency.redact import redact

from .running import Probe
from .settings import CheckPlace

DETAIL: Final = 200
_KEEP: Final = 8192
_TICK_S: Final = 0.02
_STATUS: Final = {0: Status.OK, 1: Status.WARN, 2: Status.CRITICAL}


def probes(programs: Sequence[str]) -> list[Probe]:
    found: list[Probe] = []
    for program in programs:
        name = f"site:{Path(program).name}"
        if any(probe.name == name for probe in found):
            name = f"site:{program}"
        found.append(Probe(name, (name,), _Site(name, program).run, quick=False))
    return found


class _Site:
    def __init__(self, name: str, program: str) -> None:
        self.name, self.program = name, program

    def run(self, place: CheckPlace, deadline: float) -> Sequence[Check]:
        env = {
            **os.environ,
            contract.ENV_NODE: place.node,
            contract.ENV_RUN_DIR: str(place.run_dir),
        }
        ended = run_bounded([self.program], deadline, env)
        return [judge(self.name, *ended)]


def judge(name: str, code: int | None, output: bytes, error: str = "") -> Check:
    """``code``: None when it did not end in time; ``error``: why it could not be started."""
    line = first_line(output)
    if error:
        return Check(name, Status.UNKNOWN, f"could not be run: {error}")
    if code is None:
        return Check(
            name, Status.UNKNOWN, "did not end in time and was killed" + (f": {line}" if line else "")
        )
    if code in _STATUS:
        return Check(name, _STATUS[code], line, (f"exit {code}",))
    how = f"exit {code}" if code >= 0 else f"signal {-code}"
    said = f"ended with {how}, which means nothing for a check" + (f": {line}" if line else "")
    return Check(name, Status.UNKNOWN, said, (how,))


def first_line(output: bytes) -> str:
    """The first line with something in it, fit to be shown: no control characters, no credentials."""
    for line in output.decode("utf-8", "replace").splitlines():
        shown = "".join(c if c.isprintable() else " " for c in line).strip()
        if shown:
            return redact(shown)[:DETAIL]
    return ""


def run_bounded(
    argv: Sequence[str], deadline: float, env: dict[str, str] | None = None
) -> tuple[int | None, bytes, str]:
    """Exit code (None: killed at the deadline), the beginning of stdout, and why it could not be started."""
    try:
        process = subprocess.Popen(
            list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=env, start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        return 0, b"", getattr(error, "strerror", None) or str(error)
    output = bytearray()
    assert process.stdout is not None
    fd = process.stdout.fileno()
    os.set_blocking(fd, False)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(fd, selectors.EVENT_READ)
            pipe_open = True
            while _runs(process.pid) and time.monotonic() < deadline:
                if not pipe_open:
                    time.sleep(_TICK_S)
                elif selector.select(_TICK_S):
                    pipe_open = _drain(fd, output)
                    if not pipe_open:
                        selector.unregister(fd)
        code = _code(process)
        if code is not None:
            _drain(fd, output)
        return code, bytes(output), ""
    except ChildProcessError:
        return None, bytes(output), "its exit code was lost: the agent ended all it had started"
    finally:
        # Not only when late: what it started in the background must not live on beside the ranks.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)


def _runs(pid: int) -> bool:
    """subprocess takes a status that somebody else collected for 0: a bad node would be a good one. So this
    looks first, and raises ChildProcessError."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def _code(process: subprocess.Popen[bytes]) -> int | None:
    return None if _runs(process.pid) else process.wait()


def _drain(fd: int, output: bytearray) -> bool:
    """Take what is there, keep its beginning; False when there will be no more."""
    while True:
        try:
            part = os.read(fd, 65536)
        except BlockingIOError:
            return True
        if not part:
            return False
        output += part[: max(0, _KEEP - len(output))]
