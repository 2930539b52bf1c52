"""The warm server of a node: has imported what ranks import, and forks instead of starting Python anew.

The agent starts one per attempt (:func:`start`); shims ask it through :mod:`launch.handover`. It may not
initialise CUDA, run a kernel or keep a thread, since none of these survives a fork: a module that does so
when imported is left out, in a second try. It refuses what a cold start would do differently (other
variables that are read at import, another set of CPUs). Run by path in whatever Python trains: standard
library only. ``tests/launch/test_warm.py``.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and sys.path:
    del sys.path[0]  # modules here must not shadow anybody's

import contextlib
import gc
import os
import selectors
import signal
import socket
import subprocess
import time
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING or __package__:
    from . import becoming, handover
    from . import rank as _rank
else:
    from importlib.machinery import SourceFileLoader

    _rank_path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rank.py")
    _rank = type(sys)("_trainmaster.rank")
    _rank.__file__, _rank.__package__ = _rank_path, "_trainmaster"
    sys.modules["_trainmaster.rank"] = _rank
    SourceFileLoader("_trainmaster.rank", _rank_path).exec_module(_rank)
    handover, becoming = _rank._sibling("handover"), _rank._sibling("becoming")
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_REQUEST_S = 2.0
#: Blanks that nobody sees in the process list, where forks write what they run.
_ROOM = " " * 1500


# -- the agent's side --------------------------------------------------------------------------


def start(
    python: str,
    socket: Path,
    modules: Sequence[str],
    env: Mapping[str, str],
    cwd: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start the server of this node; it listens on ``socket`` once it has imported ``modules``.

    ``env``: what the ranks will have (see :func:`launch.roles.warm_environment`). It is killed with its
    parent and with it go the processes it forked. Main thread only.
    """
    from .processes import child_hook

    argv = [python, os.path.abspath(__file__), "--socket", str(socket), "--modules", ",".join(modules), _ROOM]
    return subprocess.Popen(
        argv,
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=child_hook(ignore=_IGNORED),
    )


def ready(socket: Path) -> bool:
    """Whether a process would be forked now."""
    found = handover.greeted(str(socket))
    if found is not None:
        found[0].close()
    return found is not None


def wait_ready(socket: Path, timeout: float, server: subprocess.Popen[bytes] | None = None) -> bool:
    """Wait until it is ready, at most ``timeout`` seconds, or until ``server`` has ended."""
    deadline = time.monotonic() + timeout
    while not ready(socket):
        if time.monotonic() > deadline or (server is not None and server.poll() is not None):
            return False
        time.sleep(0.02)
    return True


# -- the server --------------------------------------------------------------------------------


