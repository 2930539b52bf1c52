"""The one process beside each running job: starts it, enforces its limits, records how it
ended.

Imports only the standard library, ``resiliency`` and its own package: each running job costs
one of these. Writes nothing but the queue and the job's output file. Usage: shepherd QUEUE JOB
RESTART TAG. ``tests/orchestrator/test_schedulers.py`` and ``test_local_shepherd.py``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from resiliency.crashpoint import point
from resiliency.durable import file_mode
from resiliency.errors import TrainmasterError

from . import process, queue
from .passes import ALIVE_EVERY_S, WAKE, run_pass
from .process import Identity
from .spawn import MARK, job_environment, missing

#: Signals that are waited for. Those a terminal or a shutdown sends are collected and ignored: the
#: job gets them itself, and the shepherd stays to record what becomes of it.
_WAITED = (WAKE, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
POLL_S = 5.0
DEFAULT_KILL_WAIT_S = 5.0
#: After SIGKILL: a process stuck in the kernel is given up after this long.
_STUCK_S = 60.0
_LAUNCH_FAILED = 53  # what Slurm reports (0:53) when a job could not be set up


class Shepherd:
    """One attempt of one job, from taking it over to its last word."""

    def __init__(self, path: str, row: dict[str, Any], tag: str) -> None:
        self.path, self.row, self.tag = path, row, tag
        self.job, self.restart = int(row["job"]), int(row["restart_count"])
        self.kill_wait = row["kill_wait_s"]
        if self.kill_wait is None:
            self.kill_wait = DEFAULT_KILL_WAIT_S
        self.began = time.monotonic()
        self.leader = 0
        self.status: int | None = None  # the leader's, as waitpid gives it
        self.obeyed: str | None = None
        self.timed_out = False
        self.warned = False
        self.kill_at: float | None = None
        self.ours = True
        self.looked_at = self.alive_at = self.began

    # -- start ---------------------------------------------------------------------------------

    def start(self) -> str | None:
        """Start the batch process; what prevented it, or None."""
        names = json.loads(self.row["env_from"])
        if absent := missing(names, os.environ):
            return f"env_from: {', '.join(absent)} not set where the job was started from"
        names += json.loads(self.row["env_pass"])
        env = job_environment({**self.row, "tag": self.tag}, names, os.environ)
        chdir, output = self.row["chdir"], self.row["output"]
        try:
            mode = file_mode(os.path.dirname(output))
            log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode)
        except OSError as error:
            return f"cannot write {os.fsdecode(output)}: {error.strerror}"
        try:
            child = subprocess.Popen(
                ["bash", self.row["script"]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=chdir,
                env=env,
                start_new_session=True,
                preexec_fn=process.die_with_parent_hook(_WAITED),
            )
        except OSError as error:
            return f"cannot start in {os.fsdecode(chdir)}: {error.strerror}"
        finally:
            os.close(log)
        self.leader = child.pid
        child.returncode = 0  # reaped by wait() below, not by Popen
        point("local.shepherd.started")
        who = process.identity(child.pid)
        # Without this note (disk full), what is left after a crash is still found by its tag.
        with contextlib.suppress(TrainmasterError):
            self.ours = queue.note(
                self.path,
                self.job,
                self.restart,
                self.tag,
                leader_pid=who.pid,
                leader_start=who.start,
            )
        return None

    # -- while it runs -------------------------------------------------------------------------

    def watch(self) -> None:
        """Until the batch process has ended."""
        while self.status is None and self.ours:
            now = time.monotonic()
            self._limits(now)
            if now - self.looked_at >= POLL_S:
                self._look(now)
                with contextlib.suppress(TrainmasterError, OSError):
                    run_pass(self.path, os.environ)
            got = signal.sigtimedwait(_WAITED, max(0.0, self._next(now) - now))
            self._reap()
            if got is not None and got.si_signo == WAKE:
                self.looked_at = -POLL_S  # look at once

    def _next(self, now: float) -> float:
        limit, lead = self.row["time_limit_s"], self.row["signal_lead_s"]
        times = [self.looked_at + POLL_S]
        if self.kill_at is not None:
            times.append(self.kill_at)
        elif limit is not None:
            times.append(self.began + limit)
            if lead is not None and not self.warned:
                times.append(self.began + limit - lead)
        return min(times)

    def _limits(self, now: float) -> None:
        limit, lead = self.row["time_limit_s"], self.row["signal_lead_s"]
        if self.kill_at is not None:
            if now >= self.kill_at:
                self._signal_all(signal.SIGKILL)
                self.kill_at = now + 0.2  # again, for what was forked meanwhile
            return
        if limit is None:
            return
        if now >= self.began + limit:
            self.timed_out = True
            self._end(signal.SIGTERM, everyone=True, grace=self.kill_wait)
        elif lead is not None and not self.warned and now >= self.began + limit - lead:
            self.warned = True
            self._signal_leader(signal.SIGUSR2)

    def _look(self, now: float) -> None:
        """What was asked of this job since the last look."""
        self.looked_at = now
        try:
            self.ours, intent, grace = queue.intent(self.path, self.job, self.restart, self.tag)
            if now - self.alive_at >= ALIVE_EVERY_S:
                self.alive_at = now
                queue.note(self.path, self.job, self.restart, self.tag, alive_at=time.time())
        except TrainmasterError:  # disk full, file system away: ask again later
            return
        new = intent is not None and self.obeyed is None
        if self.ours and (new or (intent == "cancel" and self.obeyed != "cancel")):
            first = self.kill_at is None
            self.obeyed = intent
            if first:
                self._end(
                    signal.SIGTERM,
                    everyone=False,
                    grace=self.kill_wait if grace is None else grace,
                )

    def _end(self, number: int, *, everyone: bool, grace: float) -> None:
        self._signal_all(signal.SIGCONT)  # a stopped process would not hear it
        if everyone:
            self._signal_all(number)
        else:
            self._signal_leader(number)
        self.kill_at = time.monotonic() + grace

    # -- its processes -------------------------------------------------------------------------

    def _members(self) -> list[Identity]:
        """Every living process of the job: all that descends from here, but other shepherds."""
        processes = process.table()
        found = process.below(
            [os.getpid()], processes, stop=lambda pid: process.file_contains(pid, "cmdline", MARK)
        )
        return [processes[pid].identity for pid in found]

    def _signal_all(self, number: int) -> None:
        for who in self._members():
            process.send(who, number)

    def _signal_leader(self, number: int) -> None:
        if self.status is None:  # not reaped yet, so the pid is still its own
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.leader, number)

    def _reap(self) -> None:
        """Collect every child that ended; orphans of the job are children of the subreaper."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.leader:
                    self.status = status

    def clean(self) -> list[int]:
        """After the batch process: end the rest of the tree. TERM, KillWait, KILL, as Slurm
        does."""
        members = self._members()
        if members and self.ours and self.kill_at is None:
            with contextlib.suppress(TrainmasterError):
                queue.note(self.path, self.job, self.restart, self.tag, state="COMPLETING")
            self._signal_all(signal.SIGCONT)
            self._signal_all(signal.SIGTERM)
            self.kill_at = time.monotonic() + self.kill_wait
        while members and self.kill_at is not None and time.monotonic() < self.kill_at:
            signal.sigtimedwait(_WAITED, min(0.1, max(0.0, self.kill_at - time.monotonic())))
            self._reap()
            members = self._members()

        def remaining() -> list[Identity]:
            self._reap()
            return self._members()

        return process.kill_all(remaining, patience_s=_STUCK_S)

    # -- its last word -------------------------------------------------------------------------

    def record(self, failure: str | None, stuck: Sequence[int]) -> None:
        """Write how it ended, as often as it takes: a full disk must not lose it."""
        status = self.status or 0
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if failure:
            code, number = 0, _LAUNCH_FAILED
        reason = failure or (f"Kill task failed: {list(stuck)}" if stuck else "")
        while True:
            try:
                queue.finish(
                    self.path, self.job, self.restart, self.tag, exit_code=code, signal=number,
                    timed_out=self.timed_out, obeyed=self.obeyed, reason=reason, now=time.time(),
                )  # fmt: skip
                return
            except TrainmasterError:
                time.sleep(1.0)


def main(arguments: Sequence[str]) -> int:
    path, job, restart, tag = arguments[0], int(arguments[1]), int(arguments[2]), arguments[3]
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
    process.become_subreaper()
    me = process.identity(os.getpid())
    row = queue.take(path, job, restart, tag, me, process.boot_id(), time.time())
    if row is None:
        return 0
    point("local.shepherd.took")
    shepherd = Shepherd(path, row, tag)
    failure = shepherd.start()
    if failure is None:
        shepherd.watch()
    stuck = shepherd.clean()
    point("local.shepherd.cleaned")
    if shepherd.ours:
        shepherd.record(failure, stuck)
    point("local.shepherd.recorded")
    run_pass(path, os.environ)
    return 0
