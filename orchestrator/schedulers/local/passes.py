"""One scheduling pass: repair what died, then start what may start. Every command does one, and
every shepherd at its end and now and then, so that no daemon is needed.

A pass may be killed anywhere: a claim without a shepherd is found and renewed by the next one.
Nothing here blocks on a job. ``tests/orchestrator/test_local_crash.py``.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import time
from collections.abc import Iterator, Mapping
from typing import Any

from resiliency.crashpoint import point

from . import process, queue
from .process import Identity
from .schema import connect, transaction
from .spawn import ENV_TAG, MARK, missing, start_shepherd

#: A shepherd that has not taken its attempt by then is given up (it may wait for a busy machine).
START_GRACE_S = 30.0
#: Shepherds write ``alive_at`` this often; one on another host is believed dead after ten times
#: as long without a word.
ALIVE_EVERY_S = 30.0
KILL_PATIENCE_S = 5.0
#: Tells a shepherd to look into the queue.
WAKE = signal.SIGUSR1


def host() -> str:
    return socket.gethostname()


def gpu_ids() -> list[str]:
    """Indices of this machine's NVIDIA devices."""
    return sorted(
        (name[6:] for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdecimal()),
        key=int,
    )


def node_names(count: int, excluded: list[str]) -> str:
    """Emulated nodes: the first ``count`` of local-0, local-1 … that are not excluded."""
    names: list[str] = []
    number = 0
    while len(names) < count:
        name = f"local-{number}"
        if name not in excluded:
            names.append(name)
        number += 1
    return ",".join(names)


def run_pass(path: str, environ: Mapping[str, str]) -> list[str]:
    """Repair and start; what could not be done, one line each.

    A command run within a job leaves it to the job's shepherd: its own environment is the
    job's, not that of whoever submitted the others.
    """
    if (tag := environ.get(ENV_TAG)) and (keeper := queue.shepherd_of(path, tag)) is not None:
        process.send(keeper, WAKE)
        return []
    problems = _repair(path, environ)
    for job, restart, tag in _claim(path, environ):
        point("local.pass.claimed")
        _start(path, job, restart, tag, environ, problems)
        point("local.pass.spawned")
    return problems


def _start(
    path: str, job: int, restart: int, tag: str, environ: Mapping[str, str], problems: list[str]
) -> None:
    try:
        start_shepherd(path, job, restart, tag, environ)
    except OSError as error:  # no memory, no processes left: the claim stays and is renewed later
        problems.append(f"job {job}: its shepherd could not be started: {error}")


def _claim(path: str, environ: Mapping[str, str]) -> list[tuple[int, int, str]]:
    def startable(db: sqlite3.Connection) -> Iterator[sqlite3.Row]:
        # What env_from names and this process lacks, another may have: the job waits for it.
        return (row for row in queue.eligible(db) if not missing(json.loads(row["env_from"]), environ))

    with connect(path) as db:  # the usual case takes no write lock
        if next(startable(db), None) is None or _room(db)[0] <= 0:
            return []
    claimed: list[tuple[int, int, str]] = []
    me = process.identity(os.getpid())
    with transaction(path) as db:
        jobs, cpus, total, gpus = _room(db)
        devices = gpu_ids()
        for row in list(startable(db)):
            if len(claimed) >= jobs:
                break
            need, want = min(row["cpus"], total), min(row["gpus"], len(devices))
            # First come, first served: a wide job is not starved by narrow ones behind it.
            if need > cpus or want > len(gpus):
                break
            chosen, gpus = gpus[:want], gpus[want:]
            cpus -= need
            restart, tag = queue.claim(
                db, row["id"], host=host(), gpu_ids=",".join(chosen), spawner=me, now=time.time(),
                nodes=node_names(row["nodes"], json.loads(row["excluded"])),
            )  # fmt: skip
            claimed.append((int(row["id"]), restart, tag))
    return claimed


def _room(db: sqlite3.Connection) -> tuple[int, int, int, list[str]]:
    """Jobs that may still start, free CPUs, all CPUs, free GPUs of this machine."""
    total = int(queue.setting(db, "cpus") or os.cpu_count() or 1)
    limit = queue.setting(db, "max_running")
    busy = [row for row in queue.in_phase(db, "starting", "running") if row["host"] == host()]
    free = total - sum(min(row["cpus"], total) for row in busy)
    taken = {device for row in busy for device in row["gpu_ids"].split(",")}
    slots = free if limit is None else int(limit) - len(busy)
    return min(slots, free), free, total, [d for d in gpu_ids() if d not in taken]


