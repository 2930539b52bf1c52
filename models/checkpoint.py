"""Checkpoint directories of one stage: committed atomically, verified before use, pruned with care.

A checkpoint is written under a temporary name, sealed with a manifest of sizes and checksums, then
renamed to ``iter_0000020``: a directory of that name without a manifest that verifies is damaged, is
renamed to ``….corrupt`` and never used again. One process (rank 0) calls this module. It knows
nothing of torch. ``tests/models/test_checkpoint.py`` holds it to that.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resiliency import artifact
from resiliency.durable import fsync_dir

from .stage import unused_name

KIND = "checkpoint"
_NAME = re.compile(r"iter_(\d{7,})")
_TEMPORARY = ".saving-"
LEAST_KEPT = 2  # the newest may turn out to be damaged


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

    def path(self, step: int) -> Path:
        return self.root / f"iter_{step:07d}"

    def steps(self) -> list[int]:
        """Steps with a committed name, newest first; not verified."""
        if not self.root.is_dir():
            return []
        names = (_NAME.fullmatch(entry.name) for entry in self.root.iterdir() if entry.is_dir())
        return sorted((int(match[1]) for match in names if match), reverse=True)

    def begin(self, step: int) -> Path:
        """A fresh directory to save into. What an earlier process left half-saved is removed."""
        self.root.mkdir(parents=True, exist_ok=True)
        for stale in self.root.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(stale)
        directory = self.root / f"{_TEMPORARY}{self.path(step).name}"
        directory.mkdir()
        return directory

    def commit(self, saved: Path, step: int, meta: Mapping[str, Any]) -> tuple[Path, int]:
        """Seal and rename what was saved; (its path, its bytes). Only now does it exist."""
        manifest = artifact.seal(saved, KIND, {**meta, "step": step})
        target = self.path(step)
        if target.exists():
            # The same step once more: we went back past it, so what is there was not trusted.
            os.replace(target, unused_name(target, ".replaced"))
        os.replace(saved, target)
        fsync_dir(self.root)
        return target, sum(int(entry["bytes"]) for entry in manifest.files.values())

    def newest_good(self, damaged: Callable[[Path, str], None]) -> Good | None:
        """The newest checkpoint that verifies byte for byte; None if there is none.

        Each one that does not is set aside and told to ``damaged`` with the reason.
        """
        for step in self.steps():
            path = self.path(step)
            problems = artifact.faults(path, kind=KIND)
            if not problems:
                return Good(path, step, artifact.load(path).meta)
            aside = unused_name(path, ".corrupt")
            os.replace(path, aside)
            damaged(aside, problems[0])
        return None

    def prune(self) -> list[int]:
        """Remove the oldest; the steps removed. The newest ``keep`` (at least two) intact ones stay.

        One whose files have the wrong size does not count as kept.
        """
        intact = 0
        removed = []
        for step in self.steps():
            if intact < self.keep:
                intact += artifact.verifies(self.path(step), kind=KIND, deep=False)
                continue
            # Rename first: a half-removed directory must not look like a checkpoint.
            doomed = self.root / f"{_TEMPORARY}removing-{step}"
            os.replace(self.path(step), doomed)
            shutil.rmtree(doomed)
            removed.append(step)
        return removed
