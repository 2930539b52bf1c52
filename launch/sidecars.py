"""Roles beside the stage's own, on one node: started, watched, each replica started again by itself.

They outlive the cycles of an attempt: a server that is warm stays warm while training restarts. What a
replica writes goes to a log of its role. ``tests/launch/test_sidecars.py``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resiliency import exitcodes
from resiliency.durable import file_mode

from . import processes
from .config import Role

#: Seconds before the first restart of a replica that did not live long; doubled each time.
PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
#: A replica that lived this long is not taken to be in a loop of failing.
_LIVED_S = 60.0

Tell = Callable[..., Any]


@dataclass
class _Replica:
    role: Role
    number: int
    popen: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    restarts: int = 0
    pause_s: float = PAUSE_S
    due_at: float | None = None
    given_up: bool = False


@dataclass
class Sidecars:
    """One node's. ``log_of``: role name → its log; ``tell``: journals an event (type, data)."""

    roles: tuple[Role, ...]
    node: str
    workdir: str | None
    log_of: Callable[[str], Path]
    tell: Tell
    fill: Callable[[tuple[str, ...]], list[str]]
    failed: list[tuple[str, int]] = field(default_factory=list)  # essential ones that are given up
    _replicas: list[_Replica] = field(default_factory=list)

    def ensure(self, *, first: bool, environment: Mapping[str, str]) -> None:
        """Start what belongs on this node and does not run yet; end what no longer does."""
        self._environment = dict(environment)
        wanted = {
            (role.name, number)
            for role in self.roles
            if first or role.everywhere
            for number in range(role.replicas)
        }
        for replica in list(self._replicas):
            key = (replica.role.name, replica.number)
            if key in wanted and not replica.given_up:
                wanted.remove(key)
            else:
                self._end(replica)
                self._replicas.remove(replica)
        for role in self.roles:
            for number in range(role.replicas):
                if (role.name, number) in wanted:
                    replica = _Replica(role, number)
                    self._replicas.append(replica)
                    self._start(replica)

    _environment: dict[str, str] = field(default_factory=dict)

    def pids(self) -> tuple[int, ...]:
        """Roots of the process trees that are theirs."""
        return tuple(r.popen.pid for r in self._replicas if r.popen is not None)

    def look_after(self) -> None:
        """Start again what has ended and may be."""
        now = time.monotonic()
        for replica in self._replicas:
            if replica.popen is not None and replica.popen.poll() is not None:
                self._ended(replica, now)
            if replica.due_at is not None and now >= replica.due_at:
                replica.due_at = None
                replica.restarts += 1
                self._start(replica)

    def close(self) -> None:
        """End all of them."""
        for replica in self._replicas:
            self._end(replica)
        self._replicas.clear()

    # -- inside --------------------------------------------------------------------------------

    def _start(self, replica: _Replica) -> None:
        role = replica.role
        env = {
            **self._environment,
            **role.env,
            "TRAINMASTER_ROLE": role.name,
            "TRAINMASTER_REPLICA": str(replica.number),
        }
        path = self.log_of(role.name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            log = os.open(path, flags, file_mode(path.parent))
        except OSError as error:
            print(f"trainmaster: cannot write {path}: {error.strerror}", file=sys.stderr, flush=True)
            log = os.open(os.devnull, os.O_WRONLY)
        try:
            replica.popen = subprocess.Popen(
                self.fill(role.argv),
                cwd=self.workdir,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=processes.child_hook(),
            )
        except (OSError, ValueError) as error:
            print(f"trainmaster: cannot start role {role.name}: {error}", file=sys.stderr, flush=True)
            self._again(replica, exitcodes.NOT_FOUND)
            return
        finally:
            os.close(log)
        replica.started_at = time.monotonic()
        data = {"role": role.name, "pid": replica.popen.pid, "replica": replica.number}
        self.tell("role.started", {**data, "restarts": replica.restarts})

    def _ended(self, replica: _Replica, now: float) -> None:
        assert replica.popen is not None
        code = exitcodes.from_returncode(replica.popen.returncode)
        self._end(replica)
        data = {"role": replica.role.name, "exit_code": code, "replica": replica.number}
        self.tell("role.exited", data)
        if now - replica.started_at > _LIVED_S:
            replica.pause_s = PAUSE_S
        if code != exitcodes.COMPLETE:
            self._again(replica, code)

    def _again(self, replica: _Replica, code: int) -> None:
        role = replica.role
        if replica.restarts >= role.restarts:
            replica.given_up = True
            print(
                f"trainmaster: {self.node}: role {role.name} replica {replica.number} ended with {code} "
                f"({exitcodes.describe(code)}); its {role.restarts} restarts are used up",
                file=sys.stderr, flush=True,
            )  # fmt: skip
            if role.essential:
                self.failed.append((role.name, code))
            return
        replica.due_at = time.monotonic() + replica.pause_s
        replica.pause_s = min(2 * replica.pause_s, LONGEST_PAUSE_S)

    @staticmethod
    def _end(replica: _Replica) -> None:
        """The replica and what it started: children may outlive a server that was killed."""
        if replica.popen is None:
            return
        known = processes.descendants(replica.popen.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(replica.popen.pid, signal.SIGKILL)
        for pid in known:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        replica.popen.wait()
        replica.popen = None
