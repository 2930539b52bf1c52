"""May this stage start? A pure decision over the folded run and what was found of its artifacts.

Dependencies of the scheduler only save time; this decides. ``tests/launch/test_gate.py`` has a row per
outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from resiliency import artifact
from resiliency.errors import StorageError
from resiliency.state import RunState

from .config import StageConfig

Word = Literal["go", "complete", "wait", "stopped"]

#: Artifacts up to this size are read in full before they are trusted; larger ones by their sizes, since
#: a terabyte would cost the allocation hours and the program that loads it checks it again.
DEEP_BYTES = 64 << 20


@dataclass(frozen=True)
class Gate:
    """``damaged``: needed stages that are complete and whose artifact no longer verifies."""

    verdict: Word
    detail: str = ""
    damaged: tuple[str, ...] = ()


def decide_gate(state: RunState, stage: str, inputs: Mapping[str, Sequence[str]], *, complete: bool) -> Gate:
    """``inputs``: needed stage → faults of its artifact (none: it verifies); ``complete``: our own does."""
    mine = state.stage(stage)
    if mine.completed is not None or complete:
        return Gate("complete", "the stage is complete")
    if mine.stopped is not None:
        return Gate("stopped", str(mine.stopped.get("reason") or "the stage is stopped"))
    if mine.held is not None:
        return Gate("stopped", f"the stage is held: {mine.held.get('reason', '')}")
    blocked = state.blocked(mine)
    if blocked is not None:
        return Gate("stopped", f"stage {blocked}, which it needs, is stopped")
    faulty = {name: faults for name, faults in inputs.items() if faults}
    damaged = tuple(name for name in faulty if state.stage(name).completed is not None)
    if damaged:
        what = "; ".join(f"{name}: {faulty[name][0]}" for name in damaged)
        return Gate("stopped", f"the artifact of a completed stage is damaged ({what})", damaged)
    if faulty:
        what = "; ".join(f"{name}: {faults[0]}" for name, faults in faulty.items())
        return Gate("wait", f"not there yet ({what})")
    return Gate("go")


def faults_of(directory: Path, kind: str | None) -> list[str]:
    """Why an artifact cannot be used; empty: it can."""
    try:
        manifest = artifact.load(directory)
        size = sum(int(entry.get("bytes") or 0) for entry in manifest.files.values())
    except StorageError as error:
        return [error.message]
    except (TypeError, ValueError, AttributeError) as error:
        return [f"{directory / artifact.MANIFEST} is not a manifest: {error!r}"]
    return artifact.faults(directory, kind=kind, deep=size <= DEEP_BYTES)


def input_faults(config: StageConfig) -> dict[str, list[str]]:
    """Faults of every needed artifact."""
    return {
        name: faults_of(directory, config.input_kinds.get(name)) for name, directory in config.inputs.items()
    }


def own_faults(config: StageConfig) -> list[str]:
    """Faults of the stage's own artifact. A command may seal one of any kind it likes."""
    return faults_of(config.artifact_dir, None if config.is_command else config.artifact_kind)
