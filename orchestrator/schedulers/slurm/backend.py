"""The Slurm scheduler: what ``Scheduler`` promises, by the commands of this package.

Holds no state but whether slurmctld was up a moment ago. Decisions are in the pure modules around
it; this one only orders the calls. ``tests/orchestrator/test_slurm_backend.py`` counts them,
``tests/slurm/test_scheduler_slurm.py`` runs them.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from resiliency import durable
from resiliency.edges import Clock, Completed, Runner, SystemClock, SystemRunner
from resiliency.errors import (
    SchedulerUnreachable,
    SubmissionDeferred,
    SubmissionRejected,
    SubmissionUncertain,
)
from resiliency.jobstate import Observation

from .. import render as templates
from ..base import JobSpec
from . import facts, history, sacct, sbatch, scontrol, squeue
from .commands import NOT_FOUND, Commands, environment, said
from .messages import Meaning

#: A queue that answered this recently is taken to be up: one ping serves a batch of links.
_PING_GOOD_FOR_S: Final = 10.0
_PING_DEADLINE_S: Final = 5.0
#: Look-ups by name reach back this far before the run began, for clocks that differ.
_SINCE_SLACK_MIN: Final = 60
_DEFAULT_SINCE_MIN: Final = 7 * 24 * 60


class SlurmScheduler:
    """One Slurm cluster.

    ``name``: the cluster's name in attempt ids and the ledger. ``cluster``: sent as ``-M``; None:
    the cluster of SLURM_CONF. ``pass_env``: names of variables every job gets from the submitting
    environment when they are set. ``timeout_s``: deadline of one command (a dead controller makes
    them hang for MessageTimeout, 10 to 100 s), ``submit_timeout_s``: of an sbatch, which tries for
    120 s by itself while the queue is full (MaxJobCount). ``user``: whose jobs are looked at; None: the
    caller's.
    """

    kind = "slurm"

    def __init__(
        self,
        *,
        name: str,
        cluster: str | None = None,
        runner: Runner | None = None,
        clock: Clock | None = None,
        environ: Mapping[str, str] | None = None,
        template_dir: Path | None = None,
        pass_env: Sequence[str] = (),
        timeout_s: float = 60.0,
        submit_timeout_s: float = 150.0,
        user: str | None = None,
    ) -> None:
        self.cluster = name
        self._slurm_cluster = cluster
        self._clock = clock or SystemClock()
        self._environ = os.environ if environ is None else environ
        self._template_dir = template_dir
        self._pass_env = tuple(pass_env)
        self._submit_timeout_s = submit_timeout_s
        self._user = user
        self._commands = Commands(
            runner or SystemRunner(), self._environ, cluster=cluster, timeout_s=timeout_s
        )
        self._up_at: float | None = None

    def render(self, job: JobSpec) -> str:
        """The sbatch script. Raises SpecError for a value that cannot be written safely."""
        return templates.render(job, template_dir=self._template_dir)

    def submit(self, job: JobSpec, script: Path, *, after: Sequence[str] = (), held: bool = False) -> str:
        """See ``Scheduler.submit``. A script that is not there yet is rendered to its place."""
        env = self._job_environment(job)
        _check_folders(job)
        self._check_up()
        if not script.exists():
            durable.write_plain(script, self.render(job))
        answer = self._sbatch(script, env, after, held)
        if answer.meaning is Meaning.DEPENDENCY and after:
            # Newer Slurms refuse to wait for a job they have forgotten, as if it had not ended.
            # Dependencies only save time (the gate decides), so wait for those still known.
            known = {row.job_id for row in self._queue()[0].rows}
            kept = [job_id for job_id in after if job_id in known]
            if len(kept) < len(after):
                answer = self._sbatch(script, env, kept, held)
        return _outcome(answer, job.token)

    def observe(
        self, job_ids: Collection[str], *, tokens: Collection[str] = (), since: float | None = None
    ) -> Observation:
        """See ``Scheduler.observe``. One squeue, one sacct; one more sacct for tokens."""
        queue, queue_answered, problems = self._queue()
        rows: list[sacct.AccountingRow] = []
        accounting_answered = True
        asked = self._accounting_calls(job_ids, tokens, since)
        for argv in asked:
            done = self._commands.ask(argv)
            if not done.ok:
                accounting_answered = False
                problems.append(f"sacct: {said(done)} (what ended earlier is not known now)")
                break  # down: each further call would wait as long
            told = sacct.parse(done.stdout)
            rows += told.rows
            if not told.complete:
                accounting_answered = False
                problems.append("sacct: part of the answer could not be read")
        wanted_ids, wanted_tokens = set(job_ids), set(tokens)
        records = history.records(queue.rows, rows, queue_answered=queue_answered, since=since)
        carriers = history.tokens(wanted_tokens, records)
        wanted_ids.update(job_id for ids in carriers.values() for job_id in ids)
        shown = [record for record in records if record.job_id in wanted_ids]
        listed = {record.job_id for record in shown} | queue.damaged
        return Observation(
            records=shown,
            queue_answered=queue_answered,
            accounting_answered=accounting_answered,
            unlisted=frozenset(set(job_ids) - listed) if queue_answered else frozenset(),
            tokens=carriers,
            problems=tuple(problems),
        )

    def cancel(self, job_ids: Collection[str]) -> None:
        """See ``Scheduler.cancel``."""
        for argv in scontrol.cancel(job_ids):
            self._commands.do(argv, f"cancelling {len(argv) - 1} jobs")

    def release(self, job_id: str) -> None:
        """See ``Scheduler.release``."""
        self._commands.do(scontrol.release(job_id), f"releasing job {job_id}")

    def exclude(self, job_id: str, nodes: Sequence[str]) -> None:
        """See ``Scheduler.exclude``. Replaces the job's list; no nodes: clears it."""
        argv = scontrol.exclude(job_id, nodes)
        self._commands.do(argv, f"keeping job {job_id} off {','.join(nodes) or 'no node'}")

    def unchain(self, job_id: str) -> None:
        """See ``Scheduler.unchain``."""
        self._commands.do(scontrol.unchain(job_id), f"letting job {job_id} wait for no other")

    def facts(self) -> dict[str, Any]:
        """See ``Scheduler.facts``."""
        user = self._user or self._environ.get("USER") or getpass.getuser()
        return facts.gather(self._commands, user=user, cluster=self._slurm_cluster)

    def _job_environment(self, job: JobSpec) -> dict[str, str]:
        missing = [name for name in job.env_from if name not in self._environ]
        if missing:
            raise SubmissionRejected(
                f"{job.token}: env_from names {', '.join(missing)}, not set where you submit from",
                hint=f"export {missing[0]} and try again, or take it out of env_from",
            )
        extra = [*self._pass_env, *job.env_from]
        return environment(self._environ, extra=extra, cluster=self._slurm_cluster)

    def _check_up(self) -> None:
        """Refuse before anything is sent while slurmctld is down: that is no uncertain outcome."""
        now = self._clock.mono()
        if self._up_at is not None and now - self._up_at < _PING_GOOD_FOR_S:
            return
        done = self._commands.ask(scontrol.PING, timeout_s=_PING_DEADLINE_S)
        if done.returncode == NOT_FOUND:
            return  # no scontrol here: sbatch will say
        if done.ok and scontrol.is_up(done.stdout):
            self._up_at = now
            return
        raise SchedulerUnreachable(
            f"slurmctld of {self.cluster} does not answer ({said(done)}); nothing was sent",
            hint="running jobs go on; try again later (`tick` does)",
        )

    def _sbatch(
        self, script: Path, env: Mapping[str, str], after: Sequence[str], held: bool
    ) -> sbatch.Answer:
        argv = sbatch.arguments(script, after=after, held=held)
        answer = sbatch.read(self._commands.submit(argv, env, self._submit_timeout_s))
        if answer.job_id is None:
            self._up_at = None
        return answer

    def _queue(self) -> tuple[squeue.Queue, bool, list[str]]:
        """The queue, whether all of it was answered, and problems."""
        done: Completed = self._commands.ask(squeue.arguments(self._user))
        if not done.ok:
            return squeue.Queue(), False, [f"squeue: {said(done)}"]
        queue = squeue.parse(done.stdout)
        problems = []
        if not queue.complete:
            problems.append("squeue: part of the answer is missing")
        if queue.damaged:
            shown = ", ".join(sorted(queue.damaged)[:5])
            problems.append(f"squeue: records that could not be read: {shown}")
        return queue, queue.complete, problems

    def _accounting_calls(
        self, job_ids: Collection[str], tokens: Collection[str], since: float | None
    ) -> list[list[str]]:
        calls = sacct.by_id(job_ids) if job_ids else []
        if tokens:
            back = _DEFAULT_SINCE_MIN
            if since is not None:
                back = max(0, int((self._clock.wall() - since) / 60)) + _SINCE_SLACK_MIN
            calls += sacct.by_name(tokens, back, self._user)
        return calls


def _check_folders(job: JobSpec) -> None:
    # Slurm would accept both, then run in /tmp, or fail the job without a word (0:53).
    for folder, what in ((job.chdir, "working directory"), (job.output.parent, "log directory")):
        if not folder.is_dir():
            raise SubmissionRejected(
                f"{job.token}: the {what} {folder} does not exist",
                hint="the run directory was moved or removed; nothing was sent",
            )


def _outcome(answer: sbatch.Answer, token: str) -> str:
    if answer.job_id is not None:
        return answer.job_id
    message = f"{token}: {answer.text}"
    if answer.meaning in (Meaning.REJECTED, Meaning.DEPENDENCY):
        raise SubmissionRejected(message, hint=answer.hint)
    if answer.meaning is Meaning.DEFERRED:
        raise SubmissionDeferred(message, hint=answer.hint)
    if answer.meaning is Meaning.UNREACHABLE:
        raise SchedulerUnreachable(f"{message}; nothing was sent", hint=answer.hint)
    raise SubmissionUncertain(
        message, hint="nothing is tried again until the job was looked for; `tick` does that"
    )
