"""The Slurm backend on a real Slurm: what only Slurm does, and what its failures look like.

What every backend does alike is in ``tests/orchestrator/test_schedulers.py``.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from orchestrator.schedulers.base import JobSpec
from orchestrator.schedulers.slurm import SlurmScheduler, sacct
from resiliency import contract
from resiliency.edges import Completed, SystemRunner
from resiliency.errors import (
    SchedulerUnreachable,
    SubmissionDeferred,
    SubmissionRejected,
    SubmissionUncertain,
)
from resiliency.jobstate import JobRecord

from .conftest import SlurmCluster

pytestmark = pytest.mark.slurm


class Counting(SystemRunner):
    """Runs real commands and remembers which."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, argv: Sequence[str], **options) -> Completed:
        self.calls.append(list(argv))
        return super().__call__(argv, **options)


@dataclasses.dataclass
class Bench:
    cluster: SlurmCluster
    folder: Path
    runner: Counting
    run: str
    links: int = 0

    def scheduler(self, name: str = "alpha", **options) -> SlurmScheduler:
        environ = {**self.cluster.env("alpha"), **options.pop("environ", {})}
        return SlurmScheduler(name=name, runner=self.runner, environ=environ, **options)

    def job(self, shell: str = "exit 0", **fields) -> JobSpec:
        self.links += 1
        base = JobSpec(
            token=contract.token(self.run, "s", self.links),
            argv=("/bin/sh", "-c", shell),
            chdir=self.folder,
            output=self.folder / f"link-{self.links}.log",
            time_limit_s=300,
        )
        return dataclasses.replace(base, **fields)

    def submit(self, job: JobSpec, scheduler: SlurmScheduler | None = None, **options) -> str:
        script = self.folder / f"{job.token}.sbatch"
        return (scheduler or self.scheduler()).submit(job, script, **options)

    def until(
        self, job_id: str, done: Callable[[list[JobRecord]], bool], timeout_s: float = 60
    ) -> list[JobRecord]:
        end = time.monotonic() + timeout_s
        while True:
            records = list(self.scheduler().observe([job_id]).records)
            if done(records):
                return records
            assert time.monotonic() < end, records
            time.sleep(0.3)


@pytest.fixture
def bench(slurm_cluster: SlurmCluster, slurm_workdir: Path) -> Iterator[Bench]:
    yield Bench(slurm_cluster, slurm_workdir, Counting(), f"t-{os.urandom(6).hex()}")


def ended(records: Sequence[JobRecord]) -> bool:
    return bool(records) and records[-1].ended


def all_ended(records: Sequence[JobRecord]) -> bool:
    return all(record.ended for record in records)


@pytest.mark.slow
def test_a_request_lost_in_a_frozen_controller_is_uncertain_and_found_by_its_token(bench: Bench) -> None:
    scheduler = bench.scheduler(submit_timeout_s=4)
    bench.submit(bench.job(), scheduler)  # slurmctld was well a moment ago
    job = bench.job("sleep 60")
    began = time.time()
    bench.cluster.freeze()
    try:
        with pytest.raises(SubmissionUncertain):
            bench.submit(job, scheduler)
        with pytest.raises(SchedulerUnreachable):  # now it pings first
            bench.submit(bench.job(), scheduler)
    finally:
        bench.cluster.thaw()
    end = time.monotonic() + 30
    while not (seen := scheduler.observe([], tokens=[job.token], since=began)).tokens:
        assert time.monotonic() < end, seen.problems
        time.sleep(0.3)
    assert seen.queue_answered
    assert [r.name for r in seen.records] == [job.token] and len(seen.tokens[job.token]) == 1


def test_an_sbatch_dies_with_its_submitter(bench: Bench) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from orchestrator.schedulers.base import JobSpec\n"
        "from orchestrator.schedulers.slurm import SlurmScheduler\n"
        "folder = Path(sys.argv[1]); s = SlurmScheduler(name='alpha')\n"
        "job = JobSpec('r.s.001', ('/bin/true',), chdir=folder, output=folder / 'log')\n"
        "s._up_at = s._clock.mono() + 999\n"  # as if it had been pinged just before the freeze
        "print('go', flush=True); s.submit(job, folder / 'x.sbatch')"
    )
    env = {**bench.cluster.env(), "PYTHONPATH": os.getcwd()}
    bench.cluster.freeze()
    try:
        argv = [sys.executable, "-c", program, str(bench.folder)]
        with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE) as submitter:
            end = time.monotonic() + 20
            while not (children := _sbatches(bench.folder)):
                assert time.monotonic() < end and submitter.poll() is None
                time.sleep(0.05)
            submitter.send_signal(signal.SIGKILL)
        end = time.monotonic() + 5
        while _sbatches(bench.folder):
            assert time.monotonic() < end, f"still there: {children}"
            time.sleep(0.05)
    finally:
        bench.cluster.thaw()


