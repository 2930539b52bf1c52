"""Rows of an accounting dump to runs of jobs: arrays, heterogeneous jobs, steps, odd values. Pure.

What cannot be read is counted in the table's faults. ``tests/orchestrator/importing/test_jobs.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Final

from orchestrator.schedulers.slurm import fields
from orchestrator.schedulers.slurm.sacct import AccountingRow
from resiliency import jobstate
from resiliency.contract import COMMENT_PREFIX, parse_token

from .table import Table
from .times import seconds

_BASE: Final = re.compile(r"(\d+)(?:_(\d+))?(?:\+(\d+))?")
_BY: Final = re.compile(r"\bby (\S+)")
_GPUS: Final = re.compile(r"gres/gpu(?::[^=,]+)?=(\d+)")


@dataclass(frozen=True)
class Chain:
    """What makes jobs one logical run: same cluster, user, name and working directory."""

    cluster: str
    user: str
    name: str
    directory: str


@dataclass
class JobRow:
    """One run of one job; ``row.job_id`` is that of a heterogeneous job's leader."""

    chain: Chain
    row: AccountingRow
    component: int | None = None
    gpus_per_node: int | None = None
    step_code: int | None = None
    step_signal: int | None = None


@dataclass(frozen=True)
class Reading:
    """How to read: the zone of times without one, the cluster where no column names it."""

    zone: tzinfo | None = None
    cluster: str = "imported"


def read(table: Table, how: Reading) -> list[JobRow]:
    """All runs of jobs in the table, in its order; jobs of Trainmaster's own are left out and counted."""
    jobs: list[JobRow] = []
    last: dict[str, JobRow] = {}  # text of the job's id → its newest row, for the steps behind it
    for number, row in table.rows():
        told = (row.get("jobidraw") or row.get("jobid") or "").strip()
        base, dot, _ = told.partition(".")
        if dot:
            _step(table, number, row, last.get(base))
            continue
        job = _job(table, number, row, how)
        if job is not None:
            jobs.append(job)
            last[base] = job
    return [_ended(job) for job in _components(jobs)]


def _step(table: Table, number: int, row: Mapping[str, str], job: JobRow | None) -> None:
    if job is None:
        table.faults.add("step without a row of its job", number)
        return
    code, signal = fields.exit_status(row.get("exitcode", ""))
    told = (row.get("jobidraw") or row.get("jobid") or "").rpartition(".")[2]
    if told != "extern" and (code or signal) and not job.step_code:
        job.step_code, job.step_signal = code, signal


def _job(table: Table, number: int, row: Mapping[str, str], how: Reading) -> JobRow | None:
    shown, raw = (row.get(name, "").strip() for name in ("jobid", "jobidraw"))
    if "[" in shown or "[" in raw:
        table.faults.counts["tasks of an array that were not yet jobs"] += 1
        return None
    parts = _BASE.fullmatch(shown or raw)
    if parts is None or (raw and not _BASE.fullmatch(raw)):
        table.faults.add("job id makes no sense", number, shown or raw)
        return None
    name = row.get("jobname", "").strip()
    comment = row.get("comment", "").strip()
    if ("." in name and parse_token(name)) or (comment.startswith(COMMENT_PREFIX) and parse_token(comment)):
        table.faults.counts["jobs that Trainmaster itself submitted"] += 1
        return None
    state = jobstate.normalise(row["state"])
    if state == jobstate.UNKNOWN:
        table.faults.add("state makes no sense", number, row["state"])
        return None
    times = {}
    for column in ("submit", "eligible", "start", "end"):
        try:
            times[column] = seconds(row.get(column, ""), how.zone)
        except ValueError:
            table.faults.add(f"time of {column} makes no sense (taken as not known)", number, row[column])
            times[column] = None
    component = int(parts[3]) if parts[3] is not None else None
    job_id = parts[1] if component is not None else (raw or shown)
    nodes = fields.text(row.get("nodelist", ""))
    by = _BY.search(row["state"])
    ended = times["end"] if state in jobstate.ENDED or state in ("REQUEUED", "RESIZING") else None
    # Before 23.11 a job cancelled while it waited has Start and End, but no nodes.
    started = times["start"] if nodes or "nodelist" not in row else None
    if started is not None and ended is not None and ended < started:
        table.faults.add("ends before it starts (its end is taken as its start)", number)
        ended = started
    submitted = next((t for t in (times["submit"], times["eligible"], times["start"]) if t is not None), None)
    if submitted is None and ended is None:
        table.faults.add("row without any time", number)
        return None
    code, signal = fields.exit_status(row.get("exitcode", ""))
    over = state in jobstate.ENDED or ended is not None
    return JobRow(
        Chain(
            row.get("cluster", "").strip() or how.cluster,
            (row.get("user") or row.get("uid") or "").strip(),
            name,
            row.get("workdir", "").strip(),
        ),
        AccountingRow(
            job_id,
            state,
            code if over else None,
            signal if over else None,
            submitted,
            started,
            ended,
            nodes,
            fields.text(row.get("reason", "")) if state in jobstate.PENDING else "",
            name,
            by[1] if by else None,
        ),
        component,
        _gpus(row),
    )


def _gpus(row: Mapping[str, str]) -> int | None:
    """GPUs of a node, where the row tells how many there are and of how many nodes."""
    nodes = fields.number(row.get("nnodes") or row.get("allocnodes") or "")
    told = row.get("alloctres", "")
    found = _GPUS.search(told) if told else None
    if nodes is None and (match := re.search(r"\bnode=(\d+)", told)):
        nodes = int(match[1])
    if found is None or not nodes:
        return None
    each, rest = divmod(int(found[1]), nodes)
    return each if each and not rest else None


def _components(jobs: list[JobRow]) -> list[JobRow]:
    """The parts of a heterogeneous job as the one job they are: all nodes, the worst end."""
    found: list[JobRow] = []
    leaders: dict[tuple[str, str, float | None], int] = {}
    for job in jobs:
        if job.component is None:
            found.append(job)
            continue
        key = (job.chain.cluster, job.row.job_id, job.row.submitted_at)
        place = leaders.get(key)
        if place is None:
            leaders[key] = len(found)
            found.append(job)
        else:
            found[place] = _both(found[place], job)
    return found


def _both(one: JobRow, other: JobRow) -> JobRow:
    first, second = one.row, other.row
    worse = second if first.state == "COMPLETED" else first
    starts = [t for t in (first.started_at, second.started_at) if t is not None]
    ends = [first.ended_at, second.ended_at]
    lead = one if (one.component or 0) <= (other.component or 0) else other
    row = replace(
        worse,
        started_at=min(starts, default=None),
        ended_at=None if None in ends else max(t for t in ends if t is not None),
        nodes=",".join(filter(None, (first.nodes, second.nodes))),
        name=lead.row.name,
    )
    return JobRow(
        lead.chain,
        row,
        lead.component,
        one.gpus_per_node if one.gpus_per_node == other.gpus_per_node else None,
        one.step_code or other.step_code,
        one.step_signal or other.step_signal,
    )


def _ended(job: JobRow) -> JobRow:
    """How it ended, as far as its own row or those of its steps say: ``FAILED`` with 0:0 says nothing."""
    row = job.row
    code, signal = row.exit_code, row.signal
    if row.state == "COMPLETED":
        code = 0 if code is None else code  # what the word means
    elif row.state in jobstate.ENDED and not code:
        code = job.step_code or None
        signal = signal or job.step_signal
    if (code, signal) != (row.exit_code, row.signal):
        job.row = replace(row, exit_code=code, signal=signal)
    return job
