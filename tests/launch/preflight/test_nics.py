"""Links as recorded from /sys/class/net: which of them are worth a word, and that none fails a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.preflight.nics import ROOT, judge, read_links
from resiliency.health import Check, Status

#: A port that works; changed for one that does not. "device" makes it physical.
GOOD = {
    "operstate": "up", "carrier": "1", "carrier_down_count": "1", "flags": "0x1003", "speed": "100000",
}  # fmt: skip
LOST = {"operstate": "down", "carrier": "0", "carrier_down_count": "4"}
EMPTY = {"operstate": "down", "carrier": "0", "carrier_down_count": "0"}


def link(root: Path, name: str, *, physical: bool = True, parts: str = "", **changed: str) -> None:
    (root / name).mkdir(parents=True)
    if physical:
        (root / name / "device").mkdir()
    for file, text in {**GOOD, **changed}.items():
        (root / name / file).write_text(text + "\n")
    if parts:
        (root / name / "bonding").mkdir()
        (root / name / "bonding" / "slaves").write_text(parts + "\n")


def found(root: Path, **environ: str) -> Check:
    (check,) = judge(read_links(root), environ)
    assert check.name == "net_links" and check.status is not Status.CRITICAL
    return check


def test_a_good_node(tmp_path: Path) -> None:
    link(tmp_path, "eth0")
    link(tmp_path, "eth1", **EMPTY)  # never had a cable
    link(tmp_path, "lo", physical=False, operstate="unknown")
    check = found(tmp_path, NCCL_SOCKET_IFNAME="eth", GLOO_SOCKET_IFNAME="eth0")
    assert (check.status, check.detail) == (Status.OK, "1 of 2 interfaces have a link")


def test_a_link_that_was_up_is_told(tmp_path: Path) -> None:
    link(tmp_path, "eth0")
    link(tmp_path, "eth1", **LOST)
    check = found(tmp_path)
    assert check.status is Status.WARN and "eth1" in check.detail and "eth0" not in check.detail
    assert "eth1: down 100000 Mb/s carrier=0 lost=4" in check.evidence


def test_one_that_is_switched_off_is_not(tmp_path: Path) -> None:
    link(tmp_path, "eth0")
    link(tmp_path, "eth1", **{**LOST, "flags": "0x1002"})
    assert found(tmp_path).status is Status.OK


def test_a_bond_that_lost_a_part(tmp_path: Path) -> None:
    link(tmp_path, "bond0", physical=False, parts="eth0 eth1")
    link(tmp_path, "eth0")
    link(tmp_path, "eth1", **EMPTY)
    check = found(tmp_path)
    assert check.status is Status.WARN and "eth1 (of bond0)" in check.detail


@pytest.mark.parametrize(
    ("value", "word"),
    [("ib0", "ib0, which is not here"), ("=eth", "eth, which is not here"),
     ("eth1", "eth1, which has no link"), ("^docker", ""), ("eth", ""), ("=eth0", ""),
     ("eth0,ib7", "ib7, which is not here")],
)  # fmt: skip
def test_what_nccl_was_told_to_use(tmp_path: Path, value: str, word: str) -> None:
    link(tmp_path, "eth0")
    link(tmp_path, "eth1", **EMPTY)
    check = found(tmp_path, NCCL_SOCKET_IFNAME=value)
    assert (check.status is Status.WARN) == bool(word) and word in check.detail


def test_no_link_at_all(tmp_path: Path) -> None:
    link(tmp_path, "eth0", **EMPTY)
    assert found(tmp_path).status is Status.WARN


def test_virtual_interfaces_alone_say_nothing(tmp_path: Path) -> None:
    link(tmp_path, "eth0", physical=False)
    assert judge(read_links(tmp_path), {}) == []
    assert judge(read_links(tmp_path / "missing"), {}) == []


def test_this_machine_s_can_be_read() -> None:
    assert all(one.name for one in read_links(ROOT))