def _sbatches(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdecimal() else []
        except OSError:
            continue
        if words and words[0] == b"sbatch" and str(folder / "x.sbatch").encode() in words:
            found.append(int(entry.name))
    return found


@pytest.mark.slow
def test_while_the_controller_is_dead_nothing_is_concluded(bench: Bench) -> None:
    job_id = bench.submit(bench.job("sleep 60"))
    bench.cluster.kill_controller()
    with pytest.raises(SchedulerUnreachable, match="nothing was sent"):
        bench.submit(bench.job())
    scheduler = bench.scheduler(timeout_s=15)
    with pytest.raises(SchedulerUnreachable):
        scheduler.cancel([job_id])
    seen = scheduler.observe([job_id, "999999"])
    assert (seen.queue_answered, seen.accounting_answered) == (False, True)
    assert seen.unlisted == frozenset()
    facts = scheduler.facts()
    assert facts["reachable"] is False and facts["accounts"]
    bench.cluster.start_controller()
    # The job itself may be lost: slurmctld had not saved it when it was killed.
    seen = scheduler.observe([job_id, "999999"])
    assert seen.queue_answered and "999999" in seen.unlisted


def test_while_slurmdbd_is_down_jobs_are_submitted_and_seen(bench: Bench) -> None:
    bench.cluster.stop_accounting()
    job = bench.job("exit 5")
    job_id = bench.submit(job)
    (record,) = bench.until(job_id, ended)
    assert (record.state, record.exit_code, record.signal) == ("FAILED", 5, 0)
    seen = bench.scheduler().observe([job_id], tokens=[job.token])
    assert (seen.queue_answered, seen.accounting_answered) == (True, False)
    assert seen.tokens == {job.token: (job_id,)}
    with pytest.raises(SchedulerUnreachable, match="nothing was sent"):  # -M needs slurmdbd
        bench.submit(bench.job(), bench.scheduler("beta", cluster="beta"))


def test_another_cluster(bench: Bench) -> None:
    beta = bench.scheduler("beta", cluster="beta")
    job = bench.job("sleep 60")
    job_id = bench.submit(job, beta)
    assert job_id.isdecimal()
    assert beta.observe([], tokens=[job.token]).tokens == {job.token: (job_id,)}
    assert bench.scheduler().observe([], tokens=[job.token]).tokens == {}
    later = bench.submit(bench.job(), beta, after=[job_id])
    beta.cancel([job_id])
    end = time.monotonic() + 60
    while not all_ended(seen := beta.observe([job_id, later]).records):
        assert time.monotonic() < end, seen
        time.sleep(0.3)
    assert {r.job_id: r.state for r in seen} == {job_id: "CANCELLED", later: "COMPLETED"}
    assert set(beta.facts()["partitions"]) == {"low", "high", "short", "tiny"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"partition": "nosuch"}, "partition"),
        ({"account": "nosuch"}, "account"),
        ({"qos": "nosuch"}, "qos"),
        ({"constraint": "nosuch"}, "feature"),
        ({"extra_directives": ("--licenses=nosuch:1",)}, "license"),
        ({"extra_directives": ("--no-such-option",)}, "option"),
    ],
)
def test_a_refusal_names_what_was_wrong(bench: Bench, change: dict, says: str) -> None:
    with pytest.raises(SubmissionRejected, match=f"(?i){says}") as caught:
        bench.submit(bench.job(**change))
    assert caught.value.hint


def test_limits_on_queued_jobs_defer(bench: Bench) -> None:
    """qos capped allows three jobs a user; the account one more than are there."""
    for _ in range(3):
        bench.submit(bench.job(account="lab", qos="capped"), held=True)
    with pytest.raises(SubmissionDeferred, match="QOSMaxSubmitJobPerUserLimit"):
        bench.submit(bench.job(account="lab", qos="capped"), held=True)
    where = ["where", "user=root", "account=robots", "cluster=alpha"]
    set_limit = ["sacctmgr", "--immediate", "modify", "user", *where, "set"]
    bench.cluster.run_as("root", [*set_limit, "MaxSubmitJobs=1"], check=True)
    try:
        job = bench.job(account="robots")
        with pytest.raises(SubmissionDeferred, match="AssocMaxSubmitJobLimit"):
            for _ in range(2):
                bench.submit(dataclasses.replace(job, argv=("/bin/sleep", "60")))
        assert bench.scheduler().facts()["limits"]["max_submit_jobs"] == 1
    finally:
        bench.cluster.run_as("root", [*set_limit, "MaxSubmitJobs=-1"], check=True)


@pytest.mark.slow
def test_a_lost_node_leaves_a_row_and_the_requeued_run_a_second(bench: Bench) -> None:
    job_id = bench.submit(bench.job("sleep 120", requeue=True, nodelist=("a2",)))
    bench.until(job_id, lambda r: bool(r) and r[-1].state == "RUNNING")
    bench.cluster.kill_node("a2")
    first, second = bench.until(job_id, lambda r: len(r) == 2, timeout_s=90)
    assert (first.restart_count, first.state, first.ended) == (0, "NODE_FAIL", True)
    assert first.nodes == "a2" and first.started_at and first.ended_at
    assert (second.restart_count, second.state, second.live) == (1, "PENDING", True)
    bench.scheduler().cancel([job_id])
    first, second = bench.until(job_id, ended)
    assert (first.state, second.state, second.restart_count) == ("NODE_FAIL", "CANCELLED", 1)


