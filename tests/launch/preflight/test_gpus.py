"""Judgements of what NVML tells: eight GPUs of a good H100 node, and one thing wrong at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from launch.preflight import gpus
from launch.preflight.gpus import NAMES, Gpu, Reading, judge
from resiliency.health import Check, Status

GOOD = Gpu(
    0, "00000000:19:00.0", 85_520_809_984, 500_000_000, 0, False, False, (True,) * 18, gpus.COMPLETED, 0,
    0x1, 31, 87, recovery=0, processes=(),
)  # fmt: skip


def node(**of_third: Any) -> Reading:
    eight = [replace(GOOD, index=index) for index in range(8)]
    eight[3] = replace(eight[3], **of_third)
    return Reading(tuple(eight), 8, (), 8)


def found(reading: Reading, name: str, wanted: int = 8) -> Check:
    return next(check for check in judge(reading, wanted) if check.name == name)


def test_a_good_node() -> None:
    checks = judge(node(), 8)
    assert tuple(check.name for check in checks) == NAMES
    assert {check.status for check in checks} == {Status.OK}


@pytest.mark.parametrize(
    ("changed", "name", "status", "category"),
    [
        ({"ecc_volatile": 2}, "gpu_ecc", "CRITICAL", "gpu_ecc"),
        ({"remap_failed": True}, "gpu_remap", "CRITICAL", "gpu_ecc"),
        ({"remap_pending": True}, "gpu_remap", "WARN", ""),
        ({"links": (True,) * 17 + (False,)}, "gpu_nvlink", "CRITICAL", "gpu_nvlink"),
        ({"links": (False,) * 18}, "gpu_nvlink", "WARN", ""),
        ({"fabric_state": gpus.NOT_STARTED}, "gpu_fabric", "CRITICAL", "fabric_manager"),
        ({"fabric_status": 999}, "gpu_fabric", "CRITICAL", "fabric_manager"),
        ({"fabric_state": gpus.IN_PROGRESS}, "gpu_fabric", "WARN", ""),
        ({"reasons": 0x8 | 0x40}, "gpu_clocks", "WARN", ""),
        ({"reasons": 0x4}, "gpu_clocks", "OK", ""),  # the power cap of every busy GPU
        ({"temperature": 90}, "gpu_clocks", "WARN", ""),
        ({"memory_total": 40 << 30}, "gpu_memory", "WARN", ""),
        ({"memory_used": 30 << 30}, "gpu_memory", "WARN", ""),
        ({"recovery": 1}, "gpu_recovery", "CRITICAL", "gpu_ecc"),
        ({"recovery": 2}, "gpu_recovery", "CRITICAL", "gpu_ecc"),
        ({"recovery": 4}, "gpu_recovery", "WARN", ""),
        ({"recovery": 99}, "gpu_recovery", "WARN", ""),  # of a newer driver
        ({"processes": ("4711 python (D)",)}, "gpu_processes", "WARN", ""),
        ({"error": gpus.GPU_IS_LOST}, "gpu_count", "CRITICAL", "gpu_off_bus"),
        ({"error": gpus.RESET_REQUIRED}, "gpu_count", "CRITICAL", "gpu_ecc"),
        ({"error": 999}, "gpu_count", "UNKNOWN", ""),
    ],
)
def test_one_gpu_is_bad(changed: dict[str, Any], name: str, status: str, category: str) -> None:
    check = found(node(**changed), name)
    assert (check.status.value, check.category) == (status, category)
    if status != "OK":
        assert "3" in check.detail or "90" in check.detail
        others = [one for one in judge(node(**changed), 8) if one.name != name]
        assert {one.status for one in others} == {Status.OK}


def test_who_is_left_on_a_gpu_is_named() -> None:
    check = found(node(processes=("4711 python (D)", "4712 python (R)")), "gpu_processes")
    assert "4711 python (D)" in check.detail and check.evidence[1] == "GPU 3: 4712 python (R)"


def test_a_gpu_that_tells_nothing_is_no_fault() -> None:
    silent = Reading((Gpu(0), Gpu(1)), 2)
    assert [(c.name, c.status) for c in judge(silent, 2)] == [("gpu_count", Status.OK)]


def test_cards_with_and_without_a_bridge() -> None:
    bridged, bare = replace(GOOD, links=(True,) * 12, fabric_state=None), replace(GOOD, links=())
    check = found(Reading((bridged, bridged, bare, bare), 4), "gpu_nvlink", 4)
    assert check.status is Status.WARN
    halves = (bridged, replace(bridged, links=(True,) * 4 + (False,) * 8))
    assert found(Reading(halves, 2), "gpu_nvlink", 2).status is Status.WARN, "one against one proves nothing"


def test_a_single_gpu_of_a_virtual_machine_waits_for_no_fabric() -> None:
    alone = Reading((replace(GOOD, fabric_state=gpus.NOT_STARTED),), 1)
    assert found(alone, "gpu_fabric", 1).status is Status.WARN


SEVEN = tuple(replace(GOOD, index=index) for index in range(7))


@pytest.mark.parametrize(
    ("reading", "status", "category"),
    [
        (Reading(SEVEN, 7, (), 8), "CRITICAL", "gpu_off_bus"),  # promised by the scheduler
        (Reading(SEVEN, 7), "CRITICAL", ""),  # a wrong wish, perhaps
        (Reading(SEVEN, 8), "WARN", ""),  # hidden from the job, perhaps
        (Reading(SEVEN, None), "WARN", ""),
        (Reading(SEVEN, 8, ("0000:19:00.0",)), "CRITICAL", "gpu_off_bus"),
        (Reading((), 8, (), 8, gpus.VERSION_MISMATCH), "CRITICAL", "driver_mismatch"),
        (Reading((), 8, (), 8, gpus.DRIVER_NOT_LOADED), "CRITICAL", "driver_mismatch"),
        (Reading((), 0, (), None, gpus.DRIVER_NOT_LOADED), "UNKNOWN", ""),
        (Reading((), 8, (), 8, gpus.LIBRARY_NOT_FOUND, "pynvml is not installed"), "UNKNOWN", ""),
    ],
)
def test_too_few(reading: Reading, status: str, category: str) -> None:
    check = found(reading, "gpu_count")
    assert (check.status.value, check.category) == (status, category)


def test_a_dead_gpu_of_another_job_on_a_shared_node() -> None:
    assert found(Reading(SEVEN, 8, ("0000:19:00.0",)), "gpu_count", 4).status is Status.WARN
