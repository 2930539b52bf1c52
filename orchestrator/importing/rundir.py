"""The run directory of imported history: its name, what its journal already says, what is added.

It has no ``run.json``, so no verb that acts on runs finds it, and no marker of being active.
``tests/orchestrator/importing/test_sacct.py``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from resiliency import durable, journal
from resiliency.contract import RunPaths
from resiliency.state import RunState, fold

PREFIX: Final = "imported-"
STAGE: Final = "job"

#: Time, type, data, fields of one event to be written.
Said = tuple[float, str, Mapping[str, Any], Mapping[str, Any]]


@dataclass
class _Clock:
    """Says the time of the fact that is written, not of the writing."""

    now: float = 0.0

    def wall(self) -> float:
        return self.now

    def mono(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise NotImplementedError("nothing waits for imported history")


@dataclass
class ImportedRun:
    """A run directory that an import writes to; it may not exist yet."""

    path: Path
    state: RunState = field(default_factory=RunState)

    @property
    def exists(self) -> bool:
        return self.state.created is not None


def run_id(name: str, *identity: str) -> str:
    """``imported-<name>-<10 hex>``: the same for the same identity, on every machine."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:50].strip("-") or "job"
    digest = hashlib.sha256("\0".join(identity).encode("utf-8", "replace")).hexdigest()
    return f"{PREFIX}{slug}-{digest[:10]}"


def open_run(runs: Path, name: str) -> ImportedRun:
    """What is already there. Raises StorageError when it cannot be read."""
    path = runs / name
    if not RunPaths(path).journal.is_dir():
        return ImportedRun(path)
    events, _ = journal.read_control(RunPaths(path).journal)
    return ImportedRun(path, fold(events))


def write(path: Path, said: Iterable[Said], *, writer: str) -> int:
    """Append the events to the run's journal; how many there were. Raises StorageError.

    Not synced: after a crash the same import writes what is missing.
    """
    clock = _Clock()

    def items() -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
        for ts, kind, data, where in said:
            clock.now = ts
            yield kind, data, where

    directory = RunPaths(path).journal
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise durable.storage_error(error, path, "create run directory") from error
    with journal.JournalWriter(directory, run=path.name, writer=writer, clock=clock) as out:
        return len(out.append_many(items()))


def declare_gpus(path: Path, count: int | None) -> None:
    """Keep how many GPUs a node of the run has where the ledger looks for it, once."""
    config = RunPaths(path).stage_config(STAGE)
    if count is None or config.exists():
        return
    try:
        config.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise durable.storage_error(error, config.parent, "create") from error
    durable.write_plain(config, json.dumps({"launch": {"gpus_per_node": count}}) + "\n")
