"""A rehearsal's faults in a training process: harm on purpose, once, at a step or at a named point.

The plan is a JSON list of faults in the file that ``$TRAINMASTER_FAULTS`` names. A training loop says
``faults.at_step(step)`` before it trains a step (and ``faults.loss(value)`` of the loss it got), a saver
``faults.at_point("checkpoint.write")``. Without a plan each costs one comparison.

Before any harm a marker is created beside the plan (exclusively: whoever creates it does the harm, so
that a restart does not repeat it) and ``fault.injected`` is journaled. A fault that somebody else has to do
(``faultkinds.OUTSIDE``) is only marked as reached: the driver waits for that.
``tests/resiliency/test_faults.py``.
"""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, NoReturn

from . import contract
from .errors import TrainmasterError
from .faultkinds import KINDS, LOSS, OUTSIDE, Kind

FIRED, REACHED = "fired", "reached"
#: Written last of a checkpoint: a directory that holds one is committed (ours, torch's).
_LAST_FILES: Final = ("manifest.json", ".metadata")
_STEPS_SLOW: Final = 50


class InjectedFault(RuntimeError):
    """What the kind ``exception`` raises: no real error of the program."""


class FakeFullDisk(OSError):
    """What the kind ``full-disk`` raises: the disk is not full."""


class BadPlan(TrainmasterError):
    """A rehearsal's plan that cannot be used: harming nothing would look like a good outcome."""


@dataclass(frozen=True)
class Fault:
    """One fault. ``step``: not before this step; ``point``: there instead of at the step's beginning.

    ``rank`` and ``node`` None: whoever gets there first. ``once`` False: each time this very step is
    reached. ``seconds``: a freeze's length, or what a slow step takes longer; ``steps``: of them.
    """

    id: str
    kind: str
    step: int = 0
    point: str = ""
    rank: int | None = None
    node: str | None = None
    once: bool = True
    seconds: float = 0.0
    steps: int = _STEPS_SLOW

    @property
    def row(self) -> Kind:
        return KINDS[self.kind]

    def as_data(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}


# -- the plan ----------------------------------------------------------------------------------


def parse_plan(raw: Any) -> tuple[Fault, ...]:
    """From what JSON holds. Raises ValueError that names the entry."""
    if not isinstance(raw, list):
        raise ValueError("it is not a list of faults")
    known = {field.name for field in fields(Fault)}
    found: list[Fault] = []
    for number, entry in enumerate(raw, 1):
        try:
            fault = Fault(**{str(key): value for key, value in dict(entry).items() if key in known})
        except (TypeError, ValueError) as error:
            raise ValueError(f"fault {number}: {error}") from error
        if fault.kind not in KINDS:
            raise ValueError(f"fault {number}: no kind {fault.kind!r} (there are: {', '.join(KINDS)})")
        if not fault.id or "/" in fault.id or fault.id in {other.id for other in found}:
            raise ValueError(f"fault {number}: the id {fault.id!r} is not a name of its own")
        found.append(fault)
    return tuple(found)


