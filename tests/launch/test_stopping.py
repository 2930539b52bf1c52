"""When a stage is told to stop: the limit's signal may come early, and that time is trained in."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from launch import stopping
from launch.allocation import Allocation
from launch.config import read_stage_config
from launch.journaling import SafeJournal
from launch.segment import Segment

from .conftest import RUN_ID, RunDir, until


def told(run_dir: RunDir, ends_in_s: float | None, *, lead_s: float) -> tuple[stopping.Stopping, list[Any]]:
    run_dir.stage(argv=["x"], signal_lead_s=lead_s)
    config = read_stage_config(run_dir.paths.stage_config("work"))
    journal = SafeJournal(run_dir.paths.journal, run=RUN_ID, writer="test", defaults={"stage": "work"})
    ends_at = None if ends_in_s is None else time.time() + ends_in_s
    allocation = Allocation("slurm", "17", 0, "a1", "a1", ends_at=ends_at)
    orders: list[Any] = []
    segment = Segment(config, run_dir.paths, allocation, 1, journal, lambda: None)
    return stopping.Stopping(segment, orders.append), orders


@pytest.mark.parametrize(
    ("ends_in_s", "lead_s"),
    [(30.0, 30.0), (10.0, 30.0), (None, 30.0), (60.0, 0.0), (3600.0, 30.0)],
    ids=["in time", "late", "limit not known", "lead not known", "the limit was changed"],
)
def test_it_is_acted_on_at_once(run_dir: RunDir, ends_in_s: float | None, lead_s: float) -> None:
    it, orders = told(run_dir, ends_in_s, lead_s=lead_s)
    it.signal(signal.SIGUSR2)
    assert it.asked and len(orders) == 1
    assert run_dir.one("drain.requested").data["reason"] == "time_limit"


def test_an_early_one_waits_for_its_time(run_dir: RunDir) -> None:
    it, orders = told(run_dir, 31.0, lead_s=30.0)
    it.signal(signal.SIGUSR2)
    assert not it.asked and not orders and not run_dir.events("drain.requested")
    it.signal(signal.SIGUSR2)  # twice is once

    def stopped() -> bool:
        it.settle(wait=False, preempted=False)
        return it.asked

    until(stopped)
    assert len(orders) == 1 and run_dir.one("drain.requested")


def test_a_preemption_does_not_wait_for_the_limit(run_dir: RunDir) -> None:
    it, orders = told(run_dir, 70.0, lead_s=30.0)
    it.signal(signal.SIGUSR2)
    it.signal(signal.SIGTERM)
    assert it.asked and orders
