"""Kill -9 at every durable step of the local scheduler: a job exists once or not at all, and runs once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.schedulers import local as package
from orchestrator.schedulers.local.backend import LocalScheduler
from orchestrator.schedulers.local.spawn import ENV_SHEPHERD_CRASH_AT
from tests.orchestrator import local_jobs
from tests.orchestrator.local_jobs import Jobs

ROOT = Path(__file__).parents[2]
SOURCE = "".join(p.read_text() for p in sorted(Path(package.__path__[0]).glob("*.py")))
POINTS = re.findall(r'point\("(local\.[a-z.]+)"\)', SOURCE)
SUBMITTER = [p for p in POINTS if p.startswith(("local.submit.", "local.pass."))]
BEFORE_COMMIT = {"local.submit.checked", "local.submit.begun", "local.submit.inserted"}
SHEPHERD = [p for p in POINTS if p.startswith(("local.shepherd.", "local.finish."))]

_COMMAND = """
import sys
from pathlib import Path
from tests.orchestrator.local_jobs import Jobs
from orchestrator.schedulers.local.backend import LocalScheduler
folder, what = Path(sys.argv[1]), sys.argv[2]
scheduler = LocalScheduler(folder / "home", cpus=4, kill_wait_s=1)
if what == "submit":
    print(Jobs(scheduler, folder).submit("echo ran >> ran", requeue=True))
elif what == "cancel":
    scheduler.cancel(["1"])
else:
    scheduler.observe(["1"])
"""


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with local_jobs.local(tmp_path) as found:
        yield found


def command(jobs: Jobs, what: str, **environ: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, str(jobs.folder), what],
        capture_output=True, text=True, timeout=60, cwd=ROOT, env={**os.environ, **environ},
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def known(jobs: Jobs) -> list[str]:
    seen = jobs.scheduler.observe([], tokens=["suite-1.stage.001"])
    assert seen.queue_answered
    return list(seen.tokens.get("suite-1.stage.001", ()))


def test_every_step_has_a_point() -> None:
    assert set(SUBMITTER) > BEFORE_COMMIT
    assert len(SUBMITTER) >= 6
    assert len(SHEPHERD) >= 5
    assert len(POINTS) == len(set(POINTS))


@pytest.mark.parametrize("point", SUBMITTER)
def test_a_submitter_killed_at_any_step(jobs: Jobs, point: str) -> None:
    assert command(jobs, "submit", TRAINMASTER_CRASH_AT=point) == -signal.SIGKILL
    ids = known(jobs)
    jobs.live += ids
    assert len(ids) == (0 if point in BEFORE_COMMIT else 1)
    if ids:
        assert jobs.ended(*ids)[0].state == "COMPLETED"
        assert (jobs.folder / "ran").read_text() == "ran\n"


@pytest.mark.parametrize("point", SHEPHERD)
def test_a_shepherd_killed_at_any_step(jobs: Jobs, point: str) -> None:
    """The crash is part of the first shepherd's environment only: the next one does better."""
    command(jobs, "submit", **{ENV_SHEPHERD_CRASH_AT: point})
    jobs.live += known(jobs)
    (record,) = jobs.ended("1")
    assert record.state == "COMPLETED"
    states = [r.state for r in jobs.observe("1").records]
    # Killed before the end was durable it is a lost node and runs again; afterwards it does not.
    durable = point == "local.shepherd.recorded"
    assert states == (["COMPLETED"] if durable else ["NODE_FAIL", "COMPLETED"])


@pytest.mark.parametrize("point", [p for p in POINTS if p.startswith("local.ask.")])
def test_a_cancel_killed_at_any_step_happens_or_does_not(jobs: Jobs, point: str) -> None:
    job_id = jobs.submit("echo up; sleep 600")
    jobs.says("up")
    assert command(jobs, "cancel", TRAINMASTER_CRASH_AT=point) == -signal.SIGKILL
    if point == "local.ask.written":
        assert jobs.record(job_id).state == "RUNNING"
    else:  # asked, but the shepherd was not told: the next command does
        assert jobs.ended(job_id)[0].state == "CANCELLED"


@pytest.mark.parametrize("point", ["local.repair.killed", "local.repair.recorded"])
def test_a_repair_killed_at_any_step(jobs: Jobs, point: str) -> None:
    line = 'test "$TRAINMASTER_LOCAL_RESTART_COUNT" = 1 && exit 0; echo up; sleep 600'
    job_id = jobs.submit(line, requeue=True)
    jobs.says("up")
    assert isinstance(jobs.scheduler, LocalScheduler)
    shepherds = [
        pid
        for pid in local_jobs.processes_mentioning(jobs.scheduler.path)
        if b"shepherd" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    for pid in shepherds:
        os.kill(pid, signal.SIGKILL)
    assert local_jobs.gone(shepherds)
    assert command(jobs, "observe", TRAINMASTER_CRASH_AT=point) == -signal.SIGKILL
    assert jobs.ended(job_id)[0].state == "COMPLETED"
    assert [r.state for r in jobs.observe(job_id).records] == ["NODE_FAIL", "COMPLETED"]


def test_a_renewed_claim_killed_before_its_shepherd_starts(jobs: Jobs) -> None:
    assert command(jobs, "submit", TRAINMASTER_CRASH_AT="local.pass.claimed") == -signal.SIGKILL
    assert command(jobs, "observe", TRAINMASTER_CRASH_AT="local.repair.claimed") == -signal.SIGKILL
    jobs.live += known(jobs)
    assert jobs.ended("1")[0].state == "COMPLETED"
    assert (jobs.folder / "ran").read_text() == "ran\n"


def test_a_claim_taken_over_is_not_honoured_when_its_first_shepherd_comes_late(jobs: Jobs) -> None:
    """A job never runs twice at once: the tag it was first claimed with is worth nothing any more."""
    from orchestrator.schedulers.local import queue
    from orchestrator.schedulers.local.process import identity
    from orchestrator.schedulers.local.schema import transaction

    assert isinstance(jobs.scheduler, LocalScheduler)
    job_id = jobs.submit("echo ran >> ran", held=True)
    path, me = jobs.scheduler.path, identity(os.getpid())
    with transaction(path) as db:
        _, tag = queue.claim(db, int(job_id), host="h", gpu_ids="", nodes="local-0", spawner=me, now=0.0)
    assert jobs.ended(job_id)[0].state == "COMPLETED"  # claimed at 0.0: given up and started anew
    assert queue.take(path, int(job_id), 0, tag, me, "boot", 0.0) is None
    assert (jobs.folder / "ran").read_text() == "ran\n"
