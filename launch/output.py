"""Output of a node's processes: from a pipe to the node's log, past whoever wants to see the lines.

The log may be on a full disk: then the output is dropped, and the programs that write it go on.
``tests/launch/test_output.py``.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from resiliency.durable import file_mode

_BLOCK = 1 << 16
_LONGEST_LINE = 1 << 16


class Relay:
    """Copies a pipe to a file in a thread. Give :attr:`writer` to the children, then :meth:`started`."""

    def __init__(self, path: Path, on_line: Callable[[bytes], None] | None = None) -> None:
        self.path = path
        self._on_line = on_line
        self._read, self.writer = os.pipe()
        self._log = -1
        self._dropped = False
        self._rest = b""
        self._thread = threading.Thread(target=self._copy, name="relay", daemon=True)

    def started(self) -> None:
        """All children have the pipe: close our end, so that their end closes it, and start copying."""
        os.close(self.writer)
        self._thread.start()

    def finish(self, patience_s: float = 2.0) -> None:
        """Wait for the rest; bounded, since a stray process may hold the pipe open for ever."""
        self._thread.join(patience_s)

    def _copy(self) -> None:
        while block := os.read(self._read, _BLOCK):
            self._keep(block)
            if self._on_line is not None:
                self._lines(block)
        if self._rest and self._on_line is not None:
            self._on_line(self._rest)

    def _keep(self, block: bytes) -> None:
        try:
            if self._log < 0:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                self._log = os.open(self.path, flags, file_mode(self.path.parent))
            view = memoryview(block)
            while view:
                view = view[os.write(self._log, view) :]
        except OSError as error:
            if not self._dropped:
                print(
                    f"trainmaster: cannot write {self.path}: {error.strerror}; output is dropped",
                    file=sys.stderr, flush=True,
                )  # fmt: skip
            self._dropped = True

    def _lines(self, block: bytes) -> None:
        assert self._on_line is not None
        *lines, self._rest = (self._rest + block).split(b"\n")
        for line in lines:
            self._on_line(line)
        if len(self._rest) > _LONGEST_LINE:
            self._rest = b""  # not a line that anybody looks for
