"""A node-local directory for one agent, in memory where there is some; removed at its end.

An agent that was killed leaves one behind: its supervisor sends somebody to remove it (``python -m
launch.localdir``) where the node still answers, else the next agent of the same user on that node does.
``tests/launch/test_localdir.py``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_SHM = "/dev/shm"
_PREFIX = "trainmaster-"
_LOCK = ".agent-lock"


def parent() -> Path:
    """Where the directories lie: memory if it can be written, else TMPDIR."""
    return Path(_SHM if os.access(_SHM, os.W_OK | os.X_OK) else tempfile.gettempdir())


@contextlib.contextmanager
def local_directory(attempt: str, node: str) -> Iterator[Path]:
    """The agent's own, named after its attempt and node."""
    sweep()
    flat = f"{attempt}-{node}".replace("/", "-")
    path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{flat}-", dir=parent()))
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # Held while the agent lives: a lock ends with its process, a pid may be another namespace's.
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def sweep() -> None:
    """Remove what killed agents of this user left here."""
    for path in parent().glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDWR)
            try:
                if os.fstat(lock).st_uid == os.getuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path.parent, ignore_errors=True)
            finally:
                os.close(lock)


if __name__ == "__main__":
    sweep()
