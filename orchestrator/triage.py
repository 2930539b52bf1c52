"""What a word on the command line means to triage: a run of ours, a Slurm job, directories, files.

Finds the files and Slurm's facts; ``resiliency.triage`` judges. Nothing is changed.
``tests/orchestrator/test_triage.py``.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from resiliency.attempt import Attempt
from resiliency.contract import parse_attempt_id
from resiliency.errors import NotFound
from resiliency.triage.api import Triage, triage
from resiliency.triage.model import TriageVerdict
from resiliency.triage.slurmtext import Run as SlurmRun
from resiliency.triage.slurmtext import expand

from . import logfiles
from .control import read_state
from .runs import Run
from .session import Session

SACCT = "JobID,JobName,State,ExitCode,DerivedExitCode,Submit,Start,End,NodeList,Reason"
#: What the scheduler or the exit code says for certain; logs only add to it.
CERTAIN = frozenset({"healthy", "planned_rollover", "preempted", "requeued"})


@dataclass
class Target:
    """One thing to judge. ``slurm``: what our journal knows of the job, oldest run first."""

    title: str
    paths: list[Path]
    slurm: list[SlurmRun] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    job: str = ""
    run: Run | None = None
    attempt: Attempt | None = None


@contextmanager
def resolve(
    session: Session,
    words: Sequence[str],
    *,
    stage: str | None = None,
    link: int | None = None,
) -> Iterator[list[Target]]:
    """Targets for these words; paths among them are one target together. Raises NotFound."""
    with tempfile.TemporaryDirectory(prefix="triage-") as scratch:
        found: list[Target] = []
        plain: list[Path] = []
        for word in words or [""]:
            path = Path(word)
            if word and path.exists() and not (path / "run.json").exists():
                plain.append(path)
            else:
                found.append(_of_word(session, word, stage, link, Path(scratch)))
        if plain:
            shown = ", ".join(str(p) for p in plain[:3]) + (" …" if len(plain) > 3 else "")
            found.insert(0, Target(shown, plain))
        yield found


def _of_word(session: Session, word: str, stage: str | None, link: int | None, scratch: Path) -> Target:
    named = parse_attempt_id(word)
    if named or re.fullmatch(r"\d+(?:_\d+)?", word):
        job = named[1] if named else word
        ours = _attempt_of_job(session, job, named[2] if named else None)
        if ours is not None:
            return of_attempt(*ours)
        if named:
            raise NotFound(f"no attempt {word} in any run", hint="python -m orchestrator status")
        return _foreign(word, scratch)
    run = session.find(word or None)
    return of_attempt(run, pick(run, stage=stage, link=link))


def pick(run: Run, *, stage: str | None = None, link: int | None = None) -> Attempt:
    """The attempt a person means: the last one that ended badly, else the last one."""
    attempts = [
        a
        for s in read_state(run).stages.values()
        for a in s.attempts.values()
        if stage in (None, s.name) and link in (None, a.link) and not a.duplicate
    ]
    if not attempts:
        raise NotFound(f"run {run.id} has no attempt yet", hint=f"python -m orchestrator status {run.id}")
    attempts.sort(key=lambda a: (a.started_ts or a.record_order[0], a.link, a.restart_count))
    bad = [a for a in attempts if a.ended and a.verdict().category not in ("healthy", "planned_rollover")]
    return (bad or attempts)[-1]


def _attempt_of_job(session: Session, job: str, restart: int | None) -> tuple[Run, Attempt] | None:
    from . import runs

    for path in session.home.run_dirs():
        run = runs.open_run(path)
        for stage in read_state(run).stages.values():
            for attempt in stage.attempts.values():
                if attempt.job_id == job and restart in (None, attempt.restart_count):
                    return run, attempt
    return None


def of_attempt(run: Run, attempt: Attempt) -> Target:
    """Logs, gathered evidence and the journal's facts of one attempt."""
    name = f"{attempt.link}.{attempt.restart_count}"
    paths = [f.path for f in logfiles.find(run, stage=attempt.stage, attempt=name)]
    paths += _gathered(
        run.paths.evidence(attempt.stage), f"link-{attempt.link:03d}.{attempt.restart_count}.cycle-"
    )
    title = f"{run.id}, {attempt.stage} link {attempt.link}, attempt {attempt.id}"
    slurm = [_fact(attempt)] if attempt.record is not None else []
    nodes = expand(str((attempt.started or {}).get("nodes") or "")) or (slurm[0].nodes if slurm else [])
    return Target(title, paths, slurm, nodes, attempt.job_id, run, attempt)


