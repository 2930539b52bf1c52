"""Everything the files of one job say, read once: scans, Slurm's facts, places, dumps.

The only module of triage that decides what to read and when to stop reading.
``tests/resiliency/triage/test_variants.py``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import discover, slurmtext
from .model import Hit
from .reader import COMPRESSED, Source, stem
from .scan import FileScan, Scanner
from .signatures import SignatureSet, load
from .slurmtext import NodeReason, Place, Run

_NODES = re.compile(r"\bnodes=([\w.,\[\]-]+)")
_JOB = re.compile(r"\bjob (\d+)\b[^\n]{0,200}\brestart_count=|\bSLURM_JOB_ID=(\d+)|\*\*\* (?:JOB|STEP) (\d+)")


@dataclass
class Case:
    scans: list[FileScan] = field(default_factory=list)
    run: Run | None = None
    earlier_runs: list[Run] = field(default_factory=list)
    held: Run | None = None  # a row that only waits, when the run to explain is the one before it
    reasons: list[NodeReason] = field(default_factory=list)
    places: dict[int, Place] = field(default_factory=dict)
    nodes: list[str] = field(default_factory=list)
    job_id: str | None = None
    sacct_name: str = "sacct.txt"
    sinfo_name: str = "sinfo.txt"
    flight: list[Any] = field(default_factory=list)
    stacks: list[Any] = field(default_factory=list)
    extra: list[Hit] = field(
        default_factory=list
    )  # findings of other readers (step records, dumps, journals)
    notes: list[str] = field(default_factory=list)
    bytes_read: int = 0
    complete: bool = True

    @property
    def logs(self) -> list[FileScan]:
        return [s for s in self.scans if s.kind == "log"]

    @property
    def kernels(self) -> list[FileScan]:
        return [s for s in self.scans if s.kind == "kernel"]


def read(
    paths: Sequence[Path],
    *,
    deadline_s: float | None = None,
    limit_bytes: int | None = None,
    signatures: SignatureSet | None = None,
    nodes: Iterable[str] = (),
    job_id: str | None = None,
    places: dict[int, Place] | None = None,
    slurm: Sequence[Run] = (),
) -> Case:
    """Read all files under ``paths``. Past ``deadline_s`` the files left over are named in the notes."""
    until = None if deadline_s is None else time.monotonic() + deadline_s
    found, notes = discover.find(paths)
    case = Case(notes=notes, job_id=job_id, places=dict(places or {}))
    _facts(case, found)
    logs = [f for f in found if f.kind == "log"]
    if case.job_id is None or not case.nodes:
        _peek(case, logs)
    _choose_run(case, [f for f in found if f.kind == "sacct"], slurm)
    known = dict.fromkeys([*nodes, *case.nodes, *(p.node for p in case.places.values() if p.node)])
    if case.held is not None and not case.nodes:
        known.update(dict.fromkeys(n for r in case.earlier_runs for n in r.nodes))
    case.nodes = case.nodes or list(nodes)
    readable = [f for f in found if f.kind in ("log", "kernel")]
    expect = sum(
        min(_size(f.path), limit_bytes or 1 << 60) * (20 if f.path.name.endswith(COMPRESSED) else 1)
        for f in readable
    )
    scanner = Scanner(signatures or load(), known, expect=expect)
    reference = (case.run.end or case.run.start) if case.run is not None else None
    if reference is None:
        reference = _newest_stamp(logs)
    # Small files first: node logs and rank logs say most per byte, and a deadline should cost the least.
    order = sorted(readable, key=lambda f: (f.kind != "kernel", _size(f.path)))
    for item in order:
        if until is not None and time.monotonic() > until:
            case.notes.append(f"{item.name}: not read, the time allowed was over")
            case.complete = False
            continue
        scan = scanner.scan(
            Source(item.path),
            item.name,
            kind=item.kind,
            node=item.node or _node_of_name(item.path.name, known),
            rank=item.rank,
            reference=reference,
            limit_bytes=limit_bytes,
        )
        case.bytes_read += scan.size
        case.notes += scan.notes
        case.scans.append(scan)
    case.scans.sort(key=lambda s: s.name)
    _dumps(case, found)
    return case


def _node_of_name(name: str, known: Container[str]) -> str | None:
    """A log that is named for a node of the job: ``NODE.log``, or ours, ``link-001.0.NODE.log``."""
    base = stem(name).rsplit(".", 1)[0]
    ours = re.sub(r"^link-\d+\.\d+\.", "", base)
    return next((n for n in (base, ours) if n in known), None)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _facts(case: Case, found: list[discover.Found]) -> None:
    for item in found:
        if item.kind == "sinfo":
            case.reasons += slurmtext.parse_sinfo(discover.readable(item.path))
            case.sinfo_name = item.name
        elif item.kind == "places":
            case.places.update(slurmtext.parse_places(discover.readable(item.path)))


def _choose_run(case: Case, found: list[discover.Found], known: Sequence[Run]) -> None:
    runs: list[Run] = list(known)
    if runs:
        case.sacct_name = "journal"
    for item in found:
        runs += slurmtext.parse_sacct(discover.readable(item.path))
        case.sacct_name = item.name
    run, earlier = slurmtext.current_run(runs, case.job_id)
    if (
        run is not None
        and not run.started
        and earlier
        and run.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD")
    ):
        case.held, run, earlier = run, earlier[-1], earlier[:-1]
    case.run, case.earlier_runs = run, earlier
    if run is not None:
        case.job_id = run.job_id
        case.nodes = run.nodes or case.nodes


def _peek(case: Case, logs: list[discover.Found]) -> None:
    """Job id and nodes, from the first lines of the logs."""
    for item in logs[:50]:
        text = discover.readable(item.path, 8192)[:8192]
        match = _NODES.search(text)
        if match and not case.nodes:
            case.nodes = slurmtext.expand(match[1])
        match = _JOB.search(text)
        if match and case.job_id is None:
            case.job_id = next(g for g in match.groups() if g)
        if case.nodes and case.job_id:
            return


def _newest_stamp(logs: list[discover.Found]) -> float | None:
    """A time with a year, for files whose stamps have none."""
    from . import clock

    for item in logs[:20]:
        for text in discover.readable(item.path, 16384)[:16384].splitlines():
            stamp = clock.find(text[:200])
            if stamp is not None and not stamp.partial and not stamp.boot:
                return stamp.seconds
    times = [item.path.stat().st_mtime for item in logs[:20] if item.path.exists()]
    return max(times) if times else None


def _dumps(case: Case, found: list[discover.Found]) -> None:
    flights = [f for f in found if f.kind == "flight"]
    stacks = [f for f in found if f.kind == "stacks"]
    if flights:
        from . import flightrec

        case.flight, notes = flightrec.read([(f.path, f.name, f.rank) for f in flights])
        case.notes += notes
        case.extra += [f.hit() for f in case.flight[:5]]
    if stacks:
        from . import stacks as pystacks

        case.stacks = pystacks.read([(f.path, f.name, f.rank) for f in stacks])
        odd = pystacks.odd_one_out(case.stacks)
        if odd is not None:
            case.extra.append(odd)
