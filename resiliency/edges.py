"""The edges as Protocols, so that the core is tested without patching: time and commands."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Time as the core sees it. ``wall`` is Unix seconds and may jump; ``mono`` never goes back."""

    def wall(self) -> float: ...
    def mono(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clocks."""

    def wall(self) -> float:
        return time.time()

    def mono(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(frozen=True)
class Completed:
    """What a command answered. ``returncode`` is None when it did not end within its deadline."""

    argv: tuple[str, ...]
    returncode: int | None
    stdout: str
    stderr: str
    seconds: float

    @property
    def ok(self) -> bool:
        return self.returncode == 0


class Runner(Protocol):
    """Runs one command given as an argument list; never through a shell."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        die_with_parent: bool = False,
    ) -> Completed: ...


_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def _parent_death_hook() -> Callable[[], None]:
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def hook() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the request: no signal will come
            os._exit(137)

    return hook


class SystemRunner:
    """Runs real commands. A missing program answers 127 like a shell, not an exception."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        die_with_parent: bool = False,
    ) -> Completed:
        started = time.monotonic()
        # An sbatch that outlives a killed submitter could still submit after its token was looked
        # up and found absent; it must die with us.
        hook = _parent_death_hook() if die_with_parent else None
        try:
            done = subprocess.run(
                list(argv),
                stdin=subprocess.DEVNULL if stdin is None else None,
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                env=None if env is None else dict(env),
                preexec_fn=hook,
                check=False,
            )
        except FileNotFoundError:
            return Completed(tuple(argv), 127, "", f"{argv[0]}: command not found", 0.0)
        except OSError as error:  # not executable, no interpreter, argument list too long
            return Completed(tuple(argv), 126, "", str(error), 0.0)
        except subprocess.TimeoutExpired as late:
            out = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else ""
            err = late.stderr.decode(errors="replace") if isinstance(late.stderr, bytes) else ""
            return Completed(tuple(argv), None, out, err, time.monotonic() - started)
        return Completed(tuple(argv), done.returncode, done.stdout, done.stderr, time.monotonic() - started)
