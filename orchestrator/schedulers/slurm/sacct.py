"""sacct: its arguments and its answer. Pure; ``tests/orchestrator/test_slurm_sacct.py``.

``-D`` gives one row per run of a requeued job; without it only the last one shows. The row count is
the only restart count that both 22.05 and 24.11 have (``Restarts`` came later).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from resiliency import jobstate

from . import fields
from .fields import FIELD_END

_COLUMNS: Final = (
    "JobIDRaw",
    "State",
    "ExitCode",
    "Submit",
    "Start",
    "End",
    "NodeList",
    "Reason",
    "JobName",
)
#: Every state by its short name. With -s (and then -E, or nothing matches) sacct also lists jobs
#: that never became eligible, such as a link cancelled while it waited for its dependency; a
#: look-up without it leaves them out.
_ANY_STATE: Final = "BF,CA,CD,DL,F,NF,OOM,PD,PR,R,RQ,RS,RV,S,TO"
#: One argument of execve may be 128 KiB (MAX_ARG_STRLEN); far below that, calls are split.
_ARGUMENT_BYTES: Final = 100_000


@dataclass(frozen=True)
class AccountingRow:
    """One run of a job as slurmdbd knows it, perhaps minutes late."""

    job_id: str
    state: str
    exit_code: int | None
    signal: int | None
    submitted_at: float | None
    started_at: float | None
    ended_at: float | None
    nodes: str
    reason: str
    name: str
    cancelled_by: str | None


@dataclass(frozen=True)
class Accounting:
    """``complete``: no row was torn or malformed."""

    rows: list[AccountingRow] = field(default_factory=list)
    complete: bool = True


def by_id(job_ids: Collection[str]) -> list[list[str]]:
    """Calls for all runs of these jobs; one, up to some 10,000 ids."""
    # -j without -S reaches back to the beginning of accounting
    return [[*_base(), f"--jobs={chunk}"] for chunk in _chunks(sorted(job_ids, key=_by_number))]


def by_name(names: Collection[str], minutes_back: int, user: str | None) -> list[list[str]]:
    """Calls for all jobs of these names submitted or alive in the last minutes, in any state.

    Relative time: the zone of the caller's clock then does not matter.
    """
    when = [f"--starttime=now-{minutes_back}minutes", "--endtime=now", f"--state={_ANY_STATE}"]
    whose = [] if user is None else [f"--user={user}"]
    return [[*_base(), *when, *whose, f"--name={chunk}"] for chunk in _chunks(sorted(names))]


def _base() -> list[str]:
    # -X: no rows of steps. -p: rows end with the separator, so a torn one is seen.
    return [
        "sacct",
        "--noheader",
        "--allocations",
        "--duplicates",
        "--parsable",
        f"--delimiter={FIELD_END}",
        f"--format={','.join(_COLUMNS)}",
    ]


def _by_number(job_id: str) -> tuple[int, str]:
    return (int(job_id) if job_id.isdecimal() else 0, job_id)


def _chunks(words: Sequence[str]) -> list[str]:
    chunks: list[str] = []
    for word in words:
        if chunks and len(chunks[-1]) + len(word) < _ARGUMENT_BYTES:
            chunks[-1] += f",{word}"
        else:
            chunks.append(word)
    return chunks


def parse(output: str) -> Accounting:
    """Read an answer; rows keep sacct's order.

    A row ends with the separator and a newline, not with a newline alone: a job's name may hold one.
    """
    rows: list[AccountingRow] = []
    *records, rest = f"{output}\n".split(f"{FIELD_END}\n")
    complete = not rest.strip()
    for record in records:
        parts = record.split(FIELD_END)
        before, parts = parts[: -len(_COLUMNS)], parts[-len(_COLUMNS) :]
        *noise, first = parts[0].split("\n") if len(parts) == len(_COLUMNS) else [record]
        if any(text.strip() for text in (*before, *noise)):
            complete = False  # a torn row or another program's words; the row behind them is whole
        job_id = first.strip()
        if not job_id or "." in job_id:
            continue  # nothing, or a step
        if len(parts) != len(_COLUMNS) or not job_id.isdecimal():
            complete = False
            continue
        rows.append(_row(job_id, parts))
    return Accounting(rows, complete)


def _row(job_id: str, parts: list[str]) -> AccountingRow:
    state = jobstate.normalise(parts[1])
    by = re.search(r"\bby (\S+)", parts[1])
    nodes, ended = fields.text(parts[6]), fields.epoch(parts[5])
    over = ended is not None or state in jobstate.ENDED
    # An unfinished run has 0:0, which would read as success.
    code, signal = fields.exit_status(parts[2]) if over else (None, None)
    return AccountingRow(
        job_id=job_id,
        state=state,
        exit_code=code,
        signal=signal,
        submitted_at=fields.epoch(parts[3]),
        started_at=fields.epoch(parts[4]) if nodes else None,
        ended_at=ended,
        nodes=nodes,
        # The column keeps why the run once waited; of a run that started it says nothing.
        reason=fields.text(parts[7]) if state in jobstate.PENDING and not over else "",
        name=parts[8].strip(),
        cancelled_by=by[1] if by else None,
    )
