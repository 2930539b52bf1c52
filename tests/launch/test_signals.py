"""Why a TERM came, and the bell."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Collection

import pytest

from launch.signals import Classifier, why_terminated
from resiliency.errors import SchedulerUnreachable
from resiliency.jobstate import JobRecord, Observation


class Says:
    """A scheduler that answers each question with the next of its words."""

    def __init__(self, *records: JobRecord | None) -> None:
        self.records, self.asked = list(records), 0

    def observe(self, job_ids: Collection[str]) -> Observation:
        self.asked += 1
        record = self.records.pop(0) if len(self.records) > 1 else self.records[0]
        return Observation(records=[record] if record else [], queue_answered=record is not None)

    def cancel(self, job_ids: Collection[str]) -> None:
        raise AssertionError("not asked to")


def job(state: str, by: str | None = None) -> JobRecord:
    return JobRecord("17", 0, state, cancelled_by=by)


@pytest.mark.parametrize(
    ("records", "answer", "asked"),
    [
        ([job("CANCELLED")], "cancelled", 1),
        ([job("COMPLETING", by="1000")], "cancelled", 1),
        ([job("PREEMPTED")], "preempted", 1),
        ([job("RUNNING")], "preempted", 1),
        ([job("COMPLETING"), job("CANCELLED")], "cancelled", 2),
        ([None, job("CANCELLED")], "cancelled", 2),  # no answer is not an answer
    ],
)
def test_why(records: list[JobRecord | None], answer: str, asked: int) -> None:
    says = Says(*records)
    assert why_terminated(says, "17", time.monotonic() + 30) == answer
    assert says.asked == asked


def test_no_answer_in_time_is_a_preemption() -> None:
    """The next link may go on: if a person did cancel, the next reconcile learns it and stops."""
    assert why_terminated(Says(None), "17", time.monotonic()) == "preempted"
    assert why_terminated(None, "17", time.monotonic() + 30) == "preempted"


def test_an_unreachable_scheduler_does_not_end_the_supervisor(capsys) -> None:  # type: ignore[no-untyped-def]
    def nobody() -> Says:
        raise SchedulerUnreachable("no answer")

    assert Classifier(nobody, "17").result(wait=True) == "preempted"
    assert "no answer" in capsys.readouterr().err


def test_the_bell_collects_signals_in_order_and_wakes_for_children() -> None:
    code = """
import os, signal, subprocess, time
from launch.signals import Bell
bell = Bell((signal.SIGTERM, signal.SIGUSR2))
os.kill(os.getpid(), signal.SIGUSR2); os.kill(os.getpid(), signal.SIGTERM)
print([s.name for s in bell.wait(5)])
began = time.monotonic(); child = subprocess.Popen(["true"])
while child.poll() is None: bell.wait(30)
print(time.monotonic() - began < 25, bell.wait(0))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['SIGUSR2', 'SIGTERM']", "True []"]
