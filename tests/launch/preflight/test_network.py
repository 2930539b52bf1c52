"""Ports as recorded from /sys/class/infiniband: which of them prove a fault of the node."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from launch.preflight.network import Port, judge, read_ports
from resiliency.health import Check, Status

#: What one port of an NDR adapter shows, file by file.
NDR = {
    "state": "4: ACTIVE\n", "phys_state": "5: LinkUp\n", "rate": "400 Gb/sec (4X NDR)\n",
    "link_layer": "InfiniBand\n", "counters/link_downed": "0\n",
}  # fmt: skip


def port(root: Path, device: str, **changed: str) -> None:
    base = root / device / "ports" / "1"
    (base / "counters").mkdir(parents=True)
    (root / device / "hca_type").write_text("MT4129\n")
    for name, text in {**NDR, **{key.replace("__", "/"): value for key, value in changed.items()}}.items():
        (base / name).write_text(text)


def ports_and_rates(root: Path) -> tuple[Check, Check]:
    first, second = judge(read_ports(root))
    assert (first.name, second.name) == ("ib_ports", "ib_rate")
    return first, second


DOWN = {"state": "1: DOWN\n", "phys_state": "2: Polling\n", "rate": "10 Gb/sec (4X SDR)\n"}


def test_a_node_without_such_ports_has_no_such_checks(tmp_path: Path) -> None:
    assert judge(read_ports(tmp_path / "missing")) == []
    assert judge(read_ports(tmp_path)) == []


def test_a_good_node(tmp_path: Path) -> None:
    for number in range(8):
        port(tmp_path, f"mlx5_{number}")
    states, rates = ports_and_rates(tmp_path)
    assert (states.status, states.detail) == (Status.OK, "8 of 8 ports active")
    assert (rates.status, rates.detail) == (Status.OK, "400 Gb/sec (4X NDR)")


def test_a_link_that_was_lost_proves_the_node(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0")
    port(tmp_path, "mlx5_1", **DOWN, counters__link_downed="3\n")
    states, _ = ports_and_rates(tmp_path)
    assert (states.status, states.category) == (Status.CRITICAL, "ib_link")
    assert "mlx5_1/1" in states.detail and any("Polling" in line for line in states.evidence)


@pytest.mark.parametrize(
    "changed",
    [
        DOWN,  # no cable, ever
        {**DOWN, "phys_state": "3: Disabled\n", "counters__link_downed": "1\n"},
        {**DOWN, "link_layer": "Ethernet\n", "counters__link_downed": "2\n"},
    ],
    ids=["no-cable", "switched-off", "ethernet"],
)
def test_a_port_that_is_not_used_is_no_fault(tmp_path: Path, changed: dict[str, str]) -> None:
    port(tmp_path, "mlx5_0")
    port(tmp_path, "mlx5_1", **changed)
    assert ports_and_rates(tmp_path)[0].status is Status.OK


def test_no_active_port_and_no_subnet_manager_are_worth_a_word(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", **DOWN)
    assert ports_and_rates(tmp_path)[0].status is Status.WARN
    port(tmp_path, "mlx5_1", state="2: INIT\n")
    states, _ = ports_and_rates(tmp_path)
    assert states.status is Status.WARN and "INIT" in states.detail


def test_a_port_that_came_up_slower(tmp_path: Path) -> None:
    for number in range(3):
        port(tmp_path, f"mlx5_{number}")
    port(tmp_path, "mlx5_3", rate="200 Gb/sec (2X NDR)\n")
    _, rates = ports_and_rates(tmp_path)
    assert rates.status is Status.WARN and "mlx5_3" in rates.detail


def test_two_rates_may_be_meant_so(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0")
    port(tmp_path, "mlx5_1", rate="100 Gb/sec (4X EDR)\n")
    assert ports_and_rates(tmp_path)[1].status is Status.OK


def test_an_adapter_that_does_not_answer_the_kernel() -> None:
    states = judge([Port("mlx5_0", "1", "ACTIVE"), Port("mlx5_1", "?", error=errno.EIO)])[0]
    assert (states.status, states.category) == (Status.CRITICAL, "hca_failure")
    forbidden = judge([Port("mlx5_0", "1", error=errno.EACCES)])[0]
    assert forbidden.status is Status.UNKNOWN


def test_a_virtual_function_tells_less(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0")
    (tmp_path / "mlx5_0" / "hca_type").unlink()
    (tmp_path / "mlx5_0/ports/1/counters/link_downed").unlink()
    (found,) = read_ports(tmp_path)
    assert found.downed is None and found.active
    assert ports_and_rates(tmp_path)[0].status is Status.OK


def test_an_unreadable_rate_is_no_error(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", rate="fast\n", state="nonsense")
    assert [check.status for check in ports_and_rates(tmp_path)] == [Status.WARN, Status.OK]