@pytest.mark.slow
def test_a_prolog_failure_holds_a_job_until_it_is_released(bench: Bench) -> None:
    bench.cluster.fail_prolog("a3")
    job_id = bench.submit(bench.job(requeue=True, nodelist=("a3",)))
    records = bench.until(job_id, lambda r: bool(r) and r[-1].held)
    assert records[-1].reason == "launch failed requeued held"
    assert [(r.restart_count, r.ended) for r in records] == [(0, True), (1, False)]
    bench.cluster.clear_prolog("a3")
    bench.scheduler().release(job_id)
    records = bench.until(job_id, ended)
    assert [r.state for r in records] == ["REQUEUED", "COMPLETED"]


def test_the_number_of_commands_does_not_grow_with_the_jobs(bench: Bench) -> None:
    scheduler = bench.scheduler()
    jobs = [bench.job() for _ in range(30)]
    ids = [bench.submit(job, scheduler, held=True) for job in jobs]
    counts = []
    for some in (1, len(ids)):
        bench.runner.calls.clear()
        seen = scheduler.observe(ids[:some], tokens=[job.token for job in jobs[:some]])
        assert len(seen.records) == some and all(r.held for r in seen.records)
        counts.append(len(bench.runner.calls))
    assert counts == [3, 3]
    bench.runner.calls.clear()
    scheduler.cancel(ids)
    assert len(bench.runner.calls) == 1


def test_a_secret_reaches_the_job_and_nothing_else(bench: Bench) -> None:
    secret = f"s3cr3t-{os.urandom(8).hex()}"
    scheduler = bench.scheduler(environ={"LAB_KEY": secret, "NOISE": secret + "-noise"})
    job = bench.job('printf "%s" "$LAB_KEY" > got; env > all', env_from=("LAB_KEY",))
    job_id = bench.submit(job, scheduler, held=True)
    shown = bench.cluster.run_as("root", ["scontrol", "show", "job", "-dd", job_id]).stdout
    assert job.token in shown
    script = (bench.folder / f"{job.token}.sbatch").read_text()
    assert secret not in shown + script + str(bench.runner.calls)
    scheduler.release(job_id)
    bench.until(job_id, ended)
    assert (bench.folder / "got").read_text() == secret
    assert "-noise" not in (bench.folder / "all").read_text()


def test_what_a_directive_holds_is_what_slurm_reads(bench: Bench) -> None:
    """Odd but legal folders and values; a line of a value that looks like a directive is none."""
    folder = bench.folder / """50% it's "a" #1 $(id) `x` é %j"""
    folder.mkdir()
    dump = ("/usr/bin/python3", "-c", "import os,sys;print(os.getcwd(),os.environ['V'],sys.argv[1])")
    value = "one\n#SBATCH --job-name=evil\ntwo"
    job = bench.job(
        argv=(*dump, value), chdir=folder, output=folder / "log #1 100%j.txt", env={"V": value},
        extra_directives=('--wckey=a b"c\\d#e',),
    )  # fmt: skip
    job_id = bench.submit(job, after=[])
    (record,) = bench.until(job_id, ended)
    assert (record.state, record.name) == ("COMPLETED", job.token)
    assert (folder / "log #1 100%j.txt").read_text() == f"{folder} {value} {value}\n"
    shown = bench.cluster.run_as("root", ["squeue", "-h", "-t", "all", "-j", job_id, "-O", "wckey:|"])
    assert 'a b"c\\d#e|' in shown.stdout


def test_odd_jobs_of_others_do_not_disturb(bench: Bench) -> None:
    comment = "line one\n7\n\x1fpart | ;\nlast é"
    argv = ["sbatch", "--parsable", "-H", "-J", "odd\nname", "--comment", comment, "--wrap", "true"]
    odd = bench.cluster.run_as("root", argv, check=True).stdout.strip()
    ours = bench.submit(bench.job(), held=True)
    seen = bench.scheduler().observe([ours, odd])
    assert seen.queue_answered and not seen.problems
    assert {r.job_id: r.held for r in seen.records} == {odd: True, ours: True}


def test_a_link_cancelled_while_it_waited_is_found_in_accounting_alone(bench: Bench) -> None:
    """It never became eligible, so a plain `sacct --name` would not list it."""
    first = bench.submit(bench.job("sleep 60"))
    job = bench.job()
    waiting = bench.submit(job, after=[first])
    bench.scheduler().cancel([waiting])
    bench.until(waiting, ended)
    (argv,) = sacct.by_name([job.token], 60, None)
    end = time.monotonic() + 20
    while True:
        shown = bench.cluster.run_as("root", argv, env={"SLURM_TIME_FORMAT": "%s"}, check=True)
        if rows := sacct.parse(shown.stdout).rows:
            break
        assert time.monotonic() < end
        time.sleep(0.3)
    assert [(r.job_id, r.state) for r in rows] == [(waiting, "CANCELLED")]
