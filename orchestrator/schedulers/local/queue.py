"""What can happen to a job in the queue, each as one transaction on the tables of
:mod:`.schema`.

Starts no process and sends no signal; whoever calls does. Every change of an attempt that
somebody else might change too is a compare-and-set on its phase and tag.
``tests/orchestrator/test_local_queue.py``.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from resiliency.crashpoint import point
from resiliency.errors import SchedulerError, SubmissionUncertain

from .process import Identity
from .schema import connect, transaction

#: What Slurm's accounting calls the earlier row of a job that was put back into the queue.
REQUEUED = "REQUEUED"
MAX_LAUNCHES = 5
_ENDED_STATE = {"cancel": "CANCELLED", "preempt": "PREEMPTED", "requeue": REQUEUED}

# A job with a parent that has not ended is not eligible. Parents unknown at submission were never
# recorded: Slurm, too, takes an unknown job for one that has ended.
_BLOCKED = """EXISTS (SELECT 1 FROM after JOIN job AS p ON p.id = after.parent
              WHERE after.job = job.id AND p.phase != 'ended')"""


def new_tag() -> str:
    return secrets.token_hex(16)


def setting(db: sqlite3.Connection, name: str) -> float | None:
    row = db.execute("SELECT value FROM setting WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def remember(path: str, values: dict[str, float | None]) -> None:
    """Store settings that were given explicitly, for shepherds and later commands."""
    given = {name: value for name, value in values.items() if value is not None}
    with connect(path) as db:
        if all(setting(db, name) == value for name, value in given.items()):
            return
    with transaction(path) as db:
        for name, value in given.items():
            db.execute("INSERT OR REPLACE INTO setting VALUES (?, ?)", (name, value))


def insert(path: str, columns: dict[str, Any], after: Collection[int], now: float) -> int:
    """Queue a job; parents the queue does not know are left out."""
    names = ", ".join(columns)
    marks = ", ".join("?" for _ in columns)
    committing = False
    try:
        with transaction(path) as db:
            point("local.submit.begun")
            job = db.execute(
                f"INSERT INTO job ({names}, phase, submitted_at) VALUES ({marks}, 'pending', ?)",
                (*columns.values(), now),
            ).lastrowid
            assert job is not None
            _new_attempt(db, job, 0, now)
            db.executemany(
                "INSERT INTO after SELECT ?, id FROM job WHERE id = ?",
                [(job, parent) for parent in sorted(set(after)) if parent != job],
            )
            point("local.submit.inserted")
            committing = True
    except SchedulerError as error:
        if not committing:
            raise
        raise SubmissionUncertain(error.message, hint=error.hint) from error
    point("local.submit.committed")
    return job


def _new_attempt(db: sqlite3.Connection, job: int, restart: int, now: float) -> None:
    db.execute(
        "INSERT INTO attempt (job, restart_count, state, submitted_at) VALUES (?, ?, 'PENDING', ?)",
        (job, restart, now),
    )


def close(
    db: sqlite3.Connection,
    job: int,
    restart: int,
    tag: str | None,
    *,
    state: str,
    now: float,
    reason: str = "",
    exit_code: int | None = 0,
    signal: int | None = 0,
    cancelled_by: str | None = None,
    requeue: bool = False,
    hold: bool = False,
) -> bool:
    """End an attempt if it is still the one with ``tag``; with ``requeue`` a new one waits at
    once."""
    changed = db.execute(
        """UPDATE attempt SET state = ?, reason = ?, exit_code = ?, signal = ?, cancelled_by = ?,
           ended_at = ?, tag = NULL, intent = NULL
           WHERE job = ? AND restart_count = ? AND tag IS ? AND ended_at IS NULL""",
        (state, reason, exit_code, signal, cancelled_by, now, job, restart, tag),
    ).rowcount
    if not changed:
        return False
    if requeue:
        _new_attempt(db, job, restart + 1, now)
        db.execute(
            "UPDATE job SET phase = 'pending', restart_count = ?, held = ? WHERE id = ?",
            (restart + 1, hold, job),
        )
    else:
        db.execute("UPDATE job SET phase = 'ended' WHERE id = ?", (job,))
    return True


def finish(
    path: str,
    job: int,
    restart: int,
    tag: str,
    *,
    exit_code: int,
    signal: int,
    timed_out: bool,
    obeyed: str | None,
    reason: str,
    now: float,
) -> bool:
    """A shepherd's last word. ``obeyed``: the intent it acted on before the job ended, if any.

    A job that ended by itself before a request reached it has ended by itself, as with Slurm. Jobs
    ended from outside report 0:0 like Slurm's; False: the attempt is no longer this shepherd's.
    """
    with transaction(path) as db:
        row = db.execute("SELECT * FROM job WHERE id = ?", (job,)).fetchone()
        attempt = current(db, job)
        if obeyed is not None:
            again = obeyed == "requeue" or (obeyed == "preempt" and bool(row["requeue"]))
            by = attempt["intent_by"] if obeyed == "cancel" else None
            done = close(
                db, job, restart, tag, state=_ENDED_STATE[obeyed], reason=reason, now=now,
                cancelled_by=by, requeue=again,
            )  # fmt: skip
        elif timed_out:
            done = close(db, job, restart, tag, state="TIMEOUT", reason="TimeLimit", now=now)
        else:
            good = exit_code == 0 and signal == 0
            why = "" if good else f"RaisedSignal:{signal}" if signal else "NonZeroExitCode"
            done = close(
                db, job, restart, tag, state="COMPLETED" if good else "FAILED", now=now,
                reason=reason or why, exit_code=exit_code, signal=signal,
            )  # fmt: skip
        point("local.finish.recorded")
    return done


def current(db: sqlite3.Connection, job: int) -> sqlite3.Row:
    """The latest attempt of a job. Raises SchedulerError if there is no such job."""
    row = db.execute(
        """SELECT attempt.*, job.phase, job.held, job.requeue, job.excluded
           FROM job JOIN attempt ON attempt.job = job.id
           AND attempt.restart_count = job.restart_count WHERE job.id = ?""",
        (job,),
    ).fetchone()
    if row is None:
        raise SchedulerError(f"the local queue has no job {job}", hint="list jobs with `status`")
    found: sqlite3.Row = row
    return found


def in_phase(db: sqlite3.Connection, *phases: str) -> list[sqlite3.Row]:
    """The latest attempts of jobs in these phases, with their jobs' columns."""
    marks = ", ".join("?" for _ in phases)
    return db.execute(
        f"""SELECT job.*, attempt.* FROM job JOIN attempt ON attempt.job = job.id
            AND attempt.restart_count = job.restart_count WHERE job.phase IN ({marks})
            ORDER BY job.id""",
        phases,
    ).fetchall()


