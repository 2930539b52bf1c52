"""Where the ranks of an attempt meet: the first node's address and a port made from the job id.

``tests/launch/test_steps.py``.
"""

from __future__ import annotations

import contextlib
import socket
import zlib

# Below the kernel's ephemeral ports (32768 and up), so that nothing takes one by accident.
_FIRST, _COUNT = 23_000, 9_000


def derived_port(attempt: str) -> int:
    """The port of an attempt: jobs that share a node get different ones."""
    return _FIRST + zlib.crc32(attempt.encode()) % _COUNT


def free_port(attempt: str, *, tries: int = 64) -> int:
    """The derived port or the next that is free here; on the batch host, which is the first node."""
    first = derived_port(attempt)
    for step in range(tries):
        port = _FIRST + (first - _FIRST + step) % _COUNT
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
            return port
    return first


def own_address(host: str, port: int) -> str:
    """This node's address on the route to ``host``: names of nodes need not resolve."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))  # sends nothing
        return str(probe.getsockname()[0])
    return host
