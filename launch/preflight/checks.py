"""The list of checks, and which of them are run for one node. docs/preflight.md explains each.

``tests/launch/preflight/test_checks.py``.
"""

from __future__ import annotations

from typing import Final

from resiliency.health import NodeHealth

from . import dcgm, gpus, host, network, nics, site, writing
from .running import Probe, run_all
from .settings import CheckPlace, Settings

#: In the order they are shown.
PROBES: Final = (
    Probe("gpu", gpus.NAMES, gpus.probe, needs_gpu=True),
    Probe("dcgm", ("dcgm",), dcgm.probe, quick=False, needs_gpu=True),
    Probe("network", ("ib_ports", "ib_rate"), network.probe),
    Probe("nics", ("net_links",), nics.probe),
    Probe("shm", ("shm",), host.shm),
    Probe("memory", ("memory",), host.memory),
    Probe("local_storage", ("local_storage",), writing.local_storage),
    Probe("shared_storage", ("shared_storage",), writing.shared_storage, quick=False),
    Probe("clock", ("clock",), host.clock),
)


def run_checks(settings: Settings, place: CheckPlace, *, quick: bool = False) -> NodeHealth:
    """Check this node; back after ``settings.timeout`` + 1 s at the latest, whatever hangs.

    ``quick``, for restarts: only what is cheap; no site checks, no shared file system, no DCGM.
    """
    probes = [
        probe
        for probe in PROBES
        if (probe.quick or not quick)
        and (place.gpus_per_node > 0 or not probe.needs_gpu)
        and probe.name not in settings.skip
        and not settings.skip.issuperset(probe.names)
    ]
    if not quick:
        probes += [one for one in site.probes(settings.site) if one.name not in settings.skip]
    return run_all(probes, place, settings.timeout, settings.skip)
