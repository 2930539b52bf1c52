"""The tables of ``queue.db`` and how a connection to it is opened.

A connection lives for one operation: nothing is inherited over a fork and no lock is held while a
person thinks. Rollback journal, never WAL: the home directory may be on a network file system.
``tests/orchestrator/test_local_queue.py``.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator

from resiliency.durable import storage_error
from resiliency.errors import SchedulerError, SchedulerUnreachable

VERSION = 1
BUSY_S = 30.0

# Paths are BLOBs: a file name need not be UTF-8. ``job`` holds what was asked for and the phase
# of the
# latest attempt, ``attempt`` one row per run of it. ``attempt.tag`` changes whenever somebody
# takes the
# attempt over; every later write names the tag it believes in, so it can lose but not collide.
_TABLES = """
CREATE TABLE job (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    token TEXT NOT NULL,
    script BLOB NOT NULL,
    chdir BLOB NOT NULL,
    output BLOB NOT NULL,
    nodes INTEGER NOT NULL,
    cpus INTEGER NOT NULL,
    gpus INTEGER NOT NULL,
    time_limit_s REAL,
    signal_lead_s REAL,
    requeue INTEGER NOT NULL,
    env_from TEXT NOT NULL,          -- JSON list of names; values are never stored
    env_pass TEXT NOT NULL,          -- the same, but may be unset
    excluded TEXT NOT NULL,          -- JSON list of node names
    held INTEGER NOT NULL,
    phase TEXT NOT NULL CHECK (phase IN ('pending', 'starting', 'running', 'ended')),
    restart_count INTEGER NOT NULL DEFAULT 0,
    submitted_at REAL NOT NULL
);
CREATE INDEX job_live ON job (phase) WHERE phase != 'ended';
CREATE INDEX job_token ON job (token);
CREATE TABLE after (
    job INTEGER NOT NULL REFERENCES job (id),
    parent INTEGER NOT NULL REFERENCES job (id),
    PRIMARY KEY (job, parent)
) WITHOUT ROWID;
CREATE TABLE attempt (
    job INTEGER NOT NULL REFERENCES job (id),
    restart_count INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    exit_code INTEGER,
    signal INTEGER,
    nodes TEXT NOT NULL DEFAULT '',
    gpu_ids TEXT NOT NULL DEFAULT '',
    submitted_at REAL NOT NULL,
    started_at REAL,
    ended_at REAL,
    cancelled_by TEXT,
    intent TEXT,                     -- cancel, preempt, requeue: asked for, not yet done
    intent_by TEXT,
    grace_s REAL,
    host TEXT,
    boot_id TEXT,
    tag TEXT,
    claimed_at REAL,                 -- when a pass decided to start it
    launches INTEGER NOT NULL DEFAULT 0,
    spawner_pid INTEGER,
    spawner_start INTEGER,
    shepherd_pid INTEGER,
    shepherd_start INTEGER,
    leader_pid INTEGER,
    leader_start INTEGER,
    alive_at REAL,
    PRIMARY KEY (job, restart_count)
) WITHOUT ROWID;
CREATE TABLE setting (name TEXT PRIMARY KEY, value REAL) WITHOUT ROWID;
"""


def _create(path: str) -> None:
    directory = os.path.dirname(path)
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        # Made before SQLite opens it, so that it is the user's alone whatever the umask.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise storage_error(error, path, "create") from error


def _prepare(db: sqlite3.Connection, path: str) -> None:
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version == 0:
        db.execute("BEGIN IMMEDIATE")
        try:
            if db.execute("PRAGMA user_version").fetchone()[0] == 0:
                for statement in _TABLES.split(";\n"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {VERSION}")
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise
    elif version > VERSION:
        raise SchedulerError(
            f"{path} was written by a newer Trainmaster (queue version {version}, this one knows {VERSION})",
            hint="use that version, or another --home",
        )


@contextlib.contextmanager
def connect(path: str) -> Iterator[sqlite3.Connection]:
    """A connection in autocommit mode, closed on exit; the file is created if missing.

    Raises SchedulerUnreachable when the file is locked for too long, unreadable or not a queue.
    """
    if not os.path.exists(path):
        _create(path)
    try:
        db = sqlite3.connect(os.fsencode(path), timeout=BUSY_S, isolation_level=None)
        try:
            db.row_factory = sqlite3.Row
            _prepare(db, path)
            yield db
        finally:
            db.close()
    except sqlite3.Error as error:
        raise SchedulerUnreachable(
            f"the local queue {path} cannot be used: {error}",
            hint="check free space and permissions of that directory, then run the command again",
        ) from error


@contextlib.contextmanager
def transaction(path: str) -> Iterator[sqlite3.Connection]:
    """One writing transaction: all of it or nothing, serialised with every other writer."""
    with connect(path) as db:
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
