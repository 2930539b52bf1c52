"""A journal that may fail: a full disk must not end the training it reports on.

The failure is said once on stderr (which is the job's log) and counted; later appends are tried again.
``tests/launch/test_segment.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resiliency.errors import StorageError
from resiliency.journal import JournalWriter


class SafeJournal:
    """Wraps a :class:`JournalWriter`; ``failures`` counts events that could not be written."""

    def __init__(self, directory: Path, *, run: str, writer: str, defaults: Mapping[str, Any]) -> None:
        self._make = lambda: JournalWriter(directory, run=run, writer=writer, defaults=defaults)
        self._inner: JournalWriter | None = None
        self.failures = 0

    def append(self, type_: str, data: Mapping[str, Any], *, sync: bool = False, **fields: Any) -> bool:
        """Write one event; False if it could not be."""
        try:
            if self._inner is None:
                self._inner = self._make()
            self._inner.append(type_, data, sync=sync, **fields)
            return True
        except StorageError as error:
            if not self.failures:
                print(f"trainmaster: {error}; going on without", file=sys.stderr, flush=True)
            self.failures += 1
            return False

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()
            self._inner = None


def writer_id(attempt: str, who: str) -> str:
    """Journal writer of one process of an attempt: ``local-17.0-supervisor``."""
    return f"{attempt.replace('/', '-')}-{who}"
