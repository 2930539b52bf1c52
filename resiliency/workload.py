"""The client in a training process: report progress, learn that it is time to stop, tell facts.

Works outside an allocation too (every call is then a cheap no-op), so a program can be run by hand.
Costs per step: two dictionary-free comparisons; the journal gets one aggregate per ``interval_s`` from
rank 0 only. ``scripts/bench/journal.py`` measures it, ``tests/resiliency/test_workload.py`` holds the rest.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import contract
from .edges import Clock, SystemClock
from .journal import JournalWriter


def _number(value: float | None) -> float | str | None:
    """JSON has no NaN or infinity: they are written as text."""
    if value is None or math.isfinite(value):
        return value
    return repr(value)


class Workload:
    """One rank's view. Only rank 0 writes; ``journal`` is None where there is nobody to tell."""

    def __init__(
        self,
        *,
        rank: int = 0,
        stop_file: Path | None = None,
        journal: JournalWriter | None = None,
        clock: Clock | None = None,
        interval_s: float = 10.0,
    ) -> None:
        self.rank = rank
        self.attempt = os.environ.get(contract.ENV_ATTEMPT)
        self._stop = os.fspath(stop_file) if stop_file else None
        self._journal = journal if rank == 0 else None
        self._clock = clock or SystemClock()
        self._interval = interval_s
        self._last_time = self._clock.mono()
        self._last_step: int | None = None
        self._pending: dict[str, Any] | None = None

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Workload:
        """Built from the variables of :mod:`resiliency.contract` and torchrun's RANK."""
        env = os.environ if environ is None else environ
        rank = int(env.get("RANK", "0"))
        stop = env.get(contract.ENV_STOP_FILE)
        run_dir, attempt = env.get(contract.ENV_RUN_DIR), env.get(contract.ENV_ATTEMPT)
        journal = None
        if run_dir and attempt and rank == 0:
            stage = env.get(contract.ENV_STAGE, "")
            flat = attempt.replace("/", "-")
            journal = JournalWriter(
                contract.RunPaths(Path(run_dir)).journal,
                run=env.get(contract.ENV_RUN, ""),
                writer=f"{flat}-{stage}-rank0",
                defaults={
                    "stage": stage,
                    "attempt": attempt,
                    "cycle": int(env.get(contract.ENV_CYCLE, "0")),
                    "node": env.get(contract.ENV_NODE),
                    "rank": 0,
                },
            )
        return cls(rank=rank, stop_file=Path(stop) if stop else None, journal=journal)

    def should_stop(self) -> bool:
        """Whether this node was told to stop; one stat of a node-local file.

        Ranks of other nodes may learn it a step later: agree through a collective before saving.
        """
        return self._stop is not None and os.path.exists(self._stop)

    def report(
        self,
        *,
        step: int,
        loss: float | None = None,
        tokens: int | None = None,
        section: str = "step",
    ) -> None:
        """Say where the program is. ``tokens``: total so far. Cheap enough for every step."""
        if self._journal is None:
            return
        now = self._clock.mono()
        self._pending = {"step": step, "loss": _number(loss), "tokens": tokens, "section": section}
        if self._last_step is None:
            self._last_step = step
        elapsed = now - self._last_time
        if elapsed >= self._interval:
            self._write(now, elapsed)

    def _write(self, now: float, elapsed: float) -> None:
        if self._journal is None or self._pending is None:
            return
        done = self._pending["step"] - (self._last_step or 0)
        self._pending["steps_per_s"] = round(done / elapsed, 4) if elapsed > 0 else None
        self._journal.append("progress", self._pending)
        self._last_time, self._last_step, self._pending = now, self._pending["step"], None

    def event(self, type: str, *, sync: bool = True, **data: Any) -> None:
        """Write a fact (see :data:`resiliency.events.TYPES`); flushes pending progress first."""
        if self._journal is None:
            return
        self.flush()
        self._journal.append(type, data, sync=sync)

    def error(self, category: str, message: str, hint: str = "") -> None:
        """The program's own last word, with a category of :mod:`resiliency.taxonomy`."""
        self.event("workload.error", category=category, message=message, hint=hint)

    def flush(self) -> None:
        """Write progress not yet written."""
        now = self._clock.mono()
        self._write(now, now - self._last_time)

    def close(self) -> None:
        if self._journal is not None:
            self.flush()
            self._journal.close()
            self._journal = None
