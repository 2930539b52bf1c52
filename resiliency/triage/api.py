"""Triage as a function: files in, one verdict out. What the supervisor, the command line and the tests call.

Loads no more than the standard library and YAML; within ``deadline_s`` it reads what it can and says what it
did not read. Never raises on the content of a file. ``tests/resiliency/triage/test_api.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import case as cases
from .choose import choose
from .conclude import conclude
from .derive import derive
from .model import TriageVerdict
from .signatures import SignatureSet
from .slurmtext import Place, Run
from .timeline import Timeline, build


@dataclass
class Triage:
    """A verdict with what it was made from (``--explain``, ``--all``)."""

    verdict: TriageVerdict
    case: cases.Case
    timeline: Timeline


def triage(
    paths: Sequence[str | os.PathLike[str]],
    *,
    deadline_s: float | None = None,
    limit_bytes: int | None = None,
    signatures: SignatureSet | None = None,
    nodes: Iterable[str] = (),
    job_id: str | None = None,
    places: Mapping[int, Place] | None = None,
    slurm: Sequence[Run] = (),
) -> Triage:
    """Read files and directories and judge them as one job.

    ``limit_bytes`` bounds what is looked at per plain file (its head and tail). ``nodes``,
    ``job_id``, ``places``: what the caller knows already; files beside the logs (``sacct.txt``,
    ``nodes.json``) add to it.
    """
    case = cases.read(
        [Path(p) for p in paths],
        deadline_s=deadline_s,
        limit_bytes=limit_bytes,
        signatures=signatures,
        nodes=nodes,
        job_id=job_id,
        places=dict(places or {}),
        slurm=slurm,
    )
    timeline = build(case)
    derived = derive(case, timeline)
    verdict = conclude(case, timeline, choose(case, timeline, derived), derived)
    verdict.notes = [*case.notes, *verdict.notes]
    return Triage(verdict, case, timeline)


def triage_paths(
    paths: Sequence[str | os.PathLike[str]],
    *,
    deadline_s: float | None = None,
    limit_bytes: int | None = None,
    nodes: Iterable[str] = (),
    job_id: str | None = None,
    places: Mapping[int, Place] | None = None,
) -> TriageVerdict:
    """The verdict alone."""
    return triage(
        paths, deadline_s=deadline_s, limit_bytes=limit_bytes, nodes=nodes, job_id=job_id, places=places
    ).verdict
