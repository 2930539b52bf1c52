"""Python's collector of cycles, kept out of the way of large work. ``tests/metrics/test_ingest.py``."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Without the collector: hundreds of thousands of rows and facts live until the work is done, none in
    a cycle, and looking at them again and again takes a sixth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
