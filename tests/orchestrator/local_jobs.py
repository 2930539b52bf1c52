"""Real jobs for tests of the schedulers: submit a line of shell, wait for the scheduler's word."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.schedulers.base import JobSpec, Scheduler
from resiliency.jobstate import JobRecord, Observation

WAIT_S = 60.0


@dataclass
class Jobs:
    """A scheduler and a folder its jobs work in. ``live``: all that was submitted."""

    scheduler: Scheduler
    folder: Path
    run: str = "suite-1"
    pause_s: float = 0.05
    live: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def log(self) -> Path:
        return self.folder / "out.log"

    def spec(self, line: str | Sequence[str], **fields: Any) -> JobSpec:
        argv = ("bash", "-c", line) if isinstance(line, str) else tuple(line)
        fields.setdefault("token", f"{self.run}.stage.{next(self.numbers):03d}")
        fields.setdefault("chdir", self.folder)
        fields.setdefault("output", self.log)
        return JobSpec(argv=argv, **fields)

    def submit_spec(self, job: JobSpec, *, after: Sequence[str] = (), held: bool = False) -> str:
        job_id = self.scheduler.submit(job, self.folder / f"{job.token}.sh", after=after, held=held)
        self.live.append(job_id)
        return job_id

    def submit(
        self,
        line: str | Sequence[str],
        *,
        after: Sequence[str] = (),
        held: bool = False,
        **fields: Any,
    ) -> str:
        return self.submit_spec(self.spec(line, **fields), after=after, held=held)

    def observe(self, *job_ids: str) -> Observation:
        return self.scheduler.observe(job_ids)

    def record(self, job_id: str) -> JobRecord:
        """The latest run of a job."""
        return self.observe(job_id).records[-1]

    def until(self, done: Callable[[Observation], bool], job_ids: Collection[str], what: str) -> Observation:
        end = time.monotonic() + WAIT_S
        while not done(seen := self.scheduler.observe(job_ids)):
            assert time.monotonic() < end, f"not {what} after {WAIT_S} s: {seen}"
            time.sleep(self.pause_s)
        return seen

    def ended(self, *job_ids: str) -> list[JobRecord]:
        """The latest run of each, once all have ended."""

        def latest(seen: Observation) -> dict[str, JobRecord]:
            return {r.job_id: r for r in seen.records}

        def done(seen: Observation) -> bool:
            found = latest(seen)
            return set(found) == set(job_ids) and all(r.ended for r in found.values())

        found = latest(self.until(done, job_ids, "ended"))
        return [found[job_id] for job_id in job_ids]

    def in_state(self, job_id: str, *states: str) -> JobRecord:
        seen = self.until(lambda s: bool(s.records) and s.records[-1].state in states, [job_id], f"{states}")
        return seen.records[-1]

    def says(self, text: str) -> None:
        """Wait until the job's output has this text."""
        end = time.monotonic() + WAIT_S
        while not self.log.exists() or text not in self.log.read_text():
            shown = self.log.read_text() if self.log.exists() else "nothing"
            assert time.monotonic() < end, f"no {text!r} in the output: {shown}"
            time.sleep(self.pause_s)

    def close(self) -> None:
        self.scheduler.cancel(self.live)
        if self.live:
            self.ended(*self.live)


@contextlib.contextmanager
def local(folder: Path, **options: Any) -> Iterator[Jobs]:
    """Jobs on a local scheduler of their own; at the end all of it is cancelled, and nothing runs."""
    from orchestrator.schedulers.local.backend import LocalScheduler

    settings = {"cpus": 4, "kill_wait_s": 1.0, **options}
    jobs = Jobs(LocalScheduler(folder / "home", **settings), folder)
    try:
        yield jobs
    finally:
        jobs.close()
    assert gone(processes_mentioning(str(folder)))


def processes_mentioning(text: str) -> list[int]:
    """Processes whose command line or environment has this text (a path of the test's own)."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        for part in ("cmdline", "environ"):
            try:
                content = Path(f"/proc/{name}/{part}").read_bytes()
            except OSError:
                continue
            if text.encode() in content:
                found.append(int(name))
                break
    return found


def gone(pids: Collection[int]) -> bool:
    """Whether none of these runs any more (waits a little: exits are not instantaneous)."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        left = []
        for pid in pids:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state not in "ZX":
                left.append(pid)
        if not left:
            return True
        time.sleep(0.05)
    return False