def eligible(db: sqlite3.Connection) -> Iterator[sqlite3.Row]:
    """Jobs that only need room, oldest first."""
    yield from db.execute(
        f"""SELECT * FROM job WHERE phase = 'pending' AND NOT held AND NOT {_BLOCKED}
            ORDER BY id"""
    )


def shepherd_of(path: str, tag: str) -> Identity | None:
    """The shepherd of the running attempt with this tag."""
    with connect(path) as db:
        row = db.execute(
            """SELECT shepherd_pid, shepherd_start FROM job JOIN attempt ON attempt.job = job.id
               AND attempt.restart_count = job.restart_count WHERE phase = 'running' AND tag = ?""",
            (tag,),
        ).fetchone()
    return None if row is None else Identity(row[0], row[1])


def blocked(db: sqlite3.Connection) -> set[int]:
    """Pending jobs that wait for another job."""
    rows = db.execute(f"SELECT id FROM job WHERE phase = 'pending' AND {_BLOCKED}")
    return {row[0] for row in rows}


def claim(
    db: sqlite3.Connection,
    job: int,
    *,
    host: str,
    gpu_ids: str,
    nodes: str,
    spawner: Identity,
    now: float,
) -> tuple[int, str]:
    """Within a pass's transaction: this pending job is about to be started; its restart count
    and tag."""
    tag = new_tag()
    row = db.execute("SELECT restart_count FROM job WHERE id = ?", (job,)).fetchone()
    db.execute("UPDATE job SET phase = 'starting' WHERE id = ?", (job,))
    db.execute(
        """UPDATE attempt SET state = 'CONFIGURING', tag = ?, host = ?, gpu_ids = ?, nodes = ?,
           claimed_at = ?, launches = launches + 1, spawner_pid = ?, spawner_start = ?
           WHERE job = ? AND restart_count = ?""",
        (tag, host, gpu_ids, nodes, now, *spawner, job, row[0]),
    )
    return int(row[0]), tag


def take(
    path: str, job: int, restart: int, tag: str, shepherd: Identity, boot: str, now: float
) -> dict[str, Any] | None:
    """A new shepherd makes the attempt its own; None if it came too late. The job runs at most
    once."""
    with transaction(path) as db:
        changed = db.execute(
            """UPDATE attempt SET state = 'RUNNING', started_at = ?, alive_at = ?, boot_id = ?,
               shepherd_pid = ?, shepherd_start = ? WHERE job = ? AND restart_count = ? AND tag = ?
               AND state = 'CONFIGURING'""",
            (now, now, boot, *shepherd, job, restart, tag),
        ).rowcount
        if changed != 1:
            return None
        db.execute("UPDATE job SET phase = 'running' WHERE id = ?", (job,))
        row = db.execute(
            """SELECT attempt.*, job.* FROM job JOIN attempt ON attempt.job = job.id
               AND attempt.restart_count = job.restart_count WHERE job.id = ?""",
            (job,),
        ).fetchone()
        found = dict(row)
        found["kill_wait_s"] = setting(db, "kill_wait_s")
    return found