def _repair(path: str, environ: Mapping[str, str]) -> list[str]:
    problems: list[str] = []
    with connect(path) as db:
        rows = [dict(row) for row in queue.in_phase(db, "starting", "running")]
    here, boot = host(), process.boot_id()
    for row in rows:
        if row["phase"] == "starting":
            if _launch_lost(row, here):
                _launch_again(path, row, environ, problems)
        elif row["host"] != here:
            silent = time.time() - (row["alive_at"] or 0.0)
            if silent > 10 * ALIVE_EVERY_S:
                _node_failed(path, row, f"no sign of host {row['host']} for {silent:.0f} s")
        elif row["boot_id"] != boot:
            _node_failed(path, row, "NodeDown: the machine was rebooted")
        elif not process.alive(Identity(row["shepherd_pid"], row["shepherd_start"])):
            left = kill_remains(row)
            if left:  # it still runs: nothing may be started in its place
                problems.append(f"job {row['job']}: processes {left} could not be killed")
            else:
                point("local.repair.killed")
                _node_failed(path, row, "NodeDown: its shepherd process was killed")
        elif row["intent"]:  # the wake-up may have been lost with the command that sent it
            process.send(Identity(row["shepherd_pid"], row["shepherd_start"]), WAKE)
    return problems


def _launch_lost(row: Mapping[str, Any], here: str) -> bool:
    age = time.time() - (row["claimed_at"] or 0.0)
    if age > START_GRACE_S * row["launches"] or age < -START_GRACE_S:
        return True
    if row["host"] != here or process.alive(Identity(row["spawner_pid"], row["spawner_start"])):
        return False
    tag = row["tag"].encode()
    return not any(process.file_contains(pid, "cmdline", tag) for pid in process.table())


def _launch_again(path: str, row: Mapping[str, Any], environ: Mapping[str, str], problems: list[str]) -> None:
    """Take a claimed attempt over: whoever still comes with the old tag is turned away."""
    tag, me = queue.new_tag(), process.identity(os.getpid())
    job, restart = int(row["job"]), int(row["restart_count"])
    with transaction(path) as db:
        if row["launches"] >= queue.MAX_LAUNCHES:
            queue.close(
                db, job, restart, row["tag"], state="FAILED", signal=53, now=time.time(),
                reason=f"its shepherd did not start in {row['launches']} tries",
            )  # fmt: skip
            return
        changed = db.execute(
            """UPDATE attempt SET tag = ?, host = ?, claimed_at = ?, launches = launches + 1,
               spawner_pid = ?, spawner_start = ? WHERE job = ? AND restart_count = ? AND tag = ?
               AND state = 'CONFIGURING'""",
            (tag, host(), time.time(), *me, job, restart, row["tag"]),
        ).rowcount
    point("local.repair.claimed")
    if changed:
        _start(path, job, restart, tag, environ, problems)


def _node_failed(path: str, row: Mapping[str, Any], reason: str) -> None:
    with transaction(path) as db:
        asked = row["intent"] == "cancel"  # a person wanted it gone: it does not come back
        queue.close(
            db, row["job"], row["restart_count"], row["tag"], now=time.time(),
            state="CANCELLED" if asked else "NODE_FAIL", reason=reason,
            exit_code=None, signal=None, cancelled_by=row["intent_by"] if asked else None,
            requeue=bool(row["requeue"]) and not asked,
        )  # fmt: skip
    point("local.repair.recorded")


def kill_remains(row: Mapping[str, Any]) -> list[int]:
    """Kill what is left of an attempt whose shepherd is dead; the pids that would not die."""
    marker = f"{ENV_TAG}={row['tag']}".encode()
    leader = Identity(row["leader_pid"] or 0, row["leader_start"] or -1)

    def members() -> list[Identity]:
        processes = process.table()

        def shepherd(pid: int) -> bool:
            return process.file_contains(pid, "cmdline", MARK)

        first = processes.get(leader.pid)
        # A session whose leader is another process now is another session with a reused number.
        ours = first is None or first.identity == leader
        found = {
            pid
            for pid, one in processes.items()
            if not one.dead
            and not shepherd(pid)
            and (
                process.file_contains(pid, "environ", marker)
                or (ours and leader.pid > 0 and one.session == leader.pid)
            )
        }
        found |= process.below(found, processes, stop=shepherd)
        return [processes[pid].identity for pid in found - {os.getpid()}]

    return process.kill_all(members, patience_s=KILL_PATIENCE_S)