def read_plan(path: Path) -> tuple[Fault, ...]:
    """Raises BadPlan."""
    try:
        return parse_plan(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise BadPlan(
            f"the rehearsal's plan {path} cannot be used: {error}",
            hint=f"unset {contract.ENV_FAULTS}, or correct the file",
        ) from error


def marker(plan: Path, fault_id: str, word: str) -> Path:
    """The file that says that a fault was reached, or done."""
    return plan.with_name(f"{plan.name}.{fault_id}.{word}")


def mark(plan: Path, fault_id: str, word: str, facts: Mapping[str, Any]) -> bool:
    """Create the marker, durable; False if there is one already: then somebody else was first."""
    try:
        fd = os.open(marker(plan, fault_id, word), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    try:
        os.write(fd, json.dumps(dict(facts)).encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    return True


def marked(plan: Path, fault_id: str, word: str) -> dict[str, Any] | None:
    """What the marker says; None if there is none (or it is just being written)."""
    try:
        return dict(json.loads(marker(plan, fault_id, word).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


# -- one process's part ------------------------------------------------------------------------


class Saboteur:
    """The faults of a plan that this process may meet."""

    def __init__(self, plan: Path, faults: Sequence[Fault], environ: Mapping[str, str]) -> None:
        self.plan, self.faults, self.environ = plan, tuple(faults), environ
        self.rank = int(environ.get("RANK") or 0)
        self.node = environ.get(contract.ENV_NODE) or ""
        self.step = 0
        self._spoiled = False
        self._slow: list[tuple[int, float]] = []  # (last step, seconds)

    def at_step(self, step: int, rank: int | None) -> None:
        self.step = step
        self.rank = self.rank if rank is None else rank
        for fault in self.faults:
            if not (fault.point or fault.row.point) and (
                step >= fault.step if fault.once else step == fault.step
            ):
                self._meet(fault)
        for last, seconds in self._slow:
            if step <= last:
                time.sleep(seconds)

    def at_point(self, name: str) -> None:
        for fault in self.faults:
            if name == (fault.point or fault.row.point) and self.step >= fault.step:
                self._meet(fault)

    def spoiled(self) -> bool:
        """Whether a fault takes the loss that is about to be told."""
        self.at_point(LOSS)
        spoiled, self._spoiled = self._spoiled, False
        return spoiled

    def _meet(self, fault: Fault) -> None:
        if fault.rank not in (None, self.rank) or fault.node not in (None, self.node):
            return
        damages = fault.kind in _DAMAGE
        if damages and newest_checkpoint(self._checkpoints()) is None:
            return  # nothing to damage yet: at a later step
        facts = {
            "time": time.time(),
            "step": self.step,
            "rank": self.rank,
            "node": self.node,
            "pid": os.getpid(),
            "cycle": int(self.environ.get(contract.ENV_CYCLE) or 0),
            "attempt": self.environ.get(contract.ENV_ATTEMPT, ""),
        }
        outside = fault.row.by == OUTSIDE
        first = mark(self.plan, fault.id, REACHED if outside else FIRED, facts)
        if outside or fault.once:
            self.faults = tuple(other for other in self.faults if other is not fault)
        if outside or (fault.once and not first):
            return
        self._journal(fault)
        print(f"trainmaster: rehearsal: {fault.kind} at step {self.step}", file=sys.stderr, flush=True)
        if damages:
            _damage(newest_checkpoint(self._checkpoints()), _DAMAGE[fault.kind])
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault.kind == "slow":
            self._slow.append((self.step + fault.steps - 1, fault.seconds or fault.row.seconds))
        elif fault.kind == "nan":
            self._spoiled = True
        else:
            _HARM[fault.kind](self.step)

    def _checkpoints(self) -> Path:
        run_dir, stage = (self.environ.get(name, "") for name in (contract.ENV_RUN_DIR, contract.ENV_STAGE))
        return contract.RunPaths(Path(run_dir)).checkpoints(stage)

    def _journal(self, fault: Fault) -> None:
        env = self.environ
        run_dir, attempt = env.get(contract.ENV_RUN_DIR), env.get(contract.ENV_ATTEMPT, "")
        if not run_dir:
            return
        from .journal import JournalWriter

        cycle = int(env.get(contract.ENV_CYCLE) or 0)
        name = f"{attempt.replace('/', '-')}-{env.get(contract.ENV_STAGE, '')}-fault-{fault.id}"
        writer = JournalWriter(
            contract.RunPaths(Path(run_dir)).journal,
            run=env.get(contract.ENV_RUN, ""),
            writer=f"{name}.{cycle}.{self.rank}",
            defaults={
                "stage": env.get(contract.ENV_STAGE),
                "attempt": attempt or None,
                "cycle": cycle,
                "node": self.node or None,
                "rank": self.rank,
            },
        )
        data = {"id": fault.id, "kind": fault.kind, "step": self.step, "rank": self.rank, "node": self.node}
        writer.append("fault.injected", data, sync=True)
        writer.close()


# -- the harm ----------------------------------------------------------------------------------


def _raise(step: int) -> NoReturn:
    raise InjectedFault(f"injected by a rehearsal at step {step}")


def _no_memory(step: int) -> NoReturn:
    raise MemoryError(f"injected by a rehearsal at step {step}")


def _full(step: int) -> NoReturn:
    raise FakeFullDisk(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} (Fake, rehearsal, step {step})")


def _kill(number: signal.Signals) -> Callable[[int], None]:
    def kill(step: int) -> None:
        os.kill(os.getpid(), number)

    return kill


def _compute(step: int) -> None:
    os.nice(19)  # what else runs on this machine is not what is rehearsed
    sum(itertools.repeat(0))  # in C, and the interpreter lock with it: no thread or handler runs any more


def _sleep(step: int) -> None:
    while True:
        time.sleep(3600)


_HARM: Final[dict[str, Callable[[int], None]]] = {
    "exception": _raise,
    "oom": _no_memory,
    "full-disk": _full,
    "sigkill": _kill(signal.SIGKILL),
    "sigsegv": _kill(signal.SIGSEGV),
    "sigstop": _kill(signal.SIGSTOP),
    "hang": _compute,
    "hang-outside": _sleep,
}


def newest_checkpoint(directory: Path) -> Path | None:
    """The committed checkpoint with the highest step in its name, below the stage's checkpoints."""
    try:
        found = [path for path in directory.iterdir() if any((path / last).exists() for last in _LAST_FILES)]
    except OSError:
        return None
    digits = {path: "".join(c for c in path.name if c.isdigit()) for path in found if path.suffix == ""}
    return max((p for p in digits if digits[p]), key=lambda path: int(digits[path]), default=None)


def _damage(checkpoint: Path | None, how: Callable[[Path], None]) -> None:
    if checkpoint is None:
        return
    files = [path for path in checkpoint.rglob("*") if path.is_file() and path.name not in _LAST_FILES]
    how(max(files, key=lambda path: (path.stat().st_size, path.name)))


def _tear(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-len(byte), os.SEEK_CUR)
        file.write(bytes(b ^ 1 for b in byte))


_DAMAGE: Final[dict[str, Callable[[Path], None]]] = {"torn-checkpoint": _tear, "bit-flip": _flip}

# -- what programs call ------------------------------------------------------------------------

#: None: no plan. Read when a program first asks, since a warm process imports this before it is a rank.
_unread: Final = Saboteur(Path(), (), {})
_active: Saboteur | None = _unread


def arm(environ: Mapping[str, str] | None = None) -> Saboteur | None:
    """Read the plan that the environment names. Raises BadPlan."""
    global _active
    env = os.environ if environ is None else environ
    path = env.get(contract.ENV_FAULTS)
    _active = Saboteur(Path(path), read_plan(Path(path)), env) if path else None
    return _active


def at_step(step: int, rank: int | None = None) -> None:
    """This rank ($RANK unless given) is about to train ``step``, counted from 1."""
    if _active is None:
        return
    active = arm() if _active is _unread else _active
    if active is not None:
        active.at_step(step, rank)


def at_point(name: str) -> None:
    """This process is at a point that a fault may name."""
    if _active is None:
        return
    active = arm() if _active is _unread else _active
    if active is not None:
        active.at_point(name)


def loss(value: float) -> float:
    """The loss of the step that :func:`at_step` told of, or what a fault makes of it."""
    return math.nan if _active is not None and _active.spoiled() else value
