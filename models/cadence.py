"""When the next checkpoint is due: every so many steps, or by what saves cost and how often things fail.

Rank 0 alone decides by time; the others learn of it in the once-a-step all-reduce. The choice and its reason
are journaled when it changes. May not import torch or megatron. ``tests/models/test_cadence.py``.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from resiliency import contract, daly
from resiliency.edges import Clock, SystemClock
from resiliency.journal import read_run
from resiliency.workload import Workload

from .settings import Checkpoint
from .stage import say

#: Seconds between two looks at the interval.
LOOK_S = 30.0
_STEPS = 50
_MOST_S = 3600.0


@dataclass(frozen=True)
class Past:
    """What a run's journal knows: failures of this stage, for how long it ran, when this link must end."""

    failures: int = 0
    exposure_s: float = 0.0
    deadline: float | None = None  # Unix time


class Costs(Protocol):
    """What is known of saves so far; None: nothing yet."""

    stall_s: float | None
    save_s: float | None


class Cadence:
    """Of one run, on rank 0; on other ranks it never says anything."""

    def __init__(
        self,
        settings: Checkpoint,
        work: Workload,
        *,
        nodes: int = 1,
        past: Callable[[], Past] = Past,
        clock: Clock | None = None,
        tell: Callable[[str], None] = say,
    ) -> None:
        self.settings, self._work, self._tell = settings, work, tell
        self._nodes, self._ask = nodes, past
        self._past: Past | None = None
        self._clock = clock or SystemClock()
        self._last = self._began = self._clock.mono()
        self._looked = self._last
        self._steps: deque[float] = deque(maxlen=_STEPS)
        self._waiting_told: int | None = None
        self.seconds = float(settings.seconds)
        self._known = False  # whether ``seconds`` is a choice from what was measured

    def stepped(self, seconds: float) -> None:
        self._steps.append(seconds)

    def started(self, stall: float) -> None:
        """A save began now."""
        self._last = self._clock.mono()

    def waits(self, step: int) -> None:
        """A save is due while one is under way: said once, it has to wait."""
        if self._work.rank == 0 and self._waiting_told is None:
            self._waiting_told = step
            self._tell(
                f"pretrain: the checkpoint due at step {step} waits for the one that is being written; "
                "so will later ones (a longer checkpoint.interval would not)"
            )

    def overdue(self, step: int, costs: Costs) -> bool:
        """Whether it is time, where no number of steps was given."""
        if self.settings.interval is not None:
            return False
        now = self._clock.mono()
        if costs.save_s is not None and (not self._known or now - self._looked >= LOOK_S):
            self._looked = now
            self._choose(step, costs, now)
        return now - self._last >= self.seconds

    def _choose(self, step: int, costs: Costs, now: float) -> None:
        if self._past is None:
            self._past = self._ask()
        past = self._past
        mtbf = daly.mtbf_s(self._nodes, past.failures, past.exposure_s + now - self._began)
        left = None if past.deadline is None else past.deadline - self._clock.wall()
        facts = daly.Facts(
            stall=costs.stall_s or 0.0,
            duration=costs.save_s or 0.0,
            step=statistics.median(self._steps) if self._steps else 0.0,
            mtbf=mtbf,
            left=left,
            most=max(_MOST_S, self.settings.seconds),
        )
        choice = daly.choose(facts)
        if self._known and not daly.differs(self.seconds, choice.seconds):
            return
        self._known, self.seconds = True, choice.seconds
        self._work.event(
            "checkpoint.interval",
            sync=False,
            steps=choice.steps,
            seconds=round(choice.seconds, 3),
            cost_s=round(facts.stall, 4),
            mtbf_s=round(mtbf, 1),
            reason=choice.reason,
            step=step,
        )
        self._tell(
            f"pretrain: a checkpoint every {choice.seconds:.1f} s (about {choice.steps} steps): "
            f"{choice.reason}; one costs training {facts.stall:.3f} s, "
            f"a failure is expected every {mtbf / 3600:.1f} h"
        )


def from_run(settings: Checkpoint, work: Workload, environ: Mapping[str, str] | None = None) -> Cadence:
    """With what this run's journal says; read at the first choice, so that no start waits for it."""
    env = os.environ if environ is None else environ
    world, local = int(env.get("WORLD_SIZE", "1")), int(env.get("LOCAL_WORLD_SIZE", "1"))
    return Cadence(settings, work, nodes=max(1, world // max(1, local)), past=lambda: read_past(env))


def read_past(env: Mapping[str, str]) -> Past:
    """Failures in the allocation count (``incident``), and attempts that never said how they ended."""
    run_dir, stage = env.get(contract.ENV_RUN_DIR), env.get(contract.ENV_STAGE, "")
    mine, now = env.get(contract.ENV_ATTEMPT), time.time()
    if not run_dir:
        return Past()
    failures, deadline = 0, None
    starts: dict[str, float] = {}
    ends: dict[str, float] = {}
    for event in read_run(contract.RunPaths(Path(run_dir)).journal)[0]:
        if event.stage != stage or event.attempt is None:
            continue
        if event.type == "attempt.started":
            starts[event.attempt] = event.ts
            if event.attempt == mine and event.data.get("time_limit_s"):
                deadline = event.ts + float(event.data["time_limit_s"])
        elif event.type == "incident" and event.data.get("kind") != "straggler":
            failures += 1
        ends[event.attempt] = max(ends.get(event.attempt, 0.0), event.ts)
        if event.type == "attempt.finished":
            ends[event.attempt] = event.ts
    ends[mine or ""] = now
    return Past(failures, sum(max(0.0, ends[a] - began) for a, began in starts.items()), deadline)