class Asker:
    """A shim that was greeted: what it has said so far, and until when it may go on."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.until = connection, time.monotonic() + _REQUEST_S
        self._heard, self._fds = b"", list[int]()

    def hear(self) -> handover.Request | None:
        """Read what is there; the request once it is complete. Raises ValueError for nonsense, OSError."""
        more, fds, _, _ = socket.recv_fds(self.connection, 1 << 16, 3)
        self._fds += fds
        if not more:
            raise ConnectionResetError("it left")
        self._heard += more
        head, found, body = self._heard.partition(b"\n")
        if len(head) > 20 or (found and not head.isdigit()):
            raise ValueError("not a request")
        size = int(head) if found else 0
        if size > handover.MOST_BYTES or len(body) > size:
            raise ValueError("not a request")
        if not found or len(body) < size:
            return None
        if len(self._fds) != 3:
            raise ValueError("a request without its streams")
        return handover.Request.decode(body)

    @property
    def streams(self) -> list[int]:
        return self._fds

    def close_streams(self) -> None:
        while self._fds:
            os.close(self._fds.pop())


class Server:
    """Forks on request, watches its children and those who asked for them."""

    def __init__(self, listener: socket.socket, world: becoming.World) -> None:
        self._listener, self._world = listener, world
        self._children: dict[int, socket.socket] = {}  # pid → its shim's connection
        self._askers: list[Asker] = []
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = socket.socketpair()
        for end in (self._wake, self._waker, listener):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._wake, selectors.EVENT_READ)

    def serve(self) -> tuple[handover.Request, int]:
        """Returns in the forked children only: what to become, and the process id of the shim."""
        while True:
            timeout = _REQUEST_S if self._askers else None
            ready = [key.fileobj for key, _ in self._selector.select(timeout)]
            if self._listener in ready:
                self._greet()
            if self._wake in ready:
                with contextlib.suppress(BlockingIOError):
                    self._wake.recv(512)
            self._reap()
            for pid, connection in list(self._children.items()):
                if connection in ready:
                    self._shim_gone(pid, connection)
            for asker in list(self._askers):
                if asker.connection in ready:
                    job = self._listen_to(asker)
                    if job is not None:
                        return job
                    if asker not in self._askers:
                        break  # one fork at a time: others that came in between are greeted first
                elif time.monotonic() > asker.until:
                    self._drop(asker)

    def _greet(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setblocking(False)
            if handover.peer_uid(connection) != os.geteuid():
                connection.close()
                continue
            self._askers.append(Asker(connection))
            self._selector.register(connection, selectors.EVENT_READ)
            self._say(connection, "hello")

    def _say(self, connection: socket.socket, words: str) -> None:
        """A short line; the other end reads, or is not worth waiting for."""
        with contextlib.suppress(OSError):
            connection.sendall(words.replace("\n", " ").encode() + b"\n")

    def _drop(self, asker: Asker) -> None:
        self._askers.remove(asker)
        self._selector.unregister(asker.connection)
        asker.connection.close()
        asker.close_streams()

    def _listen_to(self, asker: Asker) -> tuple[handover.Request, int] | None:
        """Fork once its request is complete; not None in the child."""
        connection = asker.connection
        try:
            request = asker.hear()
            if request is None:
                return None
            reason = self._world.differs(request)
            if reason:
                raise ValueError(reason)
            shim = handover.peer_pid(connection)
            server = os.getpid()
            sys.stdout.flush()
            sys.stderr.flush()
            pid = os.fork()
        except BlockingIOError:
            return None
        except (OSError, ValueError) as error:
            self._say(connection, f"cold {error}")
            self._drop(asker)
            return None
        if pid == 0:
            self._forget(asker)
            becoming.settle(request, asker.streams, server)  # does not return if it fails
            asker.close_streams()
            return request, shim
        self._askers.remove(asker)
        asker.close_streams()
        self._children[pid] = connection
        self._say(connection, f"pid {pid}")
        return None

    def _forget(self, mine: Asker) -> None:
        """In a child: nothing of the server's or another's may stay open, or ends would not be seen."""
        signal.set_wakeup_fd(-1)
        self._selector.close()
        asking = [asker.connection for asker in self._askers]
        for one in (self._listener, self._wake, self._waker, *asking, *self._children.values()):
            one.close()
        for asker in self._askers:
            if asker is not mine:
                asker.close_streams()

    def _shim_gone(self, pid: int, connection: socket.socket) -> None:
        """Its shim was killed, or it talks out of turn: what it asked for ends with it."""
        self._selector.unregister(connection)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):  # before its setsid, it is in our group
            os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            connection = self._children.pop(pid, None)
            if connection is None:
                continue
            self._say(connection, f"end {status}")
            with contextlib.suppress(KeyError):
                self._selector.unregister(connection)
            connection.close()


def _listen(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    mask = os.umask(0o177)
    try:
        with handover.Name(path) as name:
            listener.bind(name)
    finally:
        os.umask(mask)
    listener.listen(1024)
    return listener


def main() -> NoReturn:
    import argparse

    parser = argparse.ArgumentParser(description="Imports modules, then forks ranks. Started by the agent.")
    parser.add_argument("--socket", required=True)
    parser.add_argument("--modules", default="", help="names with commas between")
    parser.add_argument("--left-out", default="")
    parser.add_argument("room", nargs="?", help="blanks, to be written over by the forks' own words")
    given = parser.parse_args()
    began = time.monotonic()
    world = becoming.World()
    left_out = set(filter(None, given.left_out.split(",")))
    modules = [name for name in given.modules.split(",") if name and name not in left_out]
    offender = world.import_all(modules)
    if offender is not None:
        left_out.add(offender[0])
        print(f"trainmaster: warm: without {offender[0]}: {offender[1]}", file=sys.stderr, flush=True)
        again = [
            "--socket",
            given.socket,
            "--modules",
            given.modules,
            "--left-out",
            ",".join(left_out),
            _ROOM,
        ]
        os.execve(sys.executable, [sys.executable, os.path.abspath(__file__), *again], world.own)
    gc.collect()
    gc.freeze()  # so that collections in the children do not copy what is shared
    try:
        listener = _listen(given.socket)
    except OSError as error:
        print(f"trainmaster: warm: no socket at {given.socket}: {error}", file=sys.stderr, flush=True)
        sys.exit(1)
    print(
        f"trainmaster: warm: {', '.join(modules) or 'nothing'} imported in {time.monotonic() - began:.1f} s",
        file=sys.stderr, flush=True,
    )  # fmt: skip
    request, shim = Server(listener, world).serve()
    world.restore(request)
    becoming.title(request)
    sys.exit(_rank.run_in_place(request.mode, request.argv, {"shim": shim}))


if __name__ == "__main__":
    main()
