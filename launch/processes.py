"""Process trees of an agent: nothing it started may outlive it, whatever it forked or detached.

Linux only, through /proc and prctl(2). ``tests/launch/test_processes.py``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Orphaned descendants become children of this process, even those that changed session."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def child_hook(*, ignore: Collection[signal.Signals] = ()) -> Callable[[], None]:
    """For a child before exec: be killed when the parent dies; start with some signals ignored.

    The parent is the *thread* that forks (prctl(2)), so only the main thread may use this.
    """
    libc, parent = ctypes.CDLL(None, use_errno=True), os.getpid()

    def hook() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(127)
        for number in ignore:
            signal.signal(number, signal.SIG_IGN)

    return hook


def alive(pid: int) -> bool:
    """Whether a process of this id runs (a zombie does not)."""
    return _stat(pid)[1] not in ("", "Z", "X")


def state_letter(pid: int) -> str:
    """R, S, D, T (stopped), Z …, as ps(1) has it; empty when there is no such process."""
    return _stat(pid)[1]


def _stat(pid: int) -> tuple[int, str]:
    """(parent, state letter); ``(0, "")`` when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return 0, ""
    # The name (field 2) may hold spaces and brackets: the fields go on after the last bracket.
    fields = text[text.rindex(b")") + 2 :].split()
    return int(fields[1]), fields[0].decode()


def descendants(root: int, *, without: Collection[int] = ()) -> dict[int, str]:
    """Every process below ``root`` → its state letter, zombies included; not the trees ``without``."""
    children: dict[int, list[tuple[int, str]]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            parent, state = _stat(int(name))
            if state:
                children.setdefault(parent, []).append((int(name), state))
    found: dict[int, str] = {}
    waiting = [root]
    while waiting:
        for pid, state in children.get(waiting.pop(), ()):
            if pid not in found and pid not in without:
                found[pid] = state
                waiting.append(pid)
    return found


def kill_descendants(
    *,
    patience_s: float = 10.0,
    known: Collection[int] = (),
    keep: Collection[int] = (),
    keep_trees: Collection[int] = (),
) -> list[int]:
    """SIGKILL everything below this process until nothing is left; the pids that would not die.

    ``known``: children whose status somebody else collects; other zombies are reaped here. ``keep``:
    processes that stay, though what they started does not; ``keep_trees``: with all they started.
    Needs :func:`become_subreaper` first, so that nothing escapes by its parent's death.
    """
    deadline = time.monotonic() + patience_s
    pause = 0.01
    while True:
        living = []
        found = descendants(os.getpid(), without=keep_trees)
        for pid, state in found.items():
            if pid in keep:
                continue
            if state not in ("Z", "X"):
                living.append(pid)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            elif pid not in known:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
        if not living or time.monotonic() > deadline:
            return living
        time.sleep(pause)
        pause = min(pause * 2, 0.2)
