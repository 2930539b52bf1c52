"""Saving a run beside training: a step waits for a copy in memory only, threads write and commit.

Every rank writes its own files; what a rank has to say (still writing, failed) rides in the all-reduce that
the loop does once a step anyway, so that a checkpoint is committed only when all have written, and all ranks
learn of a failure at the same step. At most one save is under way: its copy is the only one in memory.
Threads and no processes: nothing is left when a rank is killed. ``tests/models/test_saving.py``.
Import only after ``runtime.prepare()``.
"""

from __future__ import annotations

import copy
import errno
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from resiliency import faults
from resiliency.errors import StorageError
from resiliency.fence import Fence, StaleAttempt
from resiliency.workload import Workload

from . import dcp_files
from .checkpoint import CheckpointStore
from .pieces import Pieces
from .runtime import Ranks
from .stage import say
from .staging import Pool


class SaveFailed(StorageError):
    """A checkpoint could not be written; every rank raises it at the same step."""

    def __init__(self, message: str, category: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.category = category


#: Places of a rank's word in the all-reduce: still writing, not committed yet, then what went wrong.
_WRITING, _OPEN = 0, 1
_CATEGORIES: Final = ("storage_full", "storage_quota", "requeued", "storage_io", "framework_crash")
WORDS: Final = 2 + len(_CATEGORIES)
_ERRNO: Final = {errno.ENOSPC: "storage_full", errno.EDQUOT: "storage_quota"}
_HINTS: Final = {
    "storage_full": "free space on this file system, then resume",
    "storage_quota": "free space or ask for more quota, then resume",
    "storage_io": "check the file system, then resume: the checkpoint before this one is intact",
}


def _category(error: BaseException) -> str:
    if isinstance(error, StaleAttempt):
        return StaleAttempt.category
    if isinstance(error, OSError):
        return _ERRNO.get(error.errno or 0, "storage_io")
    return "storage_io" if isinstance(error, StorageError) else "framework_crash"


@dataclass
class _Job:
    """One save. Written by a thread, read by the training thread: plain assignments only."""

    step: int
    directory: Path
    meta: Mapping[str, Any]
    common: dict[str, Any]
    stall: float
    began: float
    thread: threading.Thread | None = None
    written: bool = False
    committing: bool = False
    committed: tuple[Path, int] | None = None
    removed: Sequence[int] = ()
    damaged: list[tuple[Path, str]] = field(default_factory=list)
    error: BaseException | None = None


class Saver:
    """Saves what ``state`` gives, into ``store``. All ranks make one and call it at the same steps."""

    def __init__(
        self,
        ranks: Ranks,
        control: Any,
        store: CheckpointStore,
        state: Callable[[], Pieces],
        facts: Mapping[str, Any],
        work: Workload,
        *,
        beside: bool = True,
        fence: Fence | None = None,
    ) -> None:
        self.ranks, self.control, self.store, self.work = ranks, control, store, work
        self._state, self._facts = state, facts
        self._beside = beside
        self._fence = fence or Fence(None)
        self._pool = Pool()
        self._job: _Job | None = None
        self._given_up = False
        self._ready: threading.Thread | None = None
        self.stall_s: float | None = None  # of the newest save
        self.save_s: float | None = None  # of the newest save that was committed, from its start
        mark = [secrets.token_hex(4)]
        dist.broadcast_object_list(mark, src=0, group=control)
        self._mark = mark[0]

    # -- what the loop calls -------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a save is under way: the same answer on all ranks."""
        return self._job is not None

    def prepare(self) -> None:
        """Get the memory for copies ready beside training. Once the optimizer has its state."""
        if not self._beside:
            return
        tensors = [piece.data for piece in self._state().tensors]
        self._ready = threading.Thread(target=self._pool.reserve, args=(tensors,), daemon=True)
        self._ready.start()

    def start(self, step: int, consumed: int) -> float:
        """Begin to save; seconds that the step waited. Not collective, but all ranks call it."""
        assert self._job is None, "one save at a time"
        began = time.monotonic()
        with self.work.section("checkpoint"):
            if self._ready is not None:
                self._ready.join()
                self._ready = None
            found = self._state()
            tensors = self._pool.copy([piece.data for piece in found.tensors])
            objects = dcp_files.pack(found.objects)
            directory = self.store.scratch(step, self._mark)
            job = _Job(
                step,
                directory,
                {**self._facts, "consumed_samples": consumed},
                copy.deepcopy(found.common) if self.ranks.first else {},
                0.0,
                began,
            )

            def write() -> None:
                faults.at_point("checkpoint.write")
                if self.ranks.first:
                    self.store.clean(self._mark)
                rank, go_on = self.ranks.rank, lambda: not self._given_up
                dcp_files.write_rank(directory, rank, found.tensors, tensors, objects, go_on)
                job.written = not self._given_up

            self._job = job
            self._run(job, write, "trainmaster-save")
            if not self._beside:
                self.finish()
        job.stall = time.monotonic() - began
        self.stall_s = job.stall
        return job.stall

    def words(self) -> list[float]:
        """This rank's part in the once-a-step all-reduce (a sum), ``WORDS`` numbers."""
        words = [0.0] * WORDS
        job = self._job
        if job is None:
            return words
        words[_WRITING] = float(not job.written)
        words[_OPEN] = float(self.ranks.first and job.committed is None)
        if job.error is not None:
            words[2 + _CATEGORIES.index(_category(job.error))] = 1.0
        return words

    def heard(self, sums: Sequence[float]) -> None:
        """What all ranks said. Raises SaveFailed, StaleAttempt or the error itself, on all ranks."""
        job = self._job
        if job is None:
            return
        if any(sums[2:]):
            self._fail(job, next(c for c, count in zip(_CATEGORIES, sums[2:], strict=True) if count))
        if sums[_WRITING]:
            return
        if not sums[_OPEN]:
            self._job = None
            self._tell(job)
        elif self.ranks.first and not job.committing:
            job.committing = True
            self._run(job, lambda: self._commit(job), "trainmaster-commit")

    def finish(self) -> None:
        """Wait until what is under way is committed. Collective."""
        while self._job is not None:
            if self._job.thread is not None:
                self._job.thread.join()
            words = torch.tensor(self.words(), dtype=torch.float64)
            with self.work.collective():
                dist.all_reduce(words, group=self.control)
            self.heard(words.tolist())

    def give_up(self, wait_s: float = 2.0) -> None:
        """After an error elsewhere: let the threads end, so that none is amid native code at exit."""
        self._given_up = True
        for thread in (self._ready, self._job.thread if self._job else None):
            if thread is not None:
                thread.join(timeout=wait_s)

    # -- threads -------------------------------------------------------------------------------

    def _run(self, job: _Job, what: Callable[[], None], name: str) -> None:
        def body() -> None:
            try:
                what()
            except BaseException as error:
                job.error = error

        job.thread = threading.Thread(target=body, name=name, daemon=True)
        job.thread.start()

    def _commit(self, job: _Job) -> None:
        files = dcp_files.finish(job.directory, self.ranks.world, job.common)
        faults.at_point("checkpoint.commit")
        self._fence.check()
        committed = self.store.commit(job.directory, job.step, job.meta, files)
        job.removed = self.store.prune(lambda path, reason: job.damaged.append((path, reason)))
        job.committed = committed

    # -- the training thread -------------------------------------------------------------------

    def _tell(self, job: _Job) -> None:
        self.save_s = time.monotonic() - job.began
        if job.committed is None:
            return  # not rank 0
        path, size = job.committed
        seconds, stall = round(self.save_s, 3), round(job.stall or self.save_s, 3)
        self.work.event(
            "checkpoint.committed", step=job.step, path=str(path), bytes=size, seconds=seconds, stall_s=stall
        )
        say(
            f"pretrain: checkpoint at step {job.step}: {size / 1e6:.1f} MB in {seconds:.2f} s, "
            f"training waited {stall:.2f} s"
        )
        for aside, reason in job.damaged:
            say(f"pretrain: a checkpoint does not verify ({reason}): set aside as {aside.name}")
            self.work.event("checkpoint.quarantined", path=str(aside), reason=reason)
        for old in job.removed:
            say(f"pretrain: removed the checkpoint of step {old}")

    def _fail(self, job: _Job, category: str) -> None:
        """All ranks know that one failed: each says what it has, all end alike."""
        mine = job.error
        said = f"rank {self.ranks.rank}: {mine}" if mine is not None else None
        all_said: list[Any] = [None] * self.ranks.world
        dist.all_gather_object(all_said, said, group=self.control)
        self._job = None
        if self.ranks.first:
            self.store.discard(job.directory)
        if mine is not None and category == "framework_crash":
            raise mine
        words = [word for word in all_said if word is not None]
        if category == StaleAttempt.category:
            raise mine if isinstance(mine, StaleAttempt) else StaleAttempt(words[0] if words else "")
        more = f" (and {len(words) - 1} more)" if len(words) > 1 else ""
        raise SaveFailed(
            f"the checkpoint of step {job.step} could not be written: "
            f"{words[0] if words else category}{more}",
            category,
            _HINTS.get(category, ""),
        ) from mine
