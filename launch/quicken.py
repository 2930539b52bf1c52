"""Takes waits out of a launcher's rendezvous that are meant for thousands of nodes, and one look too many.

torch's c10d rendezvous, and NVRx's copy of it, look at its state once a second, keep what they saw for
another and begin with a random pause, all to spare the store: here these grow with the number of nodes, up
to theirs. And for each
debug message they walk through all modules to name the calling function (some 0.4 s a start once Megatron
is imported): here the frame is asked. Where a function is not found (another version) nothing changes.
A store that is not there yet is asked again after a whole second: so it is only asked once it is there.
``tests/launch/test_quicken.py``.
"""

from __future__ import annotations

import importlib
import random
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: The store answers some 10,000 requests a second: each waiting node may look once in this time.
PER_NODE_S = 0.002
LEAST_S = 0.02
#: After this the launcher waits for its store in its own way, and says so.
STORE_S = 20.0

_NVRX = "nvidia_resiliency_ext.fault_tolerance"
_MODULES = {
    f"{_NVRX}.launcher": (f"{_NVRX}._ft_rendezvous", f"{_NVRX}.ft_rendezvous_barrier"),
    "torch.distributed.run": ("torch.distributed.elastic.rendezvous.dynamic_rendezvous",),
}


def rendezvous(target: Sequence[str]) -> None:
    """``target``: the launcher's own words, ``-m module --nnodes N …``."""

    def option(name: str) -> str:
        return target[target.index(name) + 1]

    try:
        nodes = int(option("--nnodes").rpartition(":")[2])
        host, _, port = option("--rdzv-endpoint").rpartition(":")
        guest = "is_host=0" in option("--rdzv-conf").split(",")
    except (ValueError, IndexError):
        return
    for name in _MODULES.get(target[1], ()):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        for word, better in (("_delay", delay(nodes)), ("get_method_name", _caller)):
            if hasattr(module, word):
                setattr(module, word, better)
        holder = getattr(module, "_BackendRendezvousStateHolder", None)
        if holder is not None and holder.__init__.__defaults__ == (1,):  # cache_duration, seconds
            holder.__init__.__defaults__ = (min(1.0, longest_pause(nodes)),)
    if guest:
        wait_for_store(host, int(port), nodes)


def wait_for_store(host: str, port: int, nodes: int, patience_s: float = STORE_S) -> bool:
    """Until somebody listens there; looks more seldom the more nodes look."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, port), timeout=1.0).close()
            return True
        except OSError:
            time.sleep(random.uniform(0.5, 1.5) * longest_pause(nodes))
    return False


def longest_pause(nodes: int) -> float:
    """Seconds between two looks of one node at what all of them share."""
    return LEAST_S + nodes * PER_NODE_S


def delay(nodes: int) -> Callable[[float | tuple[float, float]], None]:
    """Their ``_delay``: seconds, or bounds to draw between."""
    most = longest_pause(nodes)

    def pause(seconds: float | tuple[float, float]) -> None:
        if isinstance(seconds, tuple):
            low, high = seconds
            seconds = random.uniform(min(low, most), min(high, nodes * PER_NODE_S))
        time.sleep(min(seconds, most))

    return pause


def _caller(depth: int = 2) -> str:
    """Their ``get_method_name``."""
    try:
        return sys._getframe(depth).f_code.co_name
    except ValueError:
        return "no_method_name"
