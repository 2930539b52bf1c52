"""Small durable file operations: atomic replace, exclusive create, an advisory lock.

Everything that must survive a crash or a second writer goes through here. ``OSError`` becomes a
``StorageError`` that names the file and the next step.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .crashpoint import point
from .errors import LockBusy, StorageError

_HINTS = {
    errno.ENOSPC: "free space on this file system, then run the same command again",
    errno.EDQUOT: "your quota is used up: free space or ask for more, then run again",
    errno.EACCES: "check the owner and mode of the directory, or choose another with --home",
    errno.EPERM: "check the owner and mode of the directory, or choose another with --home",
    errno.EROFS: "the file system is mounted read-only: choose another directory with --home",
    errno.ESTALE: "the network file system lost the file: check the mount, then run again",
    errno.ENOENT: "the directory does not exist: create it or correct the path",
    errno.ENOTDIR: "a part of the path is a file: correct the path",
}


def storage_error(error: OSError, path: str | os.PathLike[str], doing: str) -> StorageError:
    """Turn an ``OSError`` into a message with the next step."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StorageError(f"cannot {doing} {os.fspath(path)}: {reason}", hint=_HINTS.get(error.errno or 0, ""))


def fsync_dir(path: Path) -> None:
    """Make a rename or create in ``path`` durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _beside(path: Path) -> Path:
    """A name of this process's own in the same directory, never too long for a file system."""
    owner = f"{socket.gethostname()[:32]}.{os.getpid()}.{threading.get_ident() & 0xFFFF:x}"
    return path.with_name(f".{path.name[:160]}.{owner}.tmp")


def file_mode(directory: str | os.PathLike[str]) -> int:
    """Mode of a new file there: the user's alone, or also the group's where the directory is shared.

    Set-group-ID marks a shared run directory (an experiment with ``group``) and is inherited by what is
    made below it. A directory that cannot be looked at is not shared.
    """
    try:
        return 0o660 if os.stat(directory).st_mode & stat.S_ISGID else 0o600
    except OSError:
        return 0o600


def _write_synced(path: Path, raw: bytes, mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        view = memoryview(raw)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomic(path: Path, data: str | bytes, *, mode: int | None = None) -> None:
    """Replace ``path`` by ``data``: a reader sees the old content or the new, never a part."""
    raw = data.encode() if isinstance(data, str) else data
    temporary = _beside(path)
    try:
        _write_synced(temporary, raw, file_mode(path.parent) if mode is None else mode)
        point("atomic.before_rename")
        os.replace(temporary, path)
        fsync_dir(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise storage_error(error, path, "write") from error


def write_plain(path: Path, data: str, *, mode: int | None = None) -> None:
    """Write a file that need not survive a crash (it can be made again); no fsync."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = file_mode(path.parent) if mode is None else mode
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(fd, "w", encoding="utf-8") as stream:
            stream.write(data)
    except OSError as error:
        raise storage_error(error, path, "write") from error


def create_exclusive(path: Path, data: str, *, mode: int | None = None) -> bool:
    """Create ``path`` with ``data`` unless it exists; True if this call created it.

    Written aside and linked into place, so a file that exists is complete even after a crash
    (``link`` is atomic on NFS where O_EXCL plus write is not).
    """
    temporary = _beside(path)
    try:
        _write_synced(temporary, data.encode(), file_mode(path.parent) if mode is None else mode)
        point("exclusive.before_link")
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        fsync_dir(path.parent)
        return True
    except OSError as error:
        raise storage_error(error, path, "create") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def read_json(path: Path) -> Any:
    """Parse a JSON file; ``StorageError`` names the file when it is missing, torn or not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise storage_error(error, path, "read") from error
    except ValueError as error:
        raise StorageError(f"{path} is not valid JSON: {error}") from error


@contextlib.contextmanager
def locked(path: Path, *, wait_s: float = 30.0, what: str = "this run") -> Iterator[None]:
    """Hold an exclusive advisory lock on ``path`` (created if missing), released on any exit.

    ``flock`` holds across nodes on NFSv4 (mapped to a byte-range lock) and Lustre (``-o flock``); where
    it does not, the look-up by token and the start claim still keep submission exactly-once.
    Raises LockBusy after ``wait_s`` seconds.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, file_mode(path.parent))
    except OSError as error:
        raise storage_error(error, path, "lock") from error
    try:
        deadline = time.monotonic() + wait_s
        pause = 0.01
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise storage_error(error, path, "lock") from error
                if time.monotonic() >= deadline:
                    raise LockBusy(
                        f"{what} is being changed by another command (lock {path})",
                        hint="wait for it to end, or run the same command again in a minute",
                    ) from error
                time.sleep(pause)
                pause = min(pause * 2, 0.25)
        yield
    finally:
        os.close(fd)
