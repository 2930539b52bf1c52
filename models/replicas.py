"""Copies of a rank's state on another node, sent over TCP by a thread, so that no step waits for them.

The receiver writes what it gets over an older replica and seals it only if it is whole. Both ends know a
secret of this cycle. A partner that cannot be reached costs the replica, never the training.
May not import torch. ``tests/models/test_replicas.py``.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import socket
import struct
import threading
from pathlib import Path

from .copy_file import HEAD_BYTES, CopyFile, Damaged

_TIMEOUT_S = 60.0
_LENGTH = struct.Struct("<I")
_CHUNK = 4 << 20
_YES, _NO = b"y", b"n"


def own_address() -> str:
    """The address by which other nodes reach this one: of the interface that leads to rank 0."""
    master = os.environ.get("MASTER_ADDR")
    if not master:
        return "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((master, 9))  # sends nothing
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()


class Receiver:
    """Takes replicas into ``directory`` from one sender at a time, until the process ends."""

    def __init__(self, directory: Path, secret: str) -> None:
        self._directory, self._secret = directory, secret
        self._listener = socket.create_server(("", 0))
        self.port: int = self._listener.getsockname()[1]
        self._files: dict[str, CopyFile] = {}
        self.problem: str | None = None
        threading.Thread(target=self._serve, name="trainmaster-replicas", daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(_TIMEOUT_S)
                try:
                    while self._take(connection):
                        pass
                except (OSError, ValueError, KeyError) as error:
                    self.problem = str(error)

    def _take(self, connection: socket.socket) -> bool:
        connection.settimeout(None)  # between two copies it may be quiet for long
        greeting = _read_greeting(connection)
        connection.settimeout(_TIMEOUT_S)
        if greeting is None:
            return False
        said = json.loads(greeting)
        name, length = str(said["name"]), int(said["length"])
        if not hmac.compare_digest(str(said["secret"]), self._secret) or "/" in name or name.startswith("."):
            return False
        try:
            file = self._file(name, length, int(said["room"]))
        except OSError as error:
            self.problem = str(error)
            connection.sendall(_NO)
            return False
        connection.sendall(_YES)
        file.invalidate()
        head = bytearray(HEAD_BYTES)
        _read_into(connection, memoryview(head))
        view = memoryview(file.map)
        try:
            _read_into(connection, view[HEAD_BYTES:length])
        finally:
            view.release()
        # The page that makes it valid comes last, and only stays if all of it is right.
        file.map[:HEAD_BYTES] = bytes(head)
        try:
            file.verify()
        except Damaged as error:
            file.invalidate()
            self.problem = str(error)
            connection.sendall(_NO)
            return True
        connection.sendall(_YES)
        return True

    def _file(self, name: str, length: int, room: int) -> CopyFile:
        file = self._files.get(name)
        if file is None or file.size < length:
            file = CopyFile(self._directory / name, max(room, length))
            self._files[name] = file
        return file


class Sender:
    """Sends copies to one partner; raises OSError when that does not work, and is of no use afterwards."""

    def __init__(self, host: str, port: int, secret: str) -> None:
        self._where, self._secret = (host, port), secret
        self._connection: socket.socket | None = None

    def send(self, name: str, file: CopyFile) -> None:
        """Returns when the partner has sealed it."""
        if self._connection is None:
            self._connection = socket.create_connection(self._where, timeout=_TIMEOUT_S)
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = self._connection
        whole = file.whole()
        try:
            said = {"secret": self._secret, "name": name, "length": len(whole), "room": file.size}
            greeting = json.dumps(said).encode()
            connection.sendall(_LENGTH.pack(len(greeting)) + greeting)
            _expect(connection)
            for at in range(0, len(whole), _CHUNK):
                connection.sendall(whole[at : at + _CHUNK])
        finally:
            whole.release()
        _expect(connection)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _expect(connection: socket.socket) -> None:
    answer = connection.recv(1)
    if answer != _YES:
        raise OSError("the partner node refused the copy" if answer else "the partner node hung up")


def _read_greeting(connection: socket.socket) -> bytes | None:
    first = connection.recv(_LENGTH.size, socket.MSG_WAITALL)
    if len(first) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(first)
    if length > 1 << 16:
        return None
    return connection.recv(length, socket.MSG_WAITALL)


def _read_into(connection: socket.socket, view: memoryview) -> None:
    at = 0
    while at < len(view):
        got = connection.recv_into(view[at : at + _CHUNK])
        if got == 0:
            raise OSError("the sender went away amid a copy")
        at += got
