"""Probes that hang, break, are late or are left out: the node is never failed by them, nothing waits."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from launch.preflight import CheckPlace
from launch.preflight.running import Probe, run_all
from resiliency.health import Check, Status

PLACE = CheckPlace("n1", Path("/"), Path("/"))


def fine(place: CheckPlace, deadline: float) -> Sequence[Check]:
    return [Check("fine", Status.OK)]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


def test_a_hanging_probe_is_unknown_and_the_others_answer(pipe: tuple[int, int]) -> None:
    def hang(place: CheckPlace, deadline: float) -> Sequence[Check]:
        os.read(pipe[0], 1)  # as a write to a dead server: nothing comes
        return [Check("hangs-1", Status.CRITICAL)]

    probes = [Probe("hangs-1", ("hangs-1",), hang), Probe("fine", ("fine",), fine)]
    began = time.monotonic()
    first = run_all(probes, PLACE, 0.2)
    # The promise itself: no longer than the time given and a second.
    assert time.monotonic() - began < 0.2 + 1.0
    assert [check.status for check in first.checks] == [Status.UNKNOWN, Status.OK]
    assert "no answer within 0.2 s" in first.checks[0].detail and not first.failed

    before = threading.active_count()
    again = run_all(probes, PLACE, 5.0)
    assert "still hangs" in again.checks[0].detail
    assert threading.active_count() <= before, "no second thread is spent on what hangs"
    os.write(pipe[1], b"xx")
    for thread in threading.enumerate():
        if thread.name == "preflight-hangs-1":
            thread.join()
    assert run_all(probes, PLACE, 5.0).checks[0].status is Status.CRITICAL


def test_a_late_answer_changes_nothing_that_was_given() -> None:
    def late(place: CheckPlace, deadline: float) -> Sequence[Check]:
        gate.wait()
        return [Check("late", Status.CRITICAL)]

    gate = threading.Event()
    given = run_all([Probe("late", ("late",), late)], PLACE, 0.05)
    gate.set()
    assert not given.failed


def test_a_broken_probe_says_why() -> None:
    def broken(place: CheckPlace, deadline: float) -> Sequence[Check]:
        raise RuntimeError("no such thing")

    found = run_all([Probe("broken", ("a", "b"), broken)], PLACE, 5)
    assert found.checks[0].status is Status.UNKNOWN
    assert "RuntimeError: no such thing" in found.checks[0].detail


def test_probes_run_side_by_side() -> None:
    meet = threading.Barrier(3)

    def wait(place: CheckPlace, deadline: float) -> Sequence[Check]:
        meet.wait(10)
        return [Check("met", Status.OK)]

    found = run_all([Probe(f"p{i}", (f"p{i}",), wait) for i in range(3)], PLACE, 10)
    assert [check.name for check in found.checks] == ["met"] * 3


def test_an_answer_can_be_skipped() -> None:
    def two(place: CheckPlace, deadline: float) -> Sequence[Check]:
        return [Check("a", Status.CRITICAL), Check("b", Status.OK)]

    found = run_all([Probe("two", ("a", "b"), two)], PLACE, 5, frozenset({"a"}))
    assert [check.name for check in found.checks] == ["b"] and not found.failed
