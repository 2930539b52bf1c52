"""One verb at a time per state directory.

The lock file lies beside the directory, not in it, because a wipe removes the directory. The
kernel drops the lock when its holder dies, however it dies.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import DevClusterError


def lock_path(root: Path) -> Path:
    return root.with_name(f"{root.name}.lock")


@contextmanager
def exclusive(root: Path, say: Callable[[str], None], timeout_s: float = 180) -> Iterator[None]:
    path = lock_path(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    end, told = time.monotonic() + timeout_s, False
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if _try_lock(descriptor) and _is_current(descriptor, path):
            break
        os.close(descriptor)
        if time.monotonic() > end:
            raise DevClusterError(
                f"another dev-cluster command has been busy with {root} for {timeout_s:g} s",
                hint=f"see who holds it: fuser -v {path}",
            )
        if not told:
            say("waiting for another dev-cluster command to finish")
            told = True
        time.sleep(0.1)
    try:
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_current(descriptor: int, path: Path) -> bool:
    # A wipe may have removed the file between our open and our lock
    try:
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False
