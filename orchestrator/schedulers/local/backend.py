"""The local scheduler as a :class:`orchestrator.schedulers.base.Scheduler`.

Turns requests into transactions of :mod:`.queue` and passes of :mod:`.passes`; runs nothing
itself and returns at once. Beyond the Protocol it has what a rehearsal needs: ``hold``,
``requeue``, ``preempt``, ``fail_node``. ``tests/orchestrator/test_schedulers.py``.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from resiliency import durable
from resiliency.contract import COMMENT_PREFIX
from resiliency.crashpoint import point
from resiliency.edges import Clock, SystemClock
from resiliency.errors import SchedulerError, SubmissionRejected, TrainmasterError
from resiliency.jobstate import JobRecord, Observation

from .. import render as templates
from ..base import JobSpec
from . import passes, process, queue, spawn
from .process import Identity
from .schema import connect

TEMPLATE: Final = "local.sh.j2"


class LocalScheduler:
    """A queue under ``home``. None for a limit: as stored by an earlier command, else no limit.

    ``max_running``: jobs at once. ``cpus``: CPUs to share out (None: all of the machine).
    ``kill_wait_s``: seconds from SIGTERM to SIGKILL, Slurm's KillWait (None: 5). ``pass_env``:
    names of variables every job gets from the submitting environment when set.
    ``template_dir``: as for :func:`orchestrator.schedulers.render.render`.
    """

    kind = "local"

    def __init__(
        self,
        home: Path,
        *,
        cluster: str = "local",
        max_running: int | None = None,
        cpus: int | None = None,
        kill_wait_s: float | None = None,
        clock: Clock | None = None,
        environ: Mapping[str, str] | None = None,
        pass_env: Sequence[str] = (),
        template_dir: Path | None = None,
    ) -> None:
        self.cluster = cluster
        self.path = os.path.abspath(os.path.join(home, "local", "queue.db"))
        self._clock = clock or SystemClock()
        self._environ = os.environ if environ is None else environ
        self._template_dir = template_dir
        self._pass_env = tuple(pass_env)
        self._settings = {
            "max_running": None if max_running is None else float(max_running),
            "cpus": None if cpus is None else float(cpus),
            "kill_wait_s": kill_wait_s,
        }

    # -- the Protocol --------------------------------------------------------------------------

    def render(self, job: JobSpec) -> str:
        """The script as text. Pure. Raises SpecError for a value that cannot be written safely."""
        return templates.render(job, template=TEMPLATE, template_dir=self._template_dir)

    def submit(self, job: JobSpec, script: Path, *, after: Sequence[str] = (), held: bool = False) -> str:
        """Queue the job and start what may start; its id. Returns without waiting for any job.

        A script that is not there yet is rendered to its place.
        """
        if not script.exists():
            durable.write_plain(script, self.render(job))
        columns = self._columns(job, script, held)
        parents = [self._number(parent) for parent in after]
        point("local.submit.checked")
        self._remember()
        number = queue.insert(self.path, columns, [p for p in parents if p is not None], self._clock.wall())
        self._pass()
        return str(number)

    def observe(
        self, job_ids: Collection[str], *, tokens: Collection[str] = (), since: float | None = None
    ) -> Observation:
        """One look at all of them, after a pass. Never raises for a queue that cannot be read."""
        problems = self._pass()
        wanted = {job_id: _number_or_none(job_id) for job_id in job_ids}
        try:
            with connect(self.path) as db:
                db.execute("BEGIN")  # one moment for all that is read
                named = queue.by_token(db, [t for t in tokens if _storable(t)], since)
                carriers = {number for numbers in named.values() for number in numbers}
                rows = queue.rows_of(db, carriers.union(n for n in wanted.values() if n is not None))
                waiting = queue.blocked(db) if any(r["pending"] for r in rows) else set()
                db.execute("COMMIT")
        except (TrainmasterError, sqlite3.Error) as error:
            return Observation(problems=(*problems, str(error).splitlines()[0]))
        known = {row["job"] for row in rows}
        return Observation(
            records=[_record(row, waiting, self._environ) for row in rows],
            queue_answered=True,
            accounting_answered=True,
            unlisted=frozenset(job_id for job_id, number in wanted.items() if number not in known),
            tokens={token: tuple(map(str, numbers)) for token, numbers in named.items()},
            problems=tuple(dict.fromkeys(problems)),
        )

    def cancel(self, job_ids: Collection[str]) -> None:
        """Pending: ended at once. Running: SIGTERM to the batch process, KillWait, SIGKILL to
        all."""
        self._ask([n for n in map(_number_or_none, job_ids) if n is not None], "cancel")

    def release(self, job_id: str) -> None:
        queue.set_pending(self.path, self._known(job_id), "release", held=0)
        self._pass()

    def exclude(self, job_id: str, nodes: Sequence[str]) -> None:
        """Recorded; emulated nodes of these names are not handed out to the job."""
        names = json.dumps(sorted(set(nodes)))
        queue.set_pending(self.path, self._known(job_id), "exclude nodes from", excluded=names)

    def unchain(self, job_id: str) -> None:
        """The job may start as soon as there is room."""
        queue.unchain(self.path, self._known(job_id))
        self._pass()

    def facts(self) -> Mapping[str, Any]:
        from orchestrator import __version__

        with connect(self.path) as db:
            cpus = int(queue.setting(db, "cpus") or os.cpu_count() or 1)
            limit = queue.setting(db, "max_running")
            kill_wait = queue.setting(db, "kill_wait_s")
        partition = {
            "default": True,
            "nodes": 1,
            "max_time_s": None,
            "max_nodes": None,
            "cpus_per_node": cpus,
            "gpus_per_node": len(passes.gpu_ids()),
            "mem_mb": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20,
            "up": True,
        }
        return {
            "version": f"trainmaster-local {__version__}",
            "reachable": True,
            "accounting": True,
            "partitions": {"local": partition},
            "accounts": [],
            "qos": [],
            "limits": {
                "max_submit_jobs": None,
                "max_jobs": None if limit is None else int(limit),
                "max_array_size": None,
            },
            "preemption": "none (rehearse it with preempt)",
            "requeue": True,
            "kill_wait_s": int(5 if kill_wait is None else kill_wait),
            "problems": [],
        }

    # -- beyond the Protocol: what an operator or a rehearsal does -----------------------------

    def hold(self, job_id: str) -> None:
        """Keep a pending job from starting. Raises SchedulerError if it is not pending."""
        queue.set_pending(self.path, self._known(job_id), "hold", held=1)

    def requeue(self, job_id: str) -> None:
        """Back into the queue under the same id, restart count one up; running or ended."""
        number = self._known(job_id)
        with connect(self.path) as db:
            attempt = queue.current(db, number)
        if not attempt["requeue"]:
            raise SchedulerError(
                f"cannot requeue job {job_id}: it was submitted not to be requeued",
                hint="submit a new link, or ask for requeue in the job",
            )
        if attempt["phase"] == "ended":
            queue.restart_ended(self.path, number, self._clock.wall())
            self._pass()
        else:
            self._ask([number], "requeue")

    def preempt(self, job_id: str, *, grace_s: float | None = None) -> None:
        """As a job of higher priority would: SIGTERM, grace (None: KillWait), SIGKILL; then
        requeued if allowed."""
        self._ask([self._known(job_id)], "preempt", grace_s=grace_s)

    def fail_node(self, job_id: str) -> None:
        """As if the node lost power: shepherd and processes are killed at once, the job is
        NODE_FAIL."""
        number = self._known(job_id)
        with connect(self.path) as db:
            row = dict(queue.current(db, number))
        if row["phase"] != "running":
            raise SchedulerError(f"job {job_id} is {row['state']}: it is on no node")
        process.send(Identity(row["shepherd_pid"], row["shepherd_start"]), passes.signal.SIGKILL)
        passes.kill_remains(row)
        self._pass()

    # -- within --------------------------------------------------------------------------------

    def _columns(self, job: JobSpec, path: Path, held: bool) -> dict[str, Any]:
        if missing := spawn.missing(job.env_from, self._environ):
            raise SubmissionRejected(
                f"{job.token}: env_from names {', '.join(missing)}, not set where you submit from",
                hint=f"export {missing[0]} and try again, or take it out of env_from",
            )
        for folder in (job.chdir, job.output.parent):
            if not folder.is_dir():
                raise SubmissionRejected(
                    f"{job.token}: the directory {folder} does not exist",
                    hint="the run directory was moved or removed; nothing was queued",
                )
        if not os.access(path, os.R_OK) or not os.path.isfile(path):
            raise SubmissionRejected(
                f"{job.token}: cannot read the script {path}",
                hint="the run directory was moved or removed; nothing was queued",
            )
        if not _storable(job.token):
            raise SubmissionRejected(f"the token {job.token!r} is not valid text")
        if job.nodes < 1:
            raise SubmissionRejected(f"job {job.token!r} asks for {job.nodes} nodes")
        return {
            "token": job.token,
            "script": os.fsencode(os.path.abspath(path)),
            "chdir": os.fsencode(os.path.abspath(job.chdir)),
            "output": os.fsencode(os.path.abspath(job.output)),
            "nodes": job.nodes,
            "cpus": job.nodes * max(1, job.cpus_per_node or 1),
            "gpus": job.nodes * job.gpus_per_node,
            "time_limit_s": job.time_limit_s,
            "signal_lead_s": job.signal_lead_s,
            "requeue": job.requeue,
            "env_from": json.dumps(job.env_from),
            "env_pass": json.dumps(self._pass_env),
            "excluded": json.dumps(job.exclude),
            "held": held,
        }

    def _number(self, job_id: str) -> int | None:
        number = _number_or_none(job_id)
        if number is None and not job_id.isdecimal():
            raise SubmissionRejected(f"{job_id!r} is not the id of a job", hint="ids are numbers")
        return number

    def _known(self, job_id: str) -> int:
        number = _number_or_none(job_id)
        if number is None:
            raise SchedulerError(f"the local queue has no job {job_id!r}")
        return number

    def _remember(self) -> None:
        if any(value is not None for value in self._settings.values()):
            queue.remember(self.path, self._settings)

    def _ask(self, numbers: Sequence[int], what: str, grace_s: float | None = None) -> None:
        self._remember()
        for who in queue.ask(self.path, numbers, what, now=self._clock.wall(), grace_s=grace_s):
            process.send(who, passes.WAKE)
        self._pass()

    def _pass(self) -> list[str]:
        """What a pass could not do is said, not raised: the request itself was carried out."""
        try:
            return passes.run_pass(self.path, self._environ)
        except (TrainmasterError, OSError) as error:
            return [f"the local queue was not advanced: {str(error).splitlines()[0]}"]


def _number_or_none(job_id: str) -> int | None:
    if not (job_id.isascii() and job_id.isdecimal()):
        return None
    number = int(job_id)
    return number if number < 2**63 else None


def _storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _reason(row: sqlite3.Row, waiting: Collection[int], environ: Mapping[str, str]) -> str:
    if not row["pending"]:
        return str(row["reason"])
    if row["held"]:
        return "JobHeldUser"
    if row["job"] in waiting:
        return "Dependency"
    if row["env_from"] != "[]" and (absent := spawn.missing(json.loads(row["env_from"]), environ)):
        return f"EnvNotSet: {', '.join(absent)} (a command run where it is set starts the job)"
    return "Resources"


def _record(row: sqlite3.Row, waiting: Collection[int], environ: Mapping[str, str]) -> JobRecord:
    return JobRecord(
        job_id=str(row["job"]),
        restart_count=row["restart_count"],
        state=row["state"],
        name=row["token"],
        comment=COMMENT_PREFIX + row["token"],
        exit_code=row["exit_code"],
        signal=row["signal"],
        reason=_reason(row, waiting, environ),
        nodes=row["nodes"] if row["started_at"] is not None else "",
        submitted_at=row["submitted_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        # Known before it is over: the job itself asks why it is being ended.
        cancelled_by=row["cancelled_by"] or (row["intent_by"] if row["intent"] == "cancel" else None),
        held=bool(row["pending"] and row["held"]),
    )
