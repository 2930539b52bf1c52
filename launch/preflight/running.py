"""Runs probes side by side, each in a thread of its own, and waits no longer than it is told.

A probe that hangs or breaks is UNKNOWN and says so. Its thread is left behind (a thread stuck in a file
system cannot be ended); the probe is not started again while it still hangs.
``tests/launch/preflight/test_running.py``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from resiliency.health import Check, NodeHealth, Status

from .settings import CheckPlace

#: After the deadline: time for probes that end themselves in time (programs are killed) to say so.
LATE_S = 0.4

#: Takes the place and the deadline (monotonic); what it leaves out does not apply to this node.
Probing = Callable[[CheckPlace, float], Sequence[Check]]


@dataclass(frozen=True)
class Probe:
    """``names``: the checks it answers. ``quick``: cheap enough for every restart."""

    name: str
    names: tuple[str, ...]
    run: Probing
    quick: bool = True
    needs_gpu: bool = False


_stuck: dict[str, threading.Thread] = {}


def run_all(
    probes: Sequence[Probe], place: CheckPlace, timeout_s: float, skip: frozenset[str] = frozenset()
) -> NodeHealth:
    """All answers that came within ``timeout_s``, in the probes' order."""
    began = time.monotonic()
    deadline = began + timeout_s
    found: dict[str, tuple[Check, ...]] = {}
    threads: dict[str, threading.Thread] = {}
    arrived = threading.Condition()

    def work(probe: Probe) -> None:
        answers = _answers(probe, place, deadline)
        with arrived:
            found[probe.name] = answers
            arrived.notify_all()

    for probe in probes:
        earlier = _stuck.get(probe.name)
        if earlier is not None and earlier.is_alive():
            found[probe.name] = (Check(probe.name, Status.UNKNOWN, "still hangs since an earlier check"),)
            continue
        thread = threading.Thread(target=work, args=(probe,), daemon=True, name=f"preflight-{probe.name}")
        threads[probe.name] = thread
        try:
            thread.start()
        except RuntimeError as error:  # no more threads
            del threads[probe.name]
            found[probe.name] = (Check(probe.name, Status.UNKNOWN, f"could not be run: {error}"),)
    with arrived:
        arrived.wait_for(lambda: len(found) == len(probes), max(0.0, deadline + LATE_S - time.monotonic()))
        done = dict(found)
    checks: list[Check] = []
    for probe in probes:
        if probe.name not in done:
            _stuck[probe.name] = threads[probe.name]
            took = time.monotonic() - began
            late = Check(probe.name, Status.UNKNOWN, f"no answer within {timeout_s:g} s", (), took)
            done[probe.name] = (late,)
        checks += done[probe.name]
    return NodeHealth(place.node, tuple(check for check in checks if check.name not in skip))


def _answers(probe: Probe, place: CheckPlace, deadline: float) -> tuple[Check, ...]:
    began = time.monotonic()
    try:
        answers = tuple(probe.run(place, deadline))
    except Exception as error:  # whatever it is: a check that breaks must not fail a node
        return (Check(probe.name, Status.UNKNOWN, f"could not be checked: {type(error).__name__}: {error}"),)
    took = time.monotonic() - began
    return tuple(replace(check, seconds=check.seconds or took) for check in answers)