def _gathered(folder: Path, prefix: str) -> list[Path]:
    """What was gathered in the last cycle, without the ends of logs that are read as a whole anyway."""
    cycles = [p for p in folder.glob(prefix + "*") if p.name.removeprefix(prefix).isdigit()]
    if not cycles:
        return []
    last = max(cycles, key=lambda p: int(p.name.removeprefix(prefix)))
    return sorted(p for p in last.rglob("*") if p.is_file() and p.suffix != ".log")


def _fact(attempt: Attempt) -> SlurmRun:
    record = attempt.record
    assert record is not None
    ended = f"{record.exit_code}:{record.signal or 0}"
    text = f"{record.job_id} {record.state} {ended} {record.nodes} {record.reason}"
    return SlurmRun(
        record.job_id,
        record.state,
        record.state,
        record.exit_code,
        record.signal,
        _as_written(record.started_at or attempt.started_ts),
        _as_written(record.ended_at or attempt.finished_ts),
        _as_written(record.submitted_at),
        expand(record.nodes),
        record.reason,
        0,
        text.strip(),
        record.cancelled_by,
    )


def _as_written(seconds: float | None) -> float | None:
    """A moment as this machine's logs write it (local time), read as if it were UTC, as triage reads them."""
    return None if seconds is None else seconds + time.localtime(seconds).tm_gmtoff


def _foreign(job: str, scratch: Path) -> Target:
    """A job that is not ours: what Slurm knows, and the file its output went to."""
    sacct = _run(["sacct", "-P", "-D", "-j", job, "-o", SACCT])
    shown = _run(["scontrol", "show", "job", job])
    sinfo = _run(["sinfo", "-R"])
    if len(sacct.splitlines()) < 2:  # of a job it does not know it shows its header
        sacct = ""
    if not sacct and not shown:
        raise NotFound(
            f"neither a run of ours nor a job that Slurm knows: {job}",
            hint="give the directory or the files of the job instead",
        )
    folder = scratch / job
    folder.mkdir(parents=True, exist_ok=True)
    if sacct:
        (folder / "sacct.txt").write_text(sacct)
    if sinfo:
        (folder / "sinfo.txt").write_text(sinfo)
    paths = [folder]
    for key in ("StdOut", "StdErr"):
        match = re.search(rf"\b{key}=(\S+)", shown)
        if match and Path(match[1]).is_file() and Path(match[1]) not in paths:
            paths.append(Path(match[1]))
    return Target(f"Slurm job {job}", paths, job=job)


def _run(argv: list[str]) -> str:
    import subprocess

    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def judge(target: Target, *, deadline_s: float | None = None) -> Triage:
    """Triage a target; of our own attempts the exit-code contract and the scheduler's word count too."""
    made = triage(
        target.paths,
        deadline_s=deadline_s,
        nodes=target.nodes,
        job_id=target.job or None,
        slurm=target.slurm,
    )
    if target.attempt is not None and target.attempt.ended:
        made.verdict = _with_contract(made.verdict, target.attempt)
    return made


def _with_contract(found: TriageVerdict, attempt: Attempt) -> TriageVerdict:
    said = attempt.verdict()
    row = said.row
    sure = said.category in CERTAIN and said.confidence >= 0.9
    vague = found.category == "unknown" or (found.confidence < 0.5 and said.confidence > found.confidence)
    if said.category == found.category or said.category == "unknown" or not (sure or vague):
        return found
    evidence = [{"file": "journal", "line": 0, "text": text} for text in said.evidence]
    return replace(
        found,
        category=said.category,
        domain=row.domain,
        action=row.action.value if row.node_fault is False or said.node else "requeue",
        node=said.node,
        rank=said.rank,
        confidence=said.confidence,
        reason=said.reason,
        evidence=[*evidence, *found.evidence][:8],
        signature=said.signature or said.category,
    )
