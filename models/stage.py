"""The rim of every stage program: read ``stage.json``, run, turn the outcome into an exit code.

The exit codes are ``resiliency.exitcodes``'s; errors a person can act on are printed once, here, with
the next step, and written to the journal. May not import torch or megatron.
``tests/models/test_stage.py`` holds it to the codes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resiliency import artifact as artifacts
from resiliency.durable import fsync_dir
from resiliency.errors import TrainmasterError
from resiliency.exitcodes import COMPLETE
from resiliency.workload import Workload

from .settings import ConfigFault, DataFault

ARTIFACT = "artifact"
LAST_WORDS_S = 1.0


@dataclass(frozen=True)
class Stage:
    """What a stage program is given. ``inputs``: needed stage → its artifact's directory."""

    spec: Mapping[str, Any]
    directory: Path
    inputs: Mapping[str, Path]
    work: Workload

    @property
    def artifact(self) -> Path:
        return self.directory / ARTIFACT

    def section(self, name: str) -> dict[str, Any]:
        """One section of the stage's spec; absent and null are both empty."""
        value = self.spec.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise ConfigFault(f"{name} must be a mapping, not {value!r}", hint="correct the stage")
        return dict(value)

    def input_of_kind(self, kind: str) -> tuple[Path, artifacts.Manifest]:
        """The one input whose artifact is a ``kind``; its files' sizes are checked.

        Raises ``DataFault`` when there is none, more than one, or it does not verify.
        """
        found = []
        for need, directory in self.inputs.items():
            problems = artifacts.faults(directory, deep=False)
            if problems:
                raise DataFault(
                    f"the artifact of stage {need!r} ({directory}) cannot be used: "
                    + "; ".join(problems[:3]),
                    hint=f"run stage {need!r} again",
                )
            manifest = artifacts.load(directory)
            if manifest.kind == kind:
                found.append((directory, manifest))
        if len(found) != 1:
            names = ", ".join(self.inputs) or "none"
            raise DataFault(
                f"this stage needs exactly one input of kind {kind!r}, it has {len(found)} (inputs: {names})",
                hint="correct the stage's needs",
            )
        return found[0]

    def complete(self, kind: str) -> bool:
        """Whether the artifact is there already; a damaged one is set aside with a message."""
        if not self.artifact.exists():
            return False
        problems = artifacts.faults(self.artifact, kind=kind)
        if not problems:
            return True
        aside = unused_name(self.artifact, ".corrupt")
        os.replace(self.artifact, aside)
        say(f"{self.artifact} does not verify ({problems[0]}): set aside as {aside.name}")
        return False

    @contextlib.contextmanager
    def new_artifact(self, kind: str, meta: dict[str, Any]) -> Iterator[Path]:
        """A scratch directory that becomes the artifact, sealed and renamed, if the block succeeds.

        ``meta`` is read when the block ends, so it may be filled inside.
        """
        scratch = self.directory / f".{ARTIFACT}.tmp"
        if scratch.exists():
            shutil.rmtree(scratch)  # an earlier attempt died here
        scratch.mkdir(parents=True)
        yield scratch
        artifacts.seal(scratch, kind, meta)
        os.replace(scratch, self.artifact)
        fsync_dir(self.directory)


def unused_name(path: Path, suffix: str) -> Path:
    """``path`` with ``suffix``, numbered when that name is taken."""
    candidate, number = path.with_name(path.name + suffix), 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}{suffix}.{number}")
    return candidate


def say(text: str) -> None:
    """One progress line, flushed: a log is read while the program runs."""
    print(text, flush=True)


def read_stage(config: Path) -> Stage:
    """Raises ``ConfigFault`` when the file cannot be read or lacks what it must have."""
    try:
        raw = json.loads(config.read_text(encoding="utf-8"))
        return Stage(
            spec=dict(raw["stage"]),
            directory=Path(raw["stage_dir"]),
            inputs={name: Path(path) for name, path in (raw.get("inputs") or {}).items()},
            work=Workload.from_env(),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigFault(
            f"{config} is not a stage file: {error!r}",
            hint="it is a JSON object with stage, stage_dir and inputs",
        ) from error


def main(program: Callable[[Stage], int], description: str, argv: list[str] | None = None) -> int:
    """Run one stage program; its exit code. A crash keeps its traceback and Python's code 1."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--config", type=Path, required=True, help="the stage's stage.json")
    arguments = parser.parse_args(argv)
    stage: Stage | None = None
    try:
        stage = read_stage(arguments.config)
        stage.directory.mkdir(parents=True, exist_ok=True)
        return program(stage)
    except TrainmasterError as error:
        rank = int(os.environ.get("RANK", "0"))
        if rank == 0 or stage is None:
            print(f"error: {error}", file=sys.stderr, flush=True)
        if stage is not None:
            category = getattr(error, "category", "storage_io")
            whose = {name: getattr(error, name, None) for name in ("rank", "node")}
            said = {name: value for name, value in whose.items() if value is not None}
            words: dict[str, Any] = {"category": category, "message": error.message, "hint": error.hint}
            stage.work.event("workload.error", **{**words, **said})
        culprit = getattr(error, "culprit", None)
        if rank > 0 or culprit is not None:
            # A launcher ends all ranks when the first one exits: let rank 0 write its words down. Whoever
            # exits first is taken for the cause.
            time.sleep(LAST_WORDS_S if culprit is not False else 2 * LAST_WORDS_S)
        return error.exit_code
    finally:
        if stage is not None:
            stage.work.close()


def already_complete(stage: Stage, kind: str) -> int:
    """Say that there is nothing to do."""
    say(f"{stage.artifact} is complete already: a {kind} that verifies")
    return COMPLETE
