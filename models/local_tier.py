"""Copies of the state in the nodes' memory, every few steps, and their way back after a restart.

A step waits only while memory is copied; a thread sums the copy up and sends a replica to the next node. All
ranks copy at the same step, and the next copy starts only when all are done with the last one (a word in the
once-a-step all-reduce), so that a whole generation is there at any moment. NVRx's local checkpoints do the
same with pickled files and an exchange that every rank waits for; this is about the wait.
``tests/models/test_memory.py``. Import only after ``runtime.prepare()``.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from resiliency import contract, faults
from resiliency.workload import Workload

from .copies import Choice, Found, Seat, choose, partner
from .copy_file import CopyFile, Damaged, read_facts, room
from .raw_state import Layout, Mismatch, RawState, views
from .replicas import Receiver, Sender, own_address
from .runtime import Ranks
from .settings import Checkpoint
from .stage import say, unused_name

#: A rank's word in the all-reduce: busy, of no more use, bytes and replicas of its newest copy.
_BUSY, _BROKEN, _BYTES, _REPLICAS = range(4)
COPY_WORDS: Final = 4
_TELL_S = 30.0
_OWN, _REPLICA = "own", "replica"
_DESCRIPTION = 1 << 20
_SEND = 256 << 20


@dataclass(frozen=True)
class Restored:
    step: int
    consumed: int
    directory: Path


class LocalTier:
    """One rank's copies. Without ``local_interval`` or a node directory every call does nothing."""

    def __init__(
        self,
        ranks: Ranks,
        control: Any,
        state: RawState,
        settings: Checkpoint,
        digest: str,
        work: Workload,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        env = os.environ if environ is None else environ
        self.ranks, self.control, self.settings, self.work = ranks, control, settings, work
        self._state, self._digest = state, digest
        self._off = settings.local_interval is None
        self._files: list[CopyFile] = []
        self._layout: Layout | None = None
        self._turn = 0
        self._thread: threading.Thread | None = None
        self._problem: str | None = None
        self._busy = False
        self._agreed_busy = True  # until all have said that they are ready
        self._due = False
        self._sender: Sender | None = None
        self._newest = (0, 0.0, 0)  # bytes, stall, replicas
        self._stalls: list[float] = []
        self._told, self._count, self._step = time.monotonic(), 0, 0
        if not self._off:
            self._meet(env)

    # -- at the start --------------------------------------------------------------------------

    def _meet(self, env: Mapping[str, str]) -> None:
        """Learn who is where, and whether all nodes have a place for copies. Collective."""
        given = env.get(contract.ENV_NODE_DIR)
        directory = Path(given) / "copies" if given else Path()
        receiver = None
        secret = [secrets.token_hex(16) if self.ranks.first else ""]
        dist.broadcast_object_list(secret, src=0, group=self.control)
        self._lineage = secret[0][:8]
        if given:
            directory.mkdir(parents=True, exist_ok=True)
            if self.settings.replicas:
                receiver = Receiver(directory, secret[0])
        node = env.get(contract.ENV_NODE) or socket.gethostname()
        mine = (node, bool(given), own_address(), receiver.port if receiver else 0)
        everybody: list[Any] = [None] * self.ranks.world
        dist.all_gather_object(everybody, mine, group=self.control)
        self._seats = [Seat(rank, word[0]) for rank, word in enumerate(everybody)]
        self._node, self._directory = node, directory
        self._leads = min(seat.rank for seat in self._seats if seat.node == node) == self.ranks.rank
        if not all(word[1] for word in everybody):
            self._off = True  # run by hand: there is no place that outlives this process
            return
        if self.settings.replicas:
            to = partner(self._seats, self.ranks.rank)
            if to is not None:
                self._sender = Sender(everybody[to][2], everybody[to][3], secret[0])

    def find(self, after: int) -> Choice | None:
        """The newest whole copy among these nodes, later than ``after``. Collective."""
        if self._off:
            return None
        found: list[Any] = [None] * self.ranks.world
        dist.all_gather_object(found, self._scan() if self._leads else [], group=self.control)
        return choose([copy for some in found for copy in some], self._seats, self._digest, after)

    def _scan(self) -> list[Found]:
        copies = []
        for path in sorted(self._directory.iterdir()):
            if path.suffix not in (f".{_OWN}", f".{_REPLICA}"):
                continue
            with contextlib.suppress(Damaged, OSError, KeyError):  # being written when its writer died
                said = read_facts(path)
                copies.append(
                    Found(self._node, path.name, said["step"], said["lineage"], said["owner"], said["digest"])
                )
        return copies

    def restore(self, choice: Choice) -> Restored | None:
        """Take the state from the chosen copies; None when one is damaged: look again. Collective."""
        me = self.ranks.rank
        opened: dict[int, CopyFile] = {}
        bad: tuple[str, str] | None = None
        for source in choice.sources:
            if source.holder == me:
                try:
                    opened[source.owner] = CopyFile(self._directory / source.copy.name)
                    opened[source.owner].verify()
                except (Damaged, OSError, ValueError) as error:
                    bad = (source.copy.name, str(error))
        everybody: list[Any] = [None] * self.ranks.world
        dist.all_gather_object(everybody, bad and self._set_aside(*bad), group=self.control)
        damaged = [word for word in everybody if word]
        if damaged:
            for path, reason in damaged if self.ranks.first else []:
                say(f"pretrain: a copy in memory does not verify ({reason}): set aside as {path}")
                self.work.event("checkpoint.quarantined", path=path, reason=reason)
            return None
        for source in choice.sources:
            if source.holder != source.owner:
                self._hand_over(source.owner, source.holder, opened)
        file = opened[me]
        facts = file.facts()
        payload = (
            file.payload(file.verify()) if choice.sources[me].holder != me else file.payload(facts["bytes"])
        )
        try:
            self._state.restore(views(payload, facts["table"]), facts["numbers"])
        except Mismatch as error:
            raise RuntimeError(f"the copy in memory of step {choice.step} does not fit: {error}") from error
        return Restored(choice.step, int(facts["consumed"]), self._directory)

    def _set_aside(self, name: str, reason: str) -> tuple[str, str]:
        path = self._directory / name
        aside = unused_name(path, ".corrupt")
        with contextlib.suppress(OSError):
            os.replace(path, aside)
        return str(aside), reason

    def _hand_over(self, owner: int, holder: int, opened: dict[int, CopyFile]) -> None:
        """From the rank that has a copy to the one whose it is; in the order that all ranks follow."""
        me = self.ranks.rank
        if me not in (owner, holder):
            return
        length = torch.zeros(1, dtype=torch.int64)
        if me == holder:
            whole = torch.frombuffer(opened[owner].whole(), dtype=torch.uint8)
            length[0] = len(whole)
            dist.send(length, dst=owner, group=self.control)
            for part in whole.split(_SEND):
                dist.send(part, dst=owner, group=self.control)
            return
        dist.recv(length, src=holder, group=self.control)
        # Kept where copies lie: the next loss may be the one that had it.
        path = self._directory / f"back-{self._lineage}-{owner}.{_OWN}"
        file = CopyFile(path, int(length.item()))
        whole = torch.frombuffer(memoryview(file.map), dtype=torch.uint8)
        for part in whole.split(_SEND):
            dist.recv(part, src=holder, group=self.control)
        opened[owner] = file

    # -- while training ------------------------------------------------------------------------

    def prepare(self) -> None:
        """Take the memory for copies, beside training. Once the optimizer has its state. Collective."""
        if self._off:
            return
        self._layout = Layout(self._state.tensors())
        size = room(self._layout.bytes, _DESCRIPTION)
        replicas = 1 if self._sender is not None else 0
        needed = 2 * size * (1 + replicas) * max(1, self.ranks.local_world)
        free = _free(self._directory)
        short = torch.tensor([float(needed > free / 2)])
        dist.all_reduce(short, group=self.control)
        if short.item():
            self._off = True
            if self.ranks.first or needed > free / 2:
                say(
                    f"pretrain: no copies in memory: {needed / 1e9:.2f} GB would be more than half of the "
                    f"{free / 1e9:.2f} GB that are free in {self._directory} on {self._node}"
                )
            return
        self._run(lambda: self._make(size))

    def _make(self, size: int) -> None:
        for turn in range(2):
            file = CopyFile(self._directory / self._name(turn, _OWN), size)
            self._files.append(file)

    def _name(self, turn: int, kind: str) -> str:
        return f"{self._lineage}-{self.ranks.rank}-{turn}.{kind}"

    def take_if_due(self, step: int, consumed: int) -> None:
        """Copy if it is time and the copy before is done on all ranks. All ranks call it at each step."""
        interval = self.settings.local_interval
        if self._off or interval is None:
            return
        self._due = self._due or step % interval == 0
        if self._due and not self._agreed_busy:
            self._due = False
            self._take(step, consumed)

    def _take(self, step: int, consumed: int) -> None:
        began = time.monotonic()
        with self.work.section("snapshot"):
            faults.at_point("snapshot")
            tensors = self._state.tensors()
            layout = self._layout
            if layout is None or not layout.fits(tensors):
                self._problem = "the state changed its shape"
                return
            file = self._files[self._turn]
            file.invalidate()
            targets = views(file.payload(layout.bytes), layout.table)
            for name, tensor in tensors.items():
                targets[name].copy_(tensor, non_blocking=True)
            if self.ranks.cuda:
                torch.cuda.synchronize()
            facts = {
                "step": step,
                "consumed": consumed,
                "owner": self.ranks.rank,
                "lineage": self._lineage,
                "digest": self._digest,
                "bytes": layout.bytes,
                "table": layout.table,
                "numbers": self._state.numbers(),
            }
        name = self._name(self._turn, _REPLICA)
        self._turn = 1 - self._turn
        self._count += 1
        sweep = self._leads and self._count == 2
        stall = time.monotonic() - began
        self._stalls.append(stall)
        self._step = step

        def settle() -> None:
            file.seal(layout.bytes, facts)
            replicas = self._replicate(name, file)
            self._newest = (layout.bytes, stall, replicas)
            if sweep:  # a whole generation of ours is there: earlier ones are of no more use
                self._remove_others()

        self._agreed_busy = True
        self._run(settle)

    def _replicate(self, name: str, file: CopyFile) -> int:
        if self._sender is None:
            return 0
        try:
            self._sender.send(name, file)
            return 1
        except OSError as error:
            self._sender = None
            print(f"pretrain: rank {self.ranks.rank}: no more replicas: {error}", flush=True)
            return 0

    def _remove_others(self) -> None:
        for path in self._directory.iterdir():
            if path.suffix in (f".{_OWN}", f".{_REPLICA}") and not path.name.startswith(self._lineage):
                path.unlink(missing_ok=True)

    def _run(self, what: Any) -> None:
        def body() -> None:
            try:
                what()
            except Exception as error:
                self._problem = str(error)
            finally:
                self._busy = False

        self._busy = True
        self._thread = threading.Thread(target=body, name="trainmaster-copy", daemon=True)
        self._thread.start()

    def words(self) -> list[float]:
        """This rank's part in the once-a-step all-reduce, ``COPY_WORDS`` numbers."""
        size, _, replicas = self._newest
        ready = self._layout is not None and not self._busy
        return [float(not ready), float(self._problem is not None), float(size), float(replicas)]

    def heard(self, sums: Sequence[float]) -> None:
        """What all ranks said."""
        if self._off:
            return
        self._agreed_busy = sums[_BUSY] > 0
        if sums[_BROKEN]:
            self._off = True
            if self._problem is not None:
                say(f"pretrain: rank {self.ranks.rank}: no more copies in memory: {self._problem}")
        elif not self._agreed_busy:
            self._tell(int(sums[_BYTES]), int(sums[_REPLICAS]))

    def _tell(self, size: int, replicas: int) -> None:
        now = time.monotonic()
        if not self.ranks.first or not self._stalls or (self._count > 1 and now - self._told < _TELL_S):
            return
        self.work.event(
            "snapshot.taken",
            sync=False,
            step=self._step,
            bytes=size,
            seconds=round(now - self._told, 3),
            stall_s=round(max(self._stalls), 4),
            replicas=replicas,
            count=len(self._stalls),
        )
        self._told, self._stalls = now, []

    def close(self, wait_s: float = 10.0) -> None:
        """Let the thread end: a replica that is on its way still arrives."""
        if self._thread is not None:
            self._thread.join(timeout=wait_s)


def _free(directory: Path) -> int:
    """Bytes that copies could take: of the file system, and of memory, which it may be made of."""
    place = os.statvfs(directory)
    free = place.f_bavail * place.f_frsize
    with (
        contextlib.suppress(OSError, ValueError, StopIteration),
        open("/proc/meminfo", encoding="ascii") as file,
    ):
        line = next(line for line in file if line.startswith("MemAvailable:"))
        free = min(free, int(line.split()[1]) * 1024)
    return free
