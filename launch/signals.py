"""Signals of the supervisor and the agents: collected by a bell, acted on in the main loop.

What they mean on the batch host: USR2 is the time limit coming; TERM is a preemption or a person's
scancel, which only the scheduler can tell apart. ``tests/launch/test_signals.py``.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from resiliency.errors import TrainmasterError
from resiliency.jobstate import Observation

#: How long the scheduler may take to say why a TERM came; training has been told to stop by then.
CLASSIFY_S = 8.0
_ASK_AGAIN_S = 1.0


class JobControl(Protocol):
    """The part of a scheduler that an allocation needs."""

    def observe(self, job_ids: Collection[str]) -> Observation: ...
    def cancel(self, job_ids: Collection[str]) -> None: ...
    def exclude(self, job_id: str, nodes: Sequence[str]) -> None: ...
    def unchain(self, job_id: str) -> None: ...
    def facts(self) -> Mapping[str, Any]: ...


OpenControl = Callable[[], "JobControl | None"]


class Bell:
    """Wakes the main loop on a signal; the handlers themselves do nothing.

    Must be made in the main thread. SIGCHLD rings too, so the end of a child is seen at once.
    """

    def __init__(self, signals: Collection[signal.Signals]) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._wanted = {int(number) for number in signals}
        for number in (*signals, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)

    def wait(self, timeout_s: float, *also: int) -> list[signal.Signals]:
        """Sleep until a signal, the timeout or input on ``also``; the wanted signals that came, in order."""
        with contextlib.suppress(InterruptedError):
            select.select([self._read, *also], [], [], max(0.0, timeout_s))
        try:
            raw = os.read(self._read, 512)
        except BlockingIOError:
            return []
        return [signal.Signals(number) for number in raw if number in self._wanted]


def why_terminated(control: JobControl | None, job_id: str, deadline: float) -> str:
    """``cancelled`` if the scheduler says so before ``deadline`` (monotonic), else ``preempted``.

    While a job is being ended its queue entry may only say COMPLETING (then ``cancelled_by`` tells), and
    accounting may know better a moment later: so it is asked again.
    """
    while control is not None:
        records = control.observe([job_id]).records
        state = records[-1].state if records else "UNKNOWN"
        if state == "CANCELLED" or (records and records[-1].cancelled_by):
            return "cancelled"
        if state in ("PREEMPTED", "TIMEOUT", "NODE_FAIL", "REQUEUED", "RUNNING"):
            break  # RUNNING: a preemption's grace; a person's cancel would be known by now
        if time.monotonic() + _ASK_AGAIN_S > deadline:
            break
        time.sleep(_ASK_AGAIN_S)
    return "preempted"


class Classifier:
    """Asks why a TERM came, in a thread, so that draining does not wait for the answer."""

    def __init__(self, open_control: OpenControl, job_id: str) -> None:
        self.answer: str | None = None
        self._deadline = time.monotonic() + CLASSIFY_S
        self._thread = threading.Thread(target=self._ask, args=(open_control, job_id), daemon=True)
        self._thread.start()

    def _ask(self, open_control: OpenControl, job_id: str) -> None:
        try:
            self.answer = why_terminated(open_control(), job_id, self._deadline)
        except TrainmasterError as error:
            print(f"trainmaster: cannot ask why the job ends: {error}", file=sys.stderr, flush=True)
            self.answer = "preempted"

    def result(self, *, wait: bool = False) -> str | None:
        """The answer; with ``wait`` at the latest when the time for it is over."""
        if wait:
            self._thread.join(max(0.0, self._deadline - time.monotonic()))
            return self.answer or "preempted"
        if self.answer is None and (time.monotonic() > self._deadline or not self._thread.is_alive()):
            return self.answer or "preempted"
        return self.answer