def note(path: str, job: int, restart: int, tag: str, **columns: Any) -> bool:
    """Write columns of a running attempt; False if it is no longer the caller's."""
    sets = ", ".join(f"{name} = ?" for name in columns)
    with transaction(path) as db:
        changed = db.execute(
            f"UPDATE attempt SET {sets} WHERE job = ? AND restart_count = ? AND tag = ?",
            (*columns.values(), job, restart, tag),
        ).rowcount
    return changed == 1


def intent(path: str, job: int, restart: int, tag: str) -> tuple[bool, str | None, float | None]:
    """Whether the attempt is still the caller's, what was asked of it, and with how much grace."""
    with connect(path) as db:
        row = db.execute(
            "SELECT intent, grace_s FROM attempt WHERE job = ? AND restart_count = ? AND tag = ?",
            (job, restart, tag),
        ).fetchone()
    return (False, None, None) if row is None else (True, row[0], row[1])


def ask(
    path: str, jobs: Sequence[int], what: str, *, now: float, grace_s: float | None = None
) -> list[Identity]:
    """Cancel, preempt or requeue. Not yet running: done here. Running: the shepherds to wake.

    Unknown and ended jobs are passed over. A cancel replaces an earlier request, never the reverse.
    """
    wake = []
    by = str(os.getuid())
    with transaction(path) as db:
        for job in jobs:
            row = db.execute("SELECT phase FROM job WHERE id = ?", (job,)).fetchone()
            if row is None or row[0] == "ended":
                continue
            attempt = current(db, job)
            if row[0] == "running":
                if what == "cancel" or attempt["intent"] is None:
                    db.execute(
                        """UPDATE attempt SET intent = ?, intent_by = ?, grace_s = ?
                           WHERE job = ? AND restart_count = ?""",
                        (what, by, grace_s, job, attempt["restart_count"]),
                    )
                wake.append(Identity(attempt["shepherd_pid"], attempt["shepherd_start"]))
            elif what == "cancel":
                close(
                    db, job, attempt["restart_count"], attempt["tag"], state="CANCELLED", now=now,
                    cancelled_by=by,
                )  # fmt: skip
        point("local.ask.written")
    point("local.ask.committed")
    return wake


def restart_ended(path: str, job: int, now: float) -> None:
    """Put an ended job back into the queue under the same id; its rows stay."""
    with transaction(path) as db:
        attempt = current(db, job)
        if attempt["phase"] == "ended":
            restart = attempt["restart_count"] + 1
            _new_attempt(db, job, restart, now)
            db.execute("UPDATE job SET phase = 'pending', restart_count = ? WHERE id = ?", (restart, job))


def set_pending(path: str, job: int, doing: str, **columns: Any) -> None:
    """Change columns of a pending job. Raises SchedulerError if it is not pending."""
    sets = ", ".join(f"{name} = ?" for name in columns)
    with transaction(path) as db:
        attempt = current(db, job)
        if attempt["phase"] != "pending":
            raise SchedulerError(
                f"cannot {doing} job {job}: it is {attempt['state']}, not PENDING",
                hint="only a pending job can be changed",
            )
        db.execute(f"UPDATE job SET {sets} WHERE id = ?", (*columns.values(), job))


def unchain(path: str, job: int) -> None:
    """Forget what a pending job waits for. Raises SchedulerError if it is not pending."""
    with transaction(path) as db:
        attempt = current(db, job)
        if attempt["phase"] != "pending":
            raise SchedulerError(
                f"cannot unchain job {job}: it is {attempt['state']}, not PENDING",
                hint="only a pending job can be changed",
            )
        db.execute("DELETE FROM after WHERE job = ?", (job,))


def rows_of(db: sqlite3.Connection, jobs: Collection[int]) -> list[sqlite3.Row]:
    """Every attempt of these jobs, oldest first per job."""
    return db.execute(
        """SELECT attempt.job, attempt.restart_count, state, reason, exit_code, signal, attempt.nodes,
           attempt.submitted_at, started_at, ended_at, cancelled_by, intent, intent_by,
           token, env_from, held,
           phase = 'pending' AND attempt.restart_count = job.restart_count AS pending
           FROM attempt JOIN job ON job.id = attempt.job
           WHERE attempt.job IN (SELECT value FROM json_each(?))
           ORDER BY attempt.job, attempt.restart_count""",
        (json.dumps(sorted(jobs)),),
    ).fetchall()


def by_token(db: sqlite3.Connection, tokens: Collection[str], since: float | None) -> dict[str, list[int]]:
    """Ids of the jobs that carry each token, in the order they were submitted."""
    found: dict[str, list[int]] = {}
    for token, job in db.execute(
        """SELECT token, id FROM job WHERE token IN (SELECT value FROM json_each(?))
           AND submitted_at >= ? ORDER BY id""",
        (json.dumps(sorted(tokens)), since or 0.0),
    ):
        found.setdefault(token, []).append(job)
    return found
