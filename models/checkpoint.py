"""Checkpoint directories of one stage: committed atomically, verified before use, pruned with care.

A checkpoint is written under a temporary name, sealed with a manifest of sizes and checksums, then
renamed to ``iter_0000020``: a directory of that name without a manifest that verifies is damaged, is
renamed to ``….corrupt`` and never used again. One process (rank 0) changes anything; all may compare
content. It knows nothing of torch. ``tests/models/test_checkpoint.py`` holds it to that.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resiliency import artifact
from resiliency.durable import fsync_dir
from resiliency.errors import StorageError

from .stage import unused_name

KIND = "checkpoint"
_NAME = re.compile(r"iter_(\d{7,})")
_TEMPORARY = ".saving-"
LEAST_KEPT = 2  # the newest may turn out to be damaged
_THREADS = 4  # that read files to compare them

#: Says what is wrong with the checkpoint at a path; empty: nothing.
Check = Callable[[Path], list[str]]


@dataclass(frozen=True)
class Good:
    """A checkpoint that verified."""

    path: Path
    step: int
    meta: Mapping[str, Any]


class CheckpointStore:
    """The ``checkpoints`` directory of a stage."""

    def __init__(self, root: Path, keep: int = 3) -> None:
        self.root, self.keep = root, max(keep, LEAST_KEPT)
        self._known: set[int] = set()  # steps whose content is right: written or compared by this process

    def path(self, step: int) -> Path:
        return self.root / f"iter_{step:07d}"

    def steps(self) -> list[int]:
        """Steps with a committed name, newest first; not verified."""
        if not self.root.is_dir():
            return []
        names = (_NAME.fullmatch(entry.name) for entry in self.root.iterdir() if entry.is_dir())
        return sorted((int(match[1]) for match in names if match), reverse=True)

    def scratch(self, step: int, mark: str) -> Path:
        """Where to save a step into; every rank makes it if it is missing. ``mark``: of these processes."""
        return self.root / f"{_TEMPORARY}{self.path(step).name}-{mark}"

    def clean(self, mark: str = "") -> None:
        """Remove what processes of another ``mark`` left half-saved."""
        for stale in self.root.glob(f"{_TEMPORARY}*"):
            if not mark or not stale.name.endswith(mark):
                self.discard(stale)

    @staticmethod
    def discard(directory: Path) -> None:
        """Remove what was never committed."""
        shutil.rmtree(directory, ignore_errors=True)

    def commit(
        self,
        saved: Path,
        step: int,
        meta: Mapping[str, Any],
        known: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> tuple[Path, int]:
        """Seal and rename what was saved; (its path, its bytes). Only now does it exist.

        ``known``: facts of its files that their writers have already.
        """
        manifest = artifact.seal(saved, KIND, {**meta, "step": step}, known)
        target = self.path(step)
        if target.exists():
            # The same step once more: we went back past it, so what is there was not trusted.
            os.replace(target, unused_name(target, ".replaced"))
        os.replace(saved, target)
        fsync_dir(self.root)
        self._known.add(step)
        return target, sum(int(entry["bytes"]) for entry in manifest.files.values())

    def newest_good(self, damaged: Callable[[Path, str], None], check: Check | None = None) -> Good | None:
        """The newest checkpoint that verifies byte for byte; None if there is none.

        Each one that does not is set aside and told to ``damaged`` with the reason. ``check`` says what is
        wrong with one (``faults_of`` unless given).
        """
        for step in self.steps():
            path = self.path(step)
            problems = (check or faults_of)(path)
            if not problems:
                self._known.add(step)
                return Good(path, step, artifact.load(path).meta)
            damaged(self.quarantine(step), problems[0])
        return None

    def quarantine(self, step: int) -> Path:
        """Set a checkpoint aside; its new path. Nobody removes it but a person."""
        aside = unused_name(self.path(step), ".corrupt")
        os.replace(self.path(step), aside)
        self._known.discard(step)
        return aside

    def prune(self, damaged: Callable[[Path, str], None] | None = None) -> list[int]:
        """Remove the oldest; the steps removed. The newest ``keep`` (at least two) intact ones stay.

        One whose files have the wrong size does not count as kept. Nor does one that this process neither
        wrote nor read, until its content was compared: two that are good always stay. With ``damaged``
        those found out are set aside.
        """
        intact = good = 0
        removed = []
        for step in self.steps():
            if intact < self.keep or good < LEAST_KEPT:
                problems = self._faults(step, good)
                if not problems:
                    intact += 1
                    good += step in self._known
                elif damaged is not None:
                    damaged(self.quarantine(step), problems[0])
                else:
                    intact += artifact.verifies(self.path(step), kind=KIND, deep=False)
                continue
            # Rename first: a half-removed directory must not look like a checkpoint.
            doomed = self.root / f"{_TEMPORARY}removing-{step}"
            os.replace(self.path(step), doomed)
            shutil.rmtree(doomed)
            removed.append(step)
        return removed

    def _faults(self, step: int, good: int) -> list[str]:
        """What is wrong with it, as far as that matters: of the first two the content has to be known."""
        path = self.path(step)
        if step in self._known or good >= LEAST_KEPT:
            return artifact.faults(path, kind=KIND, deep=False)
        problems = faults_of(path)
        if not problems:
            self._known.add(step)
        return problems


def faults_of(path: Path, share: int = 0, shares: int = 1, threads: int = _THREADS) -> list[str]:
    """What is wrong with a checkpoint, its content compared; empty: nothing.

    With ``shares`` each of so many ranks reads its part of the files; the manifest is everybody's.
    """
    try:
        manifest = artifact.load(path)
    except StorageError as error:
        return [error.message]
    if manifest.kind != KIND:
        return [f"is a {manifest.kind}, not a {KIND}"]
    # Large ones first, dealt out in turn: no rank gets much more to read than another.
    names = sorted(manifest.files, key=lambda name: (-int(manifest.files[name].get("bytes", 0)), name))
    with ThreadPoolExecutor(threads) as pool:
        found = pool.map(
            lambda name: artifact.file_fault(path, name, manifest.files[name]), names[share::shares]
        )
        return [fault for fault in found if fault is not None]
