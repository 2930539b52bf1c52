"""Daemons as values: start detached, find by pid file, stop, freeze, thaw.

A pid is believed only if the process behind it is the daemon meant (its name, and a marker in
its environment), so a recycled pid is never signalled. Daemons get /dev/null and a log file for
their standard streams, a session of their own and a scrubbed environment: nothing of the
caller's pipes or terminal survives in them (test_dev_cluster.py: a pipe behind `up` closes).
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .errors import DevClusterError

MARKER = "TRAINMASTER_DEV_CLUSTER_DAEMON"
POLL_S = 0.03


def clean_environment(root: Path, **extra: str) -> dict[str, str]:
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "LANG": "C.UTF-8", "HOME": "/root", MARKER: str(root), **extra}


def wait_until(condition: Callable[[], object], timeout_s: float, poll_s: float = POLL_S) -> bool:
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(poll_s)
    return True


def read_environ(pid: int) -> dict[str, str]:
    """The environment a process was started with; empty if it is gone or not ours to read."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition("=") for item in raw.decode(errors="replace").split("\0"))
    return {key: value for key, _, value in pairs if key}


def read_command(pid: int) -> tuple[str, ...]:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(raw.decode(errors="replace").rstrip("\0").split("\0"))


def read_stat(pid: int) -> tuple[str, str, int]:
    """(command name, state letter, parent pid); state "" when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return "", "", 0
    name = text[text.index("(") + 1 : text.rindex(")")]
    rest = text[text.rindex(")") + 2 :].split()
    return name, rest[0], int(rest[1])


def all_pids() -> Iterator[int]:
    with os.scandir("/proc") as entries:
        yield from [int(entry.name) for entry in entries if entry.name.isdigit()]


def send(pids: Iterable[int], signum: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, signum)
        except ProcessLookupError:
            continue


def is_gone(pid: int) -> bool:
    # A zombie is gone too: in a container pid 1 may never reap it.
    return read_stat(pid)[1] in ("", "Z", "X")


def log_tail(path: Path, lines: int = 12) -> str:
    try:
        kept = path.read_text(errors="replace").splitlines()[-lines:]
    except OSError as error:
        return f"(no log: {error})"
    return "\n".join(f"    {line}" for line in kept) or "    (empty)"


def all_gone(pids: Iterable[int]) -> bool:
    return all(is_gone(pid) for pid in pids)


@dataclass(frozen=True)
class Daemon:
    name: str
    command: tuple[str, ...]
    pid_file: Path
    log: Path  # the daemon's own log, shown when it fails
    environment: dict[str, str]
    forks: bool = True  # puts itself into the background; False: it is left running as a child
    user: str = ""  # started as this user; "" = as root
    ports: tuple[int, ...] = field(default=())  # on 127.0.0.1, must be free before a start

    def pid(self) -> int | None:
        try:
            pid = int(self.pid_file.read_text().strip() or 0)
        except PermissionError:  # MariaDB's, for an ordinary user who asks for the status
            pid = next((pid for pid in all_pids() if read_command(pid) == self.command), 0)
        except (FileNotFoundError, ValueError):
            return None
        if pid <= 0 or is_gone(pid):
            return None
        if read_stat(pid)[0] != Path(self.command[0]).name[:15]:
            return None
        # An ordinary user cannot read it: then the name has to do
        marker = read_environ(pid).get(MARKER)
        return pid if marker in (None, self.environment[MARKER]) else None

    def state(self) -> str:
        """running, frozen or stopped."""
        pid = self.pid()
        if pid is None:
            return "stopped"
        return "frozen" if read_stat(pid)[1] in ("T", "t") else "running"

    def launch(self) -> None:
        """Start without waiting for readiness; see `wait_for_pid`."""
        self.pid_file.unlink(missing_ok=True)
        output_path = self.log.with_name(f"{self.log.name}.out")
        with output_path.open("ab") as output:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.environment,
                cwd="/",
                start_new_session=True,
                umask=0o022,
                user=self.user or None,
                group=self.user or None,
                extra_groups=[] if self.user else None,
            )
        if self.forks and process.wait() != 0:
            raise self.failure(f"ended with exit code {process.returncode}")

    def wait_for_pid(self, timeout_s: float = 15) -> None:
        if not wait_until(self.pid, timeout_s):
            raise self.failure(f"did not come up within {timeout_s:g} s")

    def failure(self, what: str) -> DevClusterError:
        out = self.log.with_name(f"{self.log.name}.out")
        shown = "\n".join(
            f"  {p}:\n{log_tail(p)}" for p in (self.log, out) if p.exists() and p.stat().st_size
        )
        return DevClusterError(f"{self.name} {what}\n{shown}", hint=f"its log: {self.log}")

    def stop(self, timeout_s: float = 10) -> bool:
        """TERM, then KILL; a frozen daemon is thawed so that it can act on it. True if it was
        running."""
        pid = self.pid()
        if pid is not None:
            send([pid], signal.SIGTERM)
            send([pid], signal.SIGCONT)
            if not wait_until(lambda: is_gone(pid), timeout_s):
                send([pid], signal.SIGKILL)
                wait_until(lambda: is_gone(pid), 5)
        self.pid_file.unlink(missing_ok=True)
        return pid is not None

    def kill(self) -> bool:
        pid = self.pid()
        if pid is not None:
            send([pid], signal.SIGKILL)
            wait_until(lambda: is_gone(pid), 5)
        self.pid_file.unlink(missing_ok=True)
        return pid is not None
