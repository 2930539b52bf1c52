"""``ledger import --log``: what a training log tells, to the attempt it is of or to a run of its own.

``tests/orchestrator/importing/test_logs.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from metrics.ledger import Ledger
from orchestrator.home import Home
from resiliency import contract, durable, journal
from resiliency.durable import storage_error
from resiliency.errors import NotFound
from resiliency.events import Event

from . import rundir, story
from .rundir import STAGE, Said
from .sacct import Options, ingest
from .summary import Summary
from .times import zone_of, zone_words

WRITER: Final = "import-log"
_NAMED: Final = re.compile(r"(?:^|[^0-9])(\d{3,})(?:[_.-]\d+)?(?:\.(?:out|log|err|txt))?$")
_SLACK_S: Final = 120.0  # clocks of node and controller


@dataclass(frozen=True)
class _Attempt:
    """An attempt that the ledger has. ``own``: of a run that Trainmaster itself launched."""

    path: Path
    stage: str
    id: str
    started_at: float | None
    ended_at: float | None
    own: bool


def import_log(home: Home, path: Path, options: Options, *, job: str | None = None) -> Summary:
    """Bring a log in. Raises NotFound when ``job`` names one that the ledger does not have; StorageError."""
    path = path.expanduser().absolute()
    zone = zone_of(options.zone)
    try:
        written_at = path.stat().st_mtime
        with path.open(encoding="utf-8", errors="replace") as stream:
            told = story.tell(stream, zone, written_at)
    except OSError as error:
        raise storage_error(error, path, "read log") from error
    summary = Summary("log", str(path), options.dry_run, told.lines)
    named = _NAMED.search(path.name)
    wanted = job or told.job or (named[1] if named else None)
    attempts = _attempts(home, wanted, options.cluster)
    if job and not attempts:
        raise NotFound(
            f"the ledger has no job {job}", hint="import the accounting first: ledger import --sacct"
        )
    _remarks(summary, told, options, attempts, wanted)
    if not told.facts:
        return summary
    if options.dry_run:
        _bring(home, path, told, attempts, summary)
    else:
        home.ensure()
        with durable.locked(home.root / "import.lock", what="importing"):
            _bring(home, path, told, attempts, summary)
    return summary


def _attempts(home: Home, job: str | None, cluster: str | None) -> list[_Attempt]:
    """The runs of a job, oldest first; of the job of that id that the ledger saw last."""
    if job is None or not home.ledger.exists():
        return []
    sql = (
        "SELECT r.run_dir, a.stage, a.attempt_id, a.started_at, a.ended_at, a.run_id, a.cluster"
        " FROM attempt a JOIN run r ON r.run_id = a.run_id"
        " WHERE a.job_id = ? AND (? IS NULL OR a.cluster = ?)"
        " ORDER BY a.restart_count"
    )
    with Ledger.open(home.ledger, readonly=True) as ledger:
        rows = ledger.rows(sql, (job, cluster, cluster))
    if not rows:
        return []
    newest = max(rows, key=lambda row: (row[3] or 0.0, row[5]))
    return [
        _Attempt(Path(row[0]), row[1], row[2], row[3], row[4], not row[5].startswith(rundir.PREFIX))
        for row in rows
        if (row[5], row[6]) == (newest[5], newest[6])
    ]


def _of(attempts: Sequence[_Attempt], at: float) -> _Attempt:
    """The run of the job that a time lies in; the last that had begun, where it lies in none."""
    begun = [a for a in attempts if a.started_at is not None and a.started_at - _SLACK_S <= at]
    return (begun or list(attempts))[-1 if begun else 0]


def _bring(home: Home, path: Path, told: story.Story, attempts: list[_Attempt], summary: Summary) -> None:
    alone = not attempts
    if alone:
        name = rundir.run_id(path.stem, "log", str(path))
        where = home.default_runs / name
        attempts = [_Attempt(where, STAGE, contract.attempt_id("imported", name, 0), None, None, False)]
    run_path = attempts[0].path
    known, seen, heard = _known(run_path)
    spoken = {a.id for a in attempts if a.own} & heard
    said = _facts(told, attempts, seen, spoken, summary)
    summary.attempts = len({where["attempt"] for _, _, _, where in said} | known)
    summary.new = len({where["attempt"] for _, _, _, where in said} - known) if alone else 0
    summary.runs = [run_path.name]
    if said:
        source = {"source": "log", "file": str(path), "rows": told.lines}
        said.append((max(ts for ts, *_ in said), "import.source", source, {}))
    if alone and said:
        said = [*_opening(run_path, path, told, attempts[0], known), *said, *_closing(told, attempts[0])]
    summary.events = len(said)
    if not said or summary.dry_run:
        return
    rundir.write(run_path, said, writer=WRITER)
    ingest(home, [run_path])


def _known(path: Path) -> tuple[set[str], set[tuple[Any, ...]], set[str]]:
    """Attempts that already have words of training, which words, and those whose own program said some."""
    directory = contract.RunPaths(path).journal
    events = journal.read_run(directory)[0] if directory.is_dir() else []
    told = [event for event in events if event.type in _TYPES]
    heard = {event.attempt for event in told if event.attempt and event.writer != WRITER}
    return {event.attempt for event in told if event.attempt}, {_key(event) for event in told}, heard


_TYPES: Final = {"progress": "step", "checkpoint.committed": "saved", "workload.resumed": "loaded"}


def _key(event: Event) -> tuple[Any, ...]:
    return (event.type, event.attempt, event.cycle or 0, event.data.get("step"))


def _facts(
    told: story.Story,
    attempts: Sequence[_Attempt],
    seen: set[tuple[Any, ...]],
    spoken: set[str],
    summary: Summary,
) -> list[Said]:
    """What the log adds; ``seen``: words that are known, ``spoken``: attempts whose own program told them."""
    types = {kind: name for name, kind in _TYPES.items()}
    said: list[Said] = []
    cycles: dict[str, dict[int, int]] = {}
    last: dict[tuple[str, int], story.Fact] = {}
    for fact in told.facts:
        attempt = _of(attempts, fact.at)
        if attempt.id in spoken:
            summary.left_out["facts of an attempt whose own program told its progress"] += 1
            continue
        of = cycles.setdefault(attempt.id, {})
        cycle = of.setdefault(fact.cycle, len(of))
        where = {"stage": attempt.stage, "attempt": attempt.id, "cycle": cycle}
        kind = types[fact.line.kind]
        if (kind, attempt.id, cycle, fact.step) in seen:
            continue
        first = (attempt.id, cycle) not in last and not any(key[1:3] == (attempt.id, cycle) for key in seen)
        if first and cycle > 0:
            said += _turn(last.get((attempt.id, cycle - 1)), fact, where)
        last[attempt.id, cycle] = fact
        at = fact.at if attempt.started_at is None else max(fact.at, attempt.started_at)
        said.append((at, kind, _data(fact), where))
    return said


def _turn(before: story.Fact | None, fact: story.Fact, where: dict[str, Any]) -> list[Said]:
    """Training began again in the same attempt: nobody said why."""
    ended = {**where, "cycle": where["cycle"] - 1}
    data = {
        "cycle": ended["cycle"],
        "category": "unknown",
        "reason": "training began again",
        "continued": True,
    }
    at = before.at if before is not None else fact.at
    return [(at, "cycle.ended", data, ended), (fact.at, "cycle.started", {"cycle": where["cycle"]}, where)]


def _data(fact: story.Fact) -> dict[str, Any]:
    line = fact.line
    data: dict[str, Any] = {"step": fact.step}
    if line.kind == "step":
        told = {"loss": line.loss, "tokens": line.tokens, "tflops_per_gpu": line.tflops}
        each = {"steps_per_s": round(1 / line.each_s, 6)} if line.each_s else {}
        return {**data, "section": "step", **{k: v for k, v in told.items() if v is not None}, **each}
    if line.kind == "saved":
        took = {"seconds": line.took_s} if line.took_s is not None else {}
        return {**data, "path": line.path or f"step {fact.step}", **took}
    return {**data, "checkpoint": line.path or f"step {fact.step}", "source": "global"}


def _opening(run_path: Path, path: Path, told: story.Story, attempt: _Attempt, known: set[str]) -> list[Said]:
    if known:
        return []
    first = told.facts[0].at
    stages = [{"name": STAGE, "kind": "imported", "needs": []}]
    created = {"name": path.stem, "experiment": f"imported: {path}", "imported": "log", "stages": stages}
    where = {"stage": STAGE, "attempt": attempt.id}
    return [(first, "run.created", created, {}), (first, "attempt.started", {"imported": True}, where)]


def _closing(told: story.Story, attempt: _Attempt) -> list[Said]:
    """Nothing more is expected of a log alone; how its program ended, only its last step may tell."""
    end = max(fact.at for fact in told.facts)
    where = {"stage": STAGE, "attempt": attempt.id}
    if told.done:
        return [
            (end, "attempt.finished", {"exit_code": 0}, where),
            (end, "stage.completed", {"epoch": 0, "imported": True}, {"stage": STAGE}),
        ]
    return [(end, "job.gone", {"imported": True}, where)]


def _remarks(
    summary: Summary, told: story.Story, options: Options, attempts: Sequence[_Attempt], wanted: str | None
) -> None:
    steps = sum(fact.line.kind == "step" for fact in told.facts)
    saves = sum(fact.line.kind == "saved" for fact in told.facts)
    programs = ", ".join(name for name, _ in told.programs.most_common()) or "no known program"
    turns = max((fact.cycle for fact in told.facts), default=0)
    summary.assumed.append(
        f"{programs}: {steps} steps told, {saves} saves, training began again {turns} times"
    )
    if not told.facts:
        summary.unknown.append("everything: no line of Megatron-LM, torchtitan or NeMo was found")
        return
    if told.timed == 0:
        summary.assumed.append("no line has a time: laid out backwards from when the file was last written")
    else:
        summary.assumed.append(f"times are in {zone_words(options.zone)} (--timezone)")
    if not attempts:
        words = f"job {wanted} is not in the ledger" if wanted else "it names no job"
        summary.assumed.append(f"{words}: the log is a run of its own")
        summary.unknown.append("nodes, how long the job waited, how it ended (import its accounting first)")
    if not any(fact.line.tokens is not None for fact in told.facts):
        summary.unknown.append("tokens: the log does not say how many were consumed")
    if not saves:
        summary.unknown.append("what was kept: no line says that a checkpoint is complete")
    if told.unplaced:
        summary.left_out["saves before any step was told"] += told.unplaced
