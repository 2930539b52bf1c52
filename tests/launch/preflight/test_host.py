"""Shared memory, memory and clock: judgements of recorded values, and the probes on this machine."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from launch.preflight import CheckPlace
from launch.preflight.host import GIB, clock, judge_clock, judge_memory, judge_shm, memory, shm
from resiliency.health import Status

#: /proc/meminfo of a node with 2 TiB, shortened.
MEMINFO = "MemTotal:       2113405508 kB\nMemFree:  1000 kB\nMemAvailable:   {} kB\nHugePages_Total:  0\n"


@pytest.mark.parametrize(
    ("total", "free", "gpus", "status"),
    [
        (1000 * GIB, 990 * GIB, 8, "OK"),
        (64 << 20, 64 << 20, 0, "OK"),
        (64 << 20, 64 << 20, 8, "WARN"),
        (1000 * GIB, 1 << 20, 8, "WARN"),
        (64 << 20, 1 << 20, 0, "WARN"),
    ],
)
def test_shared_memory(total: int, free: int, gpus: int, status: str) -> None:
    assert judge_shm(total, free, gpus).status.value == status


@pytest.mark.parametrize(("free", "status"), [(2_000_000_000, "OK"), (50_000_000, "WARN"), (900, "WARN")])
def test_free_memory(free: int, status: str) -> None:
    assert judge_memory(MEMINFO.format(free)).status.value == status


def test_memory_that_is_not_told() -> None:
    assert judge_memory("MemTotal: what\nnonsense\n").status is Status.UNKNOWN


def test_the_clock() -> None:
    assert judge_clock(0.0, None).status is Status.WARN
    now = 1_800_000_000.0
    assert judge_clock(now, now + 3600).status is Status.WARN
    assert judge_clock(now, now + 5).status is Status.OK
    assert judge_clock(now, now - 1e6).status is Status.OK


def test_the_run_s_own_files_are_the_witness(tmp_path: Path) -> None:
    place = CheckPlace("n", tmp_path, tmp_path)
    assert clock(place, 0.0)[0].status is Status.OK
    later = time.time() + 7200
    os.utime(tmp_path, (later, later))
    assert clock(place, 0.0)[0].status is Status.WARN


def test_this_machine_answers(tmp_path: Path) -> None:
    place = CheckPlace("n", tmp_path, tmp_path)
    for probe in (shm, memory):
        (found,) = probe(place, 0.0)
        assert found.status in (Status.OK, Status.WARN) and "GiB" in found.detail
