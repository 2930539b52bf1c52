"""Named points where a test may kill the process, to prove that every durable step survives it.

``TRAINMASTER_CRASH_AT=N`` kills the process with SIGKILL at the N-th point it passes (1-based);
``TRAINMASTER_CRASH_AT=name`` at the first point of that name. Unset: a dictionary look-up, nothing else.
``tests/chaos/test_crash_points.py`` walks all of them.
"""

from __future__ import annotations

import os
import signal

_passed = 0


def point(name: str) -> None:
    """Die here if the environment asks for it."""
    wanted = os.environ.get("TRAINMASTER_CRASH_AT")
    if not wanted:
        return
    global _passed
    _passed += 1
    if wanted == name or wanted == str(_passed):
        os.kill(os.getpid(), signal.SIGKILL)


def passed() -> int:
    """How many points this process has passed while armed."""
    return _passed
