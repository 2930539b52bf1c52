"""Processes of this machine through /proc: who is alive, who belongs to whom, and how to end them.

A process is identified by its pid *and* its start time, never by the pid alone: pids are reused.
Knows nothing of jobs or queues. Linux only. ``tests/orchestrator/test_local_process.py``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36


class Identity(NamedTuple):
    """One process. ``start``: clock ticks after boot (field 22 of /proc/PID/stat)."""

    pid: int
    start: int


class Process(NamedTuple):
    """A line of the process table; ``state`` is proc(5)'s letter."""

    identity: Identity
    parent: int
    session: int
    state: str

    @property
    def dead(self) -> bool:
        return self.state in "ZX"


def read(pid: int) -> Process | None:
    """The process with this pid now, zombies included; None if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name (field 2) may hold spaces and brackets: the fields go on after the last bracket.
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(Identity(pid, int(fields[19])), int(fields[1]), int(fields[3]), fields[0].decode())


def identity(pid: int) -> Identity:
    """Of a process that certainly exists (oneself, an unreaped child)."""
    found = read(pid)
    return found.identity if found else Identity(pid, -1)


def alive(who: Identity) -> bool:
    """Whether exactly this process still runs (a zombie does not)."""
    found = read(who.pid)
    return found is not None and found.identity == who and not found.dead


def table() -> dict[int, Process]:
    """Every process, zombies included."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := read(int(name))) is not None:
            found[process.identity.pid] = process
    return found


def boot_id() -> str:
    """Changes with every boot; empty where the kernel does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def file_contains(pid: int, name: str, needle: bytes) -> bool:
    """Whether /proc/PID/NAME (cmdline, environ) has this text; False if it may not be read."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return needle in file.read()
    except OSError:
        return False


def below(roots: Iterable[int], processes: dict[int, Process], *, stop: Callable[[int], bool]) -> set[int]:
    """Living descendants of ``roots``, not descending into processes for which ``stop`` is true."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.identity.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found and not stop(child):
                found.add(child)
                waiting.append(child)
    return {pid for pid in found if not processes[pid].dead}


def send(who: Identity, number: int) -> bool:
    """Signal exactly this process; False if it is gone. The descriptor pins it: no reuse in
    between."""
    try:
        handle = os.pidfd_open(who.pid)
    except ProcessLookupError:
        return False
    except OSError:  # a kernel without pidfd_open (before 5.3): a check, then an unpinned kill
        if not alive(who):
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(who.pid, number)
        return True
    try:
        found = read(who.pid)
        if found is None or found.identity != who:
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def kill_all(members: Callable[[], Collection[Identity]], *, patience_s: float) -> list[int]:
    """SIGKILL what ``members`` finds until it finds nothing twice; the pids that would not die.

    Asked again after each round, since a process may fork while it is being looked at.
    """
    deadline = time.monotonic() + patience_s
    quiet = 0
    pause = 0.005
    while quiet < 2:
        found = members()
        for who in found:
            send(who, signal.SIGKILL)
        quiet = 0 if found else quiet + 1
        if found:
            if time.monotonic() > deadline:
                return sorted(who.pid for who in found)
            time.sleep(pause)
            pause = min(pause * 2, 0.1)
    return []


def become_subreaper() -> None:
    """Orphaned descendants become children of this process, even those that changed session."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent_hook(mask: Iterable[signal.Signals]) -> Callable[[], None]:
    """For a child before exec: unblock ``mask``, and be killed when the parent dies."""
    libc = ctypes.CDLL(None, use_errno=True)  # loaded before the fork
    parent, signals = os.getpid(), list(mask)

    def hook() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(127)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)

    return hook
