"""sbatch: its arguments, and what its outcome proves. Pure.

Rule: a job is called refused only when a known text says so. Everything else may have left a job
behind (a frozen slurmctld answers "timed out" and runs it).
``tests/orchestrator/test_slurm_sbatch.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from resiliency.edges import Completed

from . import messages
from .commands import NOT_EXECUTABLE, NOT_FOUND
from .messages import Meaning


@dataclass(frozen=True)
class Answer:
    """``job_id`` is set only when accepted; ``meaning`` is None then."""

    job_id: str | None
    meaning: Meaning | None
    text: str = ""
    hint: str = ""


def arguments(script: Path, *, after: Sequence[str] = (), held: bool = False) -> list[str]:
    """``--export=ALL``: the job gets sbatch's environment, which the backend has chosen."""
    words = ["sbatch", "--parsable", "--export=ALL"]
    if held:
        words.append("--hold")
    if after:
        words.append(f"--dependency=afterany:{':'.join(after)}")
    return [*words, str(script)]


def read(done: Completed) -> Answer:
    """What an sbatch proves about its job."""
    said = _said(done)
    if done.returncode in (NOT_FOUND, NOT_EXECUTABLE) and not done.stdout.strip():
        hint = "load the site's Slurm module, or put sbatch on PATH"
        return Answer(None, Meaning.UNREACHABLE, f"sbatch could not be started: {said}", hint)
    if done.returncode is None:
        return Answer(None, Meaning.UNCERTAIN, f"sbatch gave no answer in {done.seconds:.0f} s. {said}")
    if done.returncode == 0:
        job_id = _job_id(done.stdout)
        if job_id is None:
            return Answer(None, Meaning.UNCERTAIN, f"sbatch succeeded but named no job: {said}")
        return Answer(job_id, None)
    if done.returncode < 0:
        return Answer(None, Meaning.UNCERTAIN, f"sbatch was killed by signal {-done.returncode}. {said}")
    row = messages.meaning(done.stderr)
    if row is None:
        return Answer(None, Meaning.UNCERTAIN, f"sbatch ended with {done.returncode}: {said}")
    return Answer(None, row.meaning, said, row.hint)


def _job_id(stdout: str) -> str | None:
    """``3`` or, with -M, ``3;beta``. A site's wrapper may print lines around it."""
    ids = [m[1] for line in stdout.splitlines() if (m := re.fullmatch(r"(\d+)(;\S+)?", line.strip()))]
    return ids[0] if len(ids) == 1 else None


def _said(done: Completed) -> str:
    lines = [line.strip() for line in (done.stderr + "\n" + done.stdout).splitlines()]
    return " ".join(re.sub(r"^sbatch: (error: )?", "", line) for line in lines if line)[:600]
