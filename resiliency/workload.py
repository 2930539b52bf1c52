"""The client in a training process: report progress, learn that it is time to stop, tell facts.

Works outside an allocation too (every call is then a cheap no-op), so a program can be run by hand.
Costs per step: one small dictionary and a write to memory, the rank's heartbeat; the journal gets one
aggregate per ``interval_s`` from rank 0 only. ``scripts/bench/bench_journal.py`` and ``bench_heartbeat.py``
measure it, ``tests/resiliency/test_workload.py`` holds the rest.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from . import contract
from .edges import Clock, SystemClock
from .errors import StorageError
from .heartbeat import Heartbeat
from .journal import JournalWriter

_T = TypeVar("_T")


def _plain(value: Any) -> Any:
    """What JSON can hold. It has no NaN or infinity: they are written as text. A scalar of an array
    library becomes a number, anything else its text: telling must not end the program."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    try:
        return _plain(float(value))
    except (TypeError, ValueError, OverflowError):
        return str(value)


class Workload:
    """One rank's view. Only rank 0 writes to the journal, which is None where there is nobody to tell;
    every rank has a heartbeat. For the training thread, as the heartbeat is."""

    def __init__(
        self,
        *,
        rank: int = 0,
        stop_file: Path | None = None,
        journal: JournalWriter | None = None,
        clock: Clock | None = None,
        interval_s: float = 10.0,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        self.rank = rank
        self.heartbeat = heartbeat or Heartbeat(None)
        self.attempt = os.environ.get(contract.ENV_ATTEMPT)
        self._stop = os.fspath(stop_file) if stop_file else None
        self._journal = journal if rank == 0 else None
        if self._journal is not None:
            self.heartbeat.account()
        self._clock = clock or SystemClock()
        self._interval = interval_s
        self._last_time = self._clock.mono()
        self._last_step: int | None = None
        self._pending: dict[str, Any] | None = None
        self.lost = 0
        self.problem: StorageError | None = None

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
        return cls(
            rank=rank,
            stop_file=Path(stop) if stop else None,
            journal=journal,
            heartbeat=Heartbeat.from_env(env),
        )

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
        seconds: float | None = None,
        compute_s: float | None = None,
    ) -> None:
        """Say where the program is, on every rank. Cheap enough for every step.

        ``section`` "step": that step is done; anything else: the program is in that section now, until it
        says otherwise (:meth:`section` is the tidier way). ``tokens``: total so far. ``seconds`` of the step
        and ``compute_s``, this rank's own share of them, are measured between reports if not given.
        A word that cannot be written is counted in ``lost``, with its error in ``problem``.
        """
        if section == "step":
            self.heartbeat.step(step, loss=loss, tokens=tokens, seconds=seconds, compute_s=compute_s)
        else:
            self.heartbeat.section(section, step)
        if self._journal is None:
            return
        now = self._clock.mono()
        self._pending = {"step": step, "loss": loss, "tokens": tokens, "section": section}
        if self._last_step is None:
            self._last_step = step
        elapsed = now - self._last_time
        if elapsed >= self._interval:
            self._write(now, elapsed)

    def section(self, name: str) -> AbstractContextManager[object]:
        """``with work.section("checkpoint"):`` what takes its own time, and may hang by its own measure."""
        return self.heartbeat.section(name)

    def collective(self) -> AbstractContextManager[None]:
        """``with work.collective():`` here the rank waits for others. Tells who is missing; nests."""
        return self.heartbeat.collective()

    def waited(self, section: str, seconds: float) -> None:
        """So many seconds of this section went into waiting, for ``data`` say; told with the progress."""
        self.heartbeat.waited(section, seconds)

    def waiting(self, section: str, items: Iterable[_T]) -> Iterator[_T]:
        """The items; the time each takes to come is told as :meth:`waited`."""
        clock, source = time.perf_counter, iter(items)
        while True:
            began = clock()
            try:
                item = next(source)
            except StopIteration:
                return
            finally:
                self.heartbeat.waited(section, clock() - began)
            yield item

    def timing(self, phases: Mapping[str, float], step: int | None = None, **facts: float) -> None:
        """What a start was spent on, in seconds: imports, groups, model, data, load, first_step.

        ``facts``: what the program states of itself: ``flops_per_token`` (forward and backward),
        ``peak_flops`` of a GPU at its precision, ``gpus``.
        """
        rounded = {name: round(seconds, 4) for name, seconds in phases.items()}
        self.event("workload.timing", sync=False, phases=rounded, step=step, **facts)

    def _write(self, now: float, elapsed: float) -> None:
        if self._journal is None or self._pending is None:
            return
        pending, self._pending = self._pending, None
        done = pending["step"] - (self._last_step or 0)
        pending["steps_per_s"] = round(done / elapsed, 4) if elapsed > 0 else None
        spent = self.heartbeat.spent()
        pending["spent"] = {name: round(seconds, 3) for name, seconds in spent.items()}
        try:
            self._journal.append("progress", _plain(pending))
        except StorageError as error:
            # A full disk costs a word of progress, not the training.
            self.lost += 1
            self.problem = error
        self._last_time, self._last_step = now, pending["step"]

    def event(self, type: str, *, sync: bool = True, **data: Any) -> None:
        """Write a fact (see :data:`resiliency.events.TYPES`); flushes pending progress first.

        Raises StorageError when it cannot be written.
        """
        if self._journal is None:
            return
        self.flush()
        self._journal.append(type, _plain(data), sync=sync)

    def error(self, category: str, message: str, hint: str = "") -> None:
        """The program's own last word, with a category of :mod:`resiliency.taxonomy`."""
        self.event("workload.error", category=category, message=message, hint=hint)

    def flush(self) -> None:
        """Write progress not yet written."""
        now = self._clock.mono()
        self._write(now, now - self._last_time)

    def close(self) -> None:
        self.heartbeat.close()
        if self._journal is not None:
            self.flush()
            self._journal.close()
            self._journal = None
