"""A shim's request to the warm server, and its wait for the end of what was forked for it.

Stdlib only and few modules of it: every restart pays for importing this once per rank. May not read
anything from the server but words. ``tests/launch/test_warm.py``.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: A server that does not greet within this is not waited for: starting cold is quicker than hoping.
HELLO_S = 0.5
#: After the greeting: requests are served one after another, each takes one fork.
REPLY_S = 10.0
#: More than any environment and argument list the kernel would take.
MOST_BYTES = 8 << 20

PROGRAM, COMMAND, LAUNCHER = "program", "command", "launcher"
_LONGEST_NAME = 100  # sun_path holds 107 bytes


class Request:
    """What a process needs to become another: all that a child of the shim would have had."""

    __slots__ = ("argv", "cpus", "cwd", "env", "ignored", "mode", "umask")

    def __init__(
        self,
        mode: str,
        argv: Iterable[str],
        *,
        env: Mapping[bytes, bytes],
        cwd: str,
        umask: int,
        ignored: Iterable[int] = (),
        cpus: Iterable[int] = (),
    ) -> None:
        self.mode, self.argv, self.env = mode, list(argv), dict(env)
        self.cwd, self.umask = cwd, umask
        self.ignored, self.cpus = sorted(ignored), sorted(cpus)

    @classmethod
    def here(cls, mode: str, argv: Iterable[str], ignored: Iterable[int] = ()) -> Request:
        """This process's own place in the world."""
        umask = os.umask(0o077)
        os.umask(umask)
        cpus = os.sched_getaffinity(0)
        env = dict(os.environb)
        return cls(mode, argv, env=env, cwd=os.getcwd(), umask=umask, ignored=ignored, cpus=cpus)

    def encode(self) -> bytes:
        numbers = (
            self.mode,
            str(self.umask),
            ",".join(map(str, self.ignored)),
            ",".join(map(str, self.cpus)),
            str(len(self.argv)),
        )
        # None of these can hold a NUL: the kernel would not have it.
        fields = [
            *(word.encode("ascii") for word in numbers),
            os.fsencode(self.cwd),
            *map(os.fsencode, self.argv),
            *(name + b"=" + value for name, value in self.env.items()),
        ]
        body = b"\0".join(fields)
        return b"%d\n" % len(body) + body

    @classmethod
    def decode(cls, body: bytes) -> Request:
        """Raises ValueError for what no shim sends."""
        mode, umask, ignored, cpus, count, cwd, *rest = body.split(b"\0")
        words, pairs = rest[: int(count)], rest[int(count) :]
        if mode.decode() not in (PROGRAM, COMMAND, LAUNCHER) or not words:
            raise ValueError("not a request")
        env = {}
        for pair in pairs:
            name, _, value = pair.partition(b"=")
            env[name] = value

        def numbers(text: bytes) -> list[int]:
            return [int(word) for word in text.split(b",") if word]

        return cls(
            mode.decode(),
            map(os.fsdecode, words),
            env=env,
            cwd=os.fsdecode(cwd),
            umask=int(umask),
            ignored=numbers(ignored),
            cpus=numbers(cpus),
        )


class Name:
    """A socket's path for ``connect`` and ``bind``: a long one goes through its directory's descriptor."""

    def __init__(self, path: str) -> None:
        self._path, self._directory = path, -1

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) <= _LONGEST_NAME:
            return self._path
        directory, name = os.path.split(self._path)
        self._directory = os.open(directory or ".", os.O_PATH | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._directory}/{name}"

    def __exit__(self, *_: object) -> None:
        if self._directory >= 0:
            os.close(self._directory)


def peer_uid(connection: socket.socket) -> int:
    """Whose process is at the other end (SO_PEERCRED: pid, uid, gid)."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(raw[4:8], sys.byteorder)


def peer_pid(connection: socket.socket) -> int:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(raw[:4], sys.byteorder)


class Words:
    """Lines from the server. None at the end of the connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._rest = connection, b""

    def next(self) -> list[str] | None:
        while b"\n" not in self._rest:
            more = self._connection.recv(4096)
            if not more or len(self._rest) > 1 << 16:
                return None
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace").split(" ", 1)


def greeted(path: str, patience_s: float = HELLO_S) -> tuple[socket.socket, Words] | None:
    """A connection to our own user's server that said hello; None where there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(patience_s)
        with Name(path) as name:
            connection.connect(name)
        if peer_uid(connection) == os.geteuid():
            words = Words(connection)
            if words.next() == ["hello"]:
                return connection, words
    except OSError:
        pass
    connection.close()
    return None


class Child:
    """What the server forked for this process. It dies with the connection."""

    def __init__(self, pid: int, connection: socket.socket, words: Words) -> None:
        self.pid, self._connection, self._words = pid, connection, words

    def wait(self) -> int | None:
        """Its return code as :mod:`subprocess` has it (``-n``: signal n); None: the server died, and it."""
        self._connection.settimeout(None)
        try:
            word = self._words.next()
        except OSError:
            word = None
        if word is None or word[0] != "end":
            return None
        return os.waitstatus_to_exitcode(int(word[1]))

    def signal(self, number: int) -> None:
        """To its process group, as a signal to the shim's would have been."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return


def hand_over(path: str, request: Request) -> Child | None:
    """Have the server run ``request`` with this process's stdin, stdout and stderr; None: start it cold."""
    found = greeted(path)
    if found is None:
        return None
    connection, words = found
    try:
        connection.settimeout(REPLY_S)
        body = request.encode()
        socket.send_fds(connection, [body[:1]], [0, 1, 2])
        connection.sendall(body[1:])
        word = words.next()
        if word is not None and word[0] == "pid":
            return Child(int(word[1]), connection, words)
        if word is not None and word[0] == "cold":
            print(f"trainmaster: cold start: {word[1]}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass
    connection.close()
    return None


def relay_from_parent(child: Child, numbers: Iterable[int]) -> None:
    """Pass signals on that our parent sends us alone; what a whole step gets, the child has had itself."""
    import threading

    wanted = set(numbers)
    for number in wanted:
        signal.signal(number, lambda *_: None)  # one that is ignored would not even wait
    signal.pthread_sigmask(signal.SIG_BLOCK, wanted)

    def run() -> None:
        while True:
            said = signal.sigwaitinfo(wanted)
            if said.si_pid == os.getppid():
                child.signal(said.si_signo)

    threading.Thread(target=run, daemon=True).start()


def end_like(code: int) -> int:
    """End this process as its child ended; returns what to exit with."""
    if code >= 0:
        return code
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child's dump is the one that says something
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
    os.kill(os.getpid(), -code)
    return 128 - code
