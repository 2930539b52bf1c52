"""What supervisor and agents say to each other: JSON lines over one TCP connection a node.

The supervisor listens (:class:`Hub`), agents connect (:class:`Wire`). Who does not show the attempt's
token first is not listened to. The end of a connection is the first sign of a lost node: it comes within
a moment of a node's death, where the scheduler needs half a minute. Nothing here decides or blocks.
``tests/launch/test_channel.py``.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import selectors
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

#: Environment of the agents only: ``host:port:token``. Never passed on to a role's processes.
ENV_CHANNEL: Final = "TRAINMASTER_CHANNEL"
_BLOCK: Final = 1 << 16
_LONGEST: Final = 8 << 20  # stacks of all ranks of a node fit
_STRANGER: Final = 4096  # bytes somebody may send before the token is shown
_STRANGER_S: Final = 30.0
_BACKLOG: Final = 1024

Message = dict[str, Any]


def _tune(connection: socket.socket) -> None:
    """No delay, and a peer that fell silent with its machine is noticed within about 15 s."""
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # the same for what was sent and never acknowledged
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 15_000)


@dataclass
class _Stream:
    """One connection: lines in, lines out, neither waits."""

    socket: socket.socket
    node: str | None = None
    since: float = field(default_factory=time.monotonic)
    closed: bool = False
    _in: bytearray = field(default_factory=bytearray)
    _out: bytearray = field(default_factory=bytearray)

    @property
    def waiting(self) -> bool:
        return bool(self._out)

    def put(self, message: Mapping[str, Any]) -> None:
        self._out += json.dumps(message, separators=(",", ":")).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        try:
            while self._out:
                del self._out[: self.socket.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True

    def take(self) -> list[Message]:
        """What has come in; sets ``closed`` at the end of the stream or when it is no JSON line."""
        while not self.closed:
            try:
                block = self.socket.recv(_BLOCK)
            except BlockingIOError:
                break
            except OSError:
                block = b""
            if not block:
                self.closed = True
            self._in += block
            if len(self._in) > (_LONGEST if self.node else _STRANGER):
                self.closed = True
        if b"\n" not in self._in:
            return []
        whole, _, rest = bytes(self._in).rpartition(b"\n")
        self._in = bytearray(rest)
        found: list[Message] = []
        for line in whole.split(b"\n"):
            try:
                message = json.loads(line)
            except ValueError:
                message = None
            if not isinstance(message, dict):
                self.closed = True
                break
            found.append(message)
        return found

    def close(self) -> None:
        self.closed = True
        with contextlib.suppress(OSError):
            self.socket.close()


class Hub:
    """The supervisor's end. :meth:`poll` gives ``(node, message)``; None: its connection ended."""

    def __init__(self, token: str | None = None) -> None:
        self.token = token or secrets.token_hex(16)
        self._listener = socket.create_server(("", 0), backlog=_BACKLOG)
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._streams: dict[str, _Stream] = {}
        self._strangers: set[int] = set()

    def fileno(self) -> int:
        """Readable when there is something to poll (an epoll of all connections)."""
        return self._selector.fileno()

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes connected now."""
        return frozenset(self._streams)

    def poll(self) -> list[tuple[str, Message | None]]:
        found: list[tuple[str, Message | None]] = []
        for key, mask in self._selector.select(0):
            if key.data is None:
                self._accept()
                continue
            stream: _Stream = key.data
            if mask & selectors.EVENT_WRITE:
                stream.flush()
            found += self._from(stream)
        self._drop_strangers()
        return found

    def send(self, nodes: Iterable[str], message: Mapping[str, Any]) -> None:
        """Queue a line for nodes; one that is not connected does not get it."""
        for node in nodes:
            stream = self._streams.get(node)
            if stream is not None:
                stream.put(message)
                self._watch(stream)

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            with contextlib.suppress(OSError):
                key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    # -- inside --------------------------------------------------------------------------------

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                _tune(connection)
                self._strangers.add(connection.fileno())
                self._selector.register(connection, selectors.EVENT_READ, _Stream(connection))

    def _watch(self, stream: _Stream) -> None:
        if stream.closed and stream.socket.fileno() < 0:
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if stream.waiting else 0)
        self._selector.modify(stream.socket, wanted, stream)

    def _from(self, stream: _Stream) -> list[tuple[str, Message | None]]:
        found: list[tuple[str, Message | None]] = []
        for message in stream.take():
            if stream.node is None:
                if not self._greet(stream, message):
                    break
                message.pop("token")
            assert stream.node is not None
            found.append((stream.node, message))
        if stream.closed:
            self._forget(stream)
            if stream.node is not None and self._streams.get(stream.node) is stream:
                del self._streams[stream.node]
                found.append((stream.node, None))
        else:
            self._watch(stream)
        return found

    def _greet(self, stream: _Stream, message: Message) -> bool:
        node, shown = message.get("node"), str(message.get("token", ""))
        known = hmac.compare_digest(shown.encode("utf-8", "replace"), self.token.encode())
        if message.get("kind") != "hello" or not isinstance(node, str) or not known:
            stream.closed = True
            return False
        stream.node = node
        self._strangers.discard(stream.socket.fileno())
        earlier = self._streams.get(node)
        if earlier is not None:  # it came back before we saw it go
            self._forget(earlier)
        self._streams[node] = stream
        return True

    def _forget(self, stream: _Stream) -> None:
        number = stream.socket.fileno()
        self._strangers.discard(number)
        if number >= 0:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(stream.socket)
        stream.close()

    def _drop_strangers(self) -> None:
        now = time.monotonic()
        for number in list(self._strangers):
            stream = self._selector.get_map()[number].data
            if now - stream.since > _STRANGER_S:
                self._forget(stream)


class Wire:
    """An agent's end. ``hello``: what it says of itself each time it connects."""

    def __init__(self, address: str, hello: Mapping[str, Any]) -> None:
        host, port, token = address.rsplit(":", 2)
        self._peer = (host, int(port))
        self._hello = {"kind": "hello", **hello, "token": token}
        self._stream: _Stream | None = None

    @property
    def up(self) -> bool:
        return self._stream is not None

    def connect(self, timeout_s: float) -> bool:
        """One try; True when connected."""
        self.close()
        try:
            connection = socket.create_connection(self._peer, timeout=timeout_s)
        except OSError:
            return False
        _tune(connection)
        self._stream = _Stream(connection, node=self._peer[0])
        self._stream.put(self._hello)
        return not self._stream.closed

    def filenos(self) -> tuple[int, ...]:
        return (self._stream.socket.fileno(),) if self._stream is not None else ()

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue a line; without a connection it is lost."""
        if self._stream is not None:
            self._stream.put(message)

    def poll(self) -> list[Message]:
        """What has come in. When the connection ended, :attr:`up` is False afterwards."""
        if self._stream is None:
            return []
        self._stream.flush()
        found = self._stream.take()
        if self._stream.closed:
            self.close()
        return found

    def drain(self, timeout_s: float) -> None:
        """Give what is queued the time to leave; before the process ends."""
        until = time.monotonic() + timeout_s
        while self._stream is not None and self._stream.waiting and not self._stream.closed:
            if time.monotonic() > until:
                return
            time.sleep(0.01)
            self._stream.flush()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def channel_address(host: str, hub: Hub) -> str:
    """The value of :data:`ENV_CHANNEL`."""
    return f"{host}:{hub.port}:{hub.token}"


def take_address(environ: os._Environ[str] | dict[str, str]) -> str | None:
    """The address from the environment, which loses it: it is nobody else's to know."""
    return environ.pop(ENV_CHANNEL, None)
