"""Takes the waits for thousands of nodes out of a launcher's rendezvous on a few.

torch's c10d rendezvous, and NVRx's copy of it, look at its state once a second and begin with a random
pause, both to spare the store. Here the pauses grow with the number of nodes up to theirs. Where the
function is not found (another version) nothing changes. ``tests/launch/test_rank.py``.
"""

from __future__ import annotations

import importlib
import random
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: The store answers some 10,000 requests a second: each waiting node may look once in this time.
PER_NODE_S = 0.002
LEAST_S = 0.02

_MODULES = {
    "nvidia_resiliency_ext.fault_tolerance.launcher": "nvidia_resiliency_ext.fault_tolerance._ft_rendezvous",
    "torch.distributed.run": "torch.distributed.elastic.rendezvous.dynamic_rendezvous",
}


def rendezvous(target: Sequence[str]) -> None:
    """``target``: the launcher's own words, ``-m module --nnodes N …``."""
    name = _MODULES.get(target[1]) if len(target) > 1 else None
    if name is None:
        return
    try:
        module = importlib.import_module(name)
        nodes = int(target[target.index("--nnodes") + 1].rpartition(":")[2])
    except (ImportError, ValueError, IndexError):
        return
    if hasattr(module, "_delay"):
        setattr(module, "_delay", delay(nodes))  # noqa: B010


def delay(nodes: int) -> Callable[[float | tuple[float, float]], None]:
    """Their ``_delay``: seconds, or bounds to draw between."""
    most = LEAST_S + nodes * PER_NODE_S

    def pause(seconds: float | tuple[float, float]) -> None:
        if isinstance(seconds, tuple):
            low, high = seconds
            seconds = random.uniform(min(low, most), min(high, nodes * PER_NODE_S))
        time.sleep(min(seconds, most))

    return pause
