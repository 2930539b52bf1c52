"""An attempt that is told to stop: why, and until when. Orders go out once; later ones only shorten the time.

``tests/launch/test_segment.py``.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

from . import leftover
from .segment import Segment
from .signals import Classifier

#: What is left of the grace after a second TERM: the allocation is about to be taken away.
HURRY_S = 10.0
#: Slurm 22.05 sent --signal up to 45 s before its time (its own pass comes about once a minute).
EARLIEST_S = 90.0


class Stopping:
    """``tell`` sends an order to every agent. ``deadline`` (monotonic): their ranks have ended by then."""

    def __init__(self, segment: Segment, tell: Callable[[dict[str, Any]], None]) -> None:
        self._segment, self._tell = segment, tell
        self.asked = False
        self.deadline = float("inf")
        self._terms = 0
        self._due: float | None = None
        self._classifier: Classifier | None = None

    def signal(self, number: signal.Signals) -> None:
        """A signal of the batch host: USR2 is the time limit coming, TERM what the scheduler says it is."""
        grace = self._segment.config.launch.grace_s
        if number == signal.SIGUSR2:
            if self._segment.drain_reason is None and not self._terms and self._due is None:
                early = self._early_s()
                if early > 0:
                    print(f"trainmaster: the time limit's signal came {early:.0f} s early", flush=True)
                self._due = time.monotonic() + early
                self._limit()
            return
        self._terms += 1
        self._ask_why()
        hurry = self._terms > 1 or self._segment.drain_reason is not None
        self._stop("terminated", min(grace, HURRY_S) if hurry else grace)

    def _early_s(self) -> float:
        """Seconds by which the signal came before its time: Slurm sends it up to a minute early, and that is
        time to train. When it comes still earlier the limit was changed, and it is taken at its word."""
        ends_at, lead = self._segment.allocation.ends_at, self._segment.config.launch.signal_lead_s
        if ends_at is None or lead <= 0:
            return 0.0
        early = ends_at - lead - time.time()
        return early if 0 < early <= EARLIEST_S else 0.0

    def _limit(self) -> None:
        """Stop for the time limit, once it is due."""
        if self._due is None or time.monotonic() < self._due or self.asked:
            return
        leftover.draining(self._segment, "time_limit", "USR2")
        self._stop("time_limit", self._segment.config.launch.grace_s)

    def step_told(self) -> None:
        """Preemption with a GraceTime: only the step was told. Its TERM is the attempt's."""
        if not self.asked:
            self._ask_why()
            self._stop("terminated", self._segment.config.launch.grace_s)

    def order(self) -> dict[str, Any]:
        """The order as an agent that comes late must hear it."""
        return {"do": "drain", "grace_s": max(0.0, self.deadline - time.monotonic())}

    def settle(self, *, wait: bool, preempted: bool) -> None:
        """Journal why the TERM came, once it is known; a cancelled stage stops at once.

        ``preempted``: srun has said so already.
        """
        self._limit()
        if self._classifier is None:
            return
        reason = "preempted" if preempted else self._classifier.result(wait=wait)
        if reason is None:
            return
        self._classifier = None
        if self._segment.drain_reason is None or reason == "cancelled":
            leftover.draining(self._segment, reason, "TERM")
        if reason == "cancelled":
            leftover.cancelled(self._segment)

    def _ask_why(self) -> None:
        if self._classifier is None:
            self._classifier = Classifier(self._segment.open_control, self._segment.allocation.job_id)

    def _stop(self, reason: str, grace_s: float) -> None:
        deadline = time.monotonic() + grace_s
        if deadline >= self.deadline:
            return
        self.asked, self.deadline = True, deadline
        print(f"trainmaster: stopping ({reason}), at most {grace_s:.0f} s", flush=True)
        self._tell(self.order())
