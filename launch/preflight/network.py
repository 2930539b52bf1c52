"""The node's InfiniBand and RoCE ports, as the kernel shows them in /sys/class/infiniband.

A port without a cable is common and no fault. One that has been up and is down now is: its counter of
lost links says so. ``tests/launch/preflight/test_network.py``.
"""

from __future__ import annotations

import errno
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from resiliency.health import Check, Status

from .settings import CheckPlace

ROOT: Final = Path("/sys/class/infiniband")
#: The kernel answers this for an adapter that does not answer it.
_DEAD: Final = frozenset({errno.EIO, errno.ENXIO, errno.ETIMEDOUT, errno.EREMOTEIO})


@dataclass(frozen=True)
class Port:
    """One port. ``downed``: how often its link was lost since the driver was loaded; None: not told."""

    device: str
    number: str
    state: str = ""
    physical: str = ""
    rate: str = ""
    layer: str = "InfiniBand"
    kind: str = ""
    downed: int | None = None
    error: int = 0

    @property
    def name(self) -> str:
        return f"{self.device}/{self.number}"

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"


def probe(place: CheckPlace, deadline: float) -> Sequence[Check]:
    return judge(read_ports(ROOT))


def read_ports(root: Path) -> list[Port]:
    """Every port of every adapter; none where there is no such hardware."""
    try:
        devices = sorted(root.iterdir())
    except OSError:
        return []
    found: list[Port] = []
    for device in devices:
        try:
            ports = sorted((device / "ports").iterdir())
        except FileNotFoundError:  # it went away meanwhile, or is no adapter
            continue
        except OSError as error:
            found.append(Port(device.name, "?", error=error.errno or errno.EIO))
            continue
        found += [_read_port(device, port) for port in ports]
    return found


def _read_port(device: Path, port: Path) -> Port:
    try:
        downed = _optional(port / "counters" / "link_downed")
        return Port(
            device.name,
            port.name,
            _word(_text(port / "state")),
            _word(_text(port / "phys_state")),
            _text(port / "rate"),
            _optional(port / "link_layer") or "InfiniBand",
            _optional(device / "hca_type"),
            int(downed) if downed.isdigit() else None,
        )
    except OSError as error:
        return Port(device.name, port.name, error=error.errno or errno.EIO)


def _text(path: Path) -> str:
    return path.read_text(encoding="ascii", errors="replace").strip()[:200]


def _optional(path: Path) -> str:
    """Virtual functions and older drivers do not tell everything."""
    try:
        return _text(path)
    except OSError as error:
        if error.errno in _DEAD:
            raise
        return ""


def _word(text: str) -> str:
    """``4: ACTIVE`` is ACTIVE."""
    return text.partition(":")[2].strip() or text


def judge(ports: Sequence[Port]) -> list[Check]:
    """Nothing for a node without such ports."""
    if not ports:
        return []
    return [_states(ports), _rates(ports)]


def _states(ports: Sequence[Port]) -> Check:
    dead = [port for port in ports if port.error in _DEAD]
    lines = tuple(_line(port) for port in ports if not port.active)[:32]
    if dead:
        said = f"{_names(dead)} cannot be read: the adapter does not answer"
        return Check("ib_ports", Status.CRITICAL, said, lines, category="hca_failure")
    fallen = [p for p in ports if p.layer == "InfiniBand" and p.state == "DOWN" and p.downed]
    fallen = [p for p in fallen if p.physical != "Disabled"]  # somebody switched it off
    if fallen:
        said = f"{_names(fallen)} was up and is down ({fallen[0].physical}, {fallen[0].downed} links lost)"
        return Check("ib_ports", Status.CRITICAL, said, lines, category="ib_link")
    # A link without a subnet manager's word: the fabric's fault as likely as the node's.
    half = [port for port in ports if port.state in ("INIT", "ARMED")]
    if half:
        return Check("ib_ports", Status.WARN, f"{_names(half)}: link, but {half[0].state}", lines)
    unknown = [port for port in ports if port.error]
    if unknown:
        return Check("ib_ports", Status.UNKNOWN, f"{_names(unknown)} cannot be read", lines)
    active = sum(port.active for port in ports)
    if not active:
        return Check("ib_ports", Status.WARN, f"none of {len(ports)} ports is active", lines)
    return Check("ib_ports", Status.OK, f"{active} of {len(ports)} ports active", lines)


def _rates(ports: Sequence[Port]) -> Check:
    """A port that came up slower than its sisters on adapters of the same kind."""
    groups: dict[tuple[str, str], list[Port]] = defaultdict(list)
    for port in ports:
        if port.active and _gigabits(port.rate) is not None:
            groups[port.kind, port.layer].append(port)
    slow: list[Port] = []
    for group in groups.values():
        rates = sorted(_gigabits(port.rate) or 0.0 for port in group)
        # Most of them must be faster: two that differ may be meant so.
        usual = rates[len(rates) // 2]
        if len(group) >= 3:
            slow += [port for port in group if (_gigabits(port.rate) or 0.0) < usual]
    if slow:
        lines = tuple(_line(port) for port in slow)
        said = f"{_names(slow)} is slower than the node's other ports: {slow[0].rate}"
        return Check("ib_rate", Status.WARN, said, lines)
    return Check("ib_rate", Status.OK, ", ".join(sorted({p.rate for p in ports if p.active})))


def _gigabits(rate: str) -> float | None:
    found = re.match(r"\s*([0-9]+(?:\.[0-9]+)?)\s*Gb/sec", rate)
    return float(found[1]) if found else None


def _names(ports: Sequence[Port]) -> str:
    shown = ", ".join(port.name for port in ports[:4])
    return shown + (f" and {len(ports) - 4} more" if len(ports) > 4 else "")


def _line(port: Port) -> str:
    if port.error:
        return f"{port.name}: {errno.errorcode.get(port.error, port.error)}"
    return f"{port.name}: {port.state} {port.physical} {port.rate} link_downed={port.downed}"
