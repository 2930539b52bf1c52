"""The node's Ethernet and IPoIB links, as the kernel shows them in /sys/class/net.

Never CRITICAL: unplugged ports are common, and a node that does not reach its peers is found when they meet.
What is told: a link that was up and is not, a bond that lost a part, an interface that NCCL or gloo was told
to use and that is not there. ``tests/launch/preflight/test_nics.py``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from resiliency.health import Check, Status

from .settings import CheckPlace

ROOT: Final = Path("/sys/class/net")
NAMES_OF_INTERFACES: Final = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_IFF_UP: Final = 0x1  # linux/if.h: somebody wants it up


@dataclass(frozen=True)
class Link:
    """``wanted``: switched on; ``carrier``: something is at the other end; ``downed``: how often it went."""

    name: str
    physical: bool
    wanted: bool
    carrier: bool
    state: str = ""
    downed: int | None = None
    speed: int | None = None  # Mb/s
    parts: tuple[str, ...] = ()  # of a bond


def probe(place: CheckPlace, deadline: float) -> Sequence[Check]:
    return judge(read_links(ROOT), os.environ)


def read_links(root: Path) -> list[Link]:
    """Every interface; none where the kernel shows none."""
    try:
        names = sorted(path.name for path in root.iterdir())
    except OSError:
        return []
    return [_read(root / name) for name in names if (root / name / "operstate").exists()]


def _read(path: Path) -> Link:
    flags = _text(path / "flags")
    speed = _number(_text(path / "speed"))
    return Link(
        path.name,
        (path / "device").exists(),
        bool(int(flags, 16) & _IFF_UP) if flags.startswith("0x") else False,
        _text(path / "carrier") == "1",
        _text(path / "operstate"),
        _number(_text(path / "carrier_down_count")),
        speed if speed and speed > 0 else None,
        tuple(_text(path / "bonding" / "slaves").split()),
    )


def _text(path: Path) -> str:
    """What is not told is empty: an interface that is switched off has no carrier to be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()[:200]
    except OSError:
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.lstrip("-").isdigit() else None


def judge(links: Sequence[Link], environ: Mapping[str, str]) -> list[Check]:
    """Nothing for a node without interfaces of its own (a container with a virtual one)."""
    absent = [word for name in NAMES_OF_INTERFACES for word in _absent(name, environ.get(name, ""), links)]
    physical = [link for link in links if link.physical]
    if not physical and not absent:
        return []
    parts = {part for link in links for part in link.parts}
    lost = [
        link for link in physical if link.wanted and not link.carrier and (link.downed or link.name in parts)
    ]
    lines = tuple(_line(link) for link in links if link in lost or (link.physical and link.wanted))[:32]
    if absent:
        return [Check("net_links", Status.WARN, "; ".join(absent), lines)]
    if lost:
        which = ", ".join(link.name for link in lost)
        bond = [link.name for link in links if set(link.parts) & {one.name for one in lost}]
        of = f" (of {', '.join(bond)})" if bond else ""
        return [Check("net_links", Status.WARN, f"{which}{of} is switched on and has no link", lines)]
    up = [link for link in physical if link.carrier]
    if not up:
        return [Check("net_links", Status.WARN, f"none of {len(physical)} interfaces has a link", lines)]
    return [Check("net_links", Status.OK, f"{len(up)} of {len(physical)} interfaces have a link", lines)]


def _absent(variable: str, value: str, links: Sequence[Link]) -> list[str]:
    """Words of the variable that name nothing here: ``eth`` means all that begin so, ``=eth0`` just this one,
    ``^docker`` all others (NCCL's notation; gloo knows whole names only)."""
    if not value or value.startswith("^"):
        return []
    exact = value.startswith("=")
    found: list[str] = []
    for word in filter(None, (part.strip().partition(":")[0] for part in value.lstrip("=").split(","))):
        meant = [link for link in links if link.name == word or (not exact and link.name.startswith(word))]
        if not meant:
            found.append(f"{variable} names {word}, which is not here")
        elif not any(link.carrier or link.state in ("up", "unknown") for link in meant):
            found.append(f"{variable} names {word}, which has no link")
    return found


def _line(link: Link) -> str:
    speed = f" {link.speed} Mb/s" if link.speed else ""
    return f"{link.name}: {link.state or '?'}{speed} carrier={int(link.carrier)} lost={link.downed}"
