"""The order and number of Slurm's commands, what they may see, and what each failure is called."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.clusters import Profile
from orchestrator.schedulers import open_scheduler
from orchestrator.schedulers.base import JobSpec
from orchestrator.schedulers.slurm import SlurmScheduler
from resiliency.edges import SystemClock
from resiliency.errors import (
    SchedulerError,
    SchedulerUnreachable,
    SpecError,
    SubmissionDeferred,
    SubmissionRejected,
    SubmissionUncertain,
)
from tests.orchestrator.slurm_answers import Answers, accounting_row, queue_row

UP = (0, "Slurmctld(primary) at vm is UP\n", "")
DOWN = (1, "Slurmctld(primary) at vm is DOWN\n", "")
TOKEN = "run-20260131-120000-0a1b.s.001"
ENVIRON = {
    "PATH": "/usr/bin", "HOME": "/h", "USER": "me", "SLURM_CONF": "/c", "API_KEY": "s3cret-value",
    "SITE": "x", "NOISE": "y", "SLURM_JOB_ID": "9", "SBATCH_ACCOUNT": "other", "SQUEUE_FORMAT": "%i",
    "SLURM_CLUSTERS": "gamma",
}  # fmt: skip


class Time(SystemClock):
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def wall(self) -> float:
        return self.now

    def mono(self) -> float:
        return self.now


@pytest.fixture
def job(tmp_path: Path) -> JobSpec:
    return JobSpec(TOKEN, ("/bin/true",), chdir=tmp_path, output=tmp_path / "log")


def slurm(runner: Answers, **options: Any) -> SlurmScheduler:
    return SlurmScheduler(
        **{"name": "alpha", "runner": runner, "environ": ENVIRON, "clock": Time(), **options}
    )


def accepting(**replies: Any) -> Answers:
    return Answers({"scontrol ping": UP, "sbatch": (0, "17\n", ""), **replies})


# -- submit ------------------------------------------------------------------------------------


def test_a_submission_is_one_ping_and_one_sbatch_that_dies_with_us(job: JobSpec, tmp_path: Path) -> None:
    runner = accepting()
    assert slurm(runner).submit(job, tmp_path / "x.sbatch", after=["3"]) == "17"
    assert [argv[:2] for argv in runner.calls] == [["scontrol", "ping"], ["sbatch", "--parsable"]]
    assert "--dependency=afterany:3" in runner.calls[1]
    assert runner.died_with_parent == [False, True]
    assert (tmp_path / "x.sbatch").read_text() == slurm(runner).render(job)


def test_one_ping_serves_a_batch_of_links(job: JobSpec, tmp_path: Path) -> None:
    runner, clock = accepting(), Time()
    scheduler = slurm(runner, clock=clock)
    for _ in range(20):
        scheduler.submit(job, tmp_path / "x.sbatch")
    assert len(runner.named("scontrol")) == 1
    clock.now += 60
    scheduler.submit(job, tmp_path / "x.sbatch")
    assert len(runner.named("scontrol")) == 2


def test_another_cluster_is_named_to_every_command(job: JobSpec, tmp_path: Path) -> None:
    runner = accepting(sbatch=(0, "3;beta\n", ""), squeue=(0, "", ""), sacct=(0, "", ""))
    scheduler = slurm(runner, cluster="beta", name="beta")
    assert scheduler.submit(job, tmp_path / "x.sbatch") == "3"
    scheduler.observe(["3"], tokens=[TOKEN])
    assert all(argv[1:3] == ["-M", "beta"] for argv in runner.calls)
    assert all("SLURM_CLUSTERS" not in env for env in runner.envs)


def test_the_job_gets_chosen_variables_only(job: JobSpec, tmp_path: Path) -> None:
    runner = accepting()
    wants = dataclasses.replace(job, env_from=("API_KEY",))
    slurm(runner, pass_env=["SITE", "NOT_SET"]).submit(wants, tmp_path / "x.sbatch")
    assert set(runner.envs[1]) == {"PATH", "HOME", "USER", "SLURM_CONF", "SLURM_CLUSTERS", "API_KEY", "SITE"}
    assert "API_KEY" not in runner.envs[0], "only the job's own command may see it"
    seen = str(runner.calls) + (tmp_path / "x.sbatch").read_text()
    assert "s3cret" not in seen


def test_a_missing_env_from_variable_is_named_and_nothing_is_sent(job: JobSpec, tmp_path: Path) -> None:
    runner = accepting()
    with pytest.raises(SubmissionRejected, match="HF_TOKEN"):
        slurm(runner).submit(dataclasses.replace(job, env_from=("HF_TOKEN",)), tmp_path / "x")
    assert runner.calls == []


@pytest.mark.parametrize("field", ["chdir", "output"])
def test_a_folder_that_is_gone_is_refused_before_anything_is_sent(
    job: JobSpec, field: str, tmp_path: Path
) -> None:
    runner = accepting()
    gone = dataclasses.replace(job, **{field: tmp_path / "gone" / "x"})
    with pytest.raises(SubmissionRejected, match="gone"):
        slurm(runner).submit(gone, tmp_path / "x")
    assert runner.calls == []


def test_while_slurmctld_is_down_nothing_is_sent(job: JobSpec, tmp_path: Path) -> None:
    for ping in (DOWN, (None, "", "")):
        runner = accepting(**{"scontrol ping": ping})
        with pytest.raises(SchedulerUnreachable, match="nothing was sent"):
            slurm(runner).submit(job, tmp_path / "x.sbatch")
        assert not runner.named("sbatch")


def test_without_scontrol_sbatch_is_simply_tried(job: JobSpec, tmp_path: Path) -> None:
    runner = Answers({"sbatch": (0, "17\n", "")})
    assert slurm(runner).submit(job, tmp_path / "x.sbatch") == "17"


TIMED_OUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"
LIMIT = "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates\n"
BAD = "sbatch: error: Batch job submission failed: Invalid partition name specified\n"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ((1, "", TIMED_OUT), SubmissionUncertain),
        ((None, "", ""), SubmissionUncertain),
        ((-9, "", ""), SubmissionUncertain),
        ((1, "", "never seen"), SubmissionUncertain),
        ((1, "", LIMIT), SubmissionDeferred),
        ((1, "", BAD), SubmissionRejected),
        ((127, "", "sbatch: command not found"), SchedulerUnreachable),
    ],
)
def test_what_failures_are_called(reply: tuple, error: type, job: JobSpec, tmp_path: Path) -> None:
    with pytest.raises(error, match=TOKEN):
        slurm(accepting(sbatch=reply)).submit(job, tmp_path / "x.sbatch")


def test_after_a_lost_answer_the_controller_is_pinged_again(job: JobSpec, tmp_path: Path) -> None:
    runner = accepting(sbatch=(1, "", TIMED_OUT))
    scheduler = slurm(runner)
    for _ in range(2):
        with pytest.raises(SubmissionUncertain):
            scheduler.submit(job, tmp_path / "x.sbatch")
    assert len(runner.named("scontrol")) == 2


def test_a_forgotten_dependency_is_left_out_and_a_known_one_kept(job: JobSpec, tmp_path: Path) -> None:
    def sbatch(argv: Sequence[str]) -> tuple[int, str, str]:
        if any("3" in w for w in argv if w.startswith("--dependency")):
            return 1, "", "sbatch: error: Batch job submission failed: Job dependency problem\n"
        return 0, "17\n", ""

    runner = accepting(sbatch=sbatch, squeue=(0, queue_row(4), ""))
    assert slurm(runner).submit(job, tmp_path / "x.sbatch", after=["3", "4"]) == "17"
    first, second = runner.named("sbatch")
    assert "--dependency=afterany:3:4" in first
    assert "--dependency=afterany:4" in second


def test_a_dependency_problem_that_remains_is_a_refusal(job: JobSpec, tmp_path: Path) -> None:
    problem = (1, "", "sbatch: error: Batch job submission failed: Job dependency problem\n")
    runner = accepting(sbatch=problem, squeue=(0, queue_row(4), ""))
    with pytest.raises(SubmissionRejected):
        slurm(runner).submit(job, tmp_path / "x.sbatch", after=["4"])
    assert len(runner.named("sbatch")) == 1


# -- observe -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2000])
def test_the_number_of_calls_does_not_grow_with_the_number_of_jobs(count: int) -> None:
    ids = [str(i) for i in range(1, count + 1)]
    rows = "".join(queue_row(i) for i in ids)
    runner = Answers({"squeue": (0, rows, ""), "sacct": (0, "", "")})
    seen = slurm(runner).observe(ids, tokens=[TOKEN])
    assert [argv[0] for argv in runner.calls] == ["squeue", "sacct", "sacct"]
    assert len(seen.records) == count
    assert seen.unlisted == frozenset()


def test_nothing_but_what_was_asked_for_is_told() -> None:
    rows = queue_row(7) + queue_row(8, name=TOKEN) + queue_row(9)
    seen = slurm(Answers({"squeue": (0, rows, ""), "sacct": (0, "", "")})).observe(
        ["7", "6"], tokens=[TOKEN, "other"]
    )
    assert [r.job_id for r in seen.records] == ["7", "8"]
    assert seen.tokens == {TOKEN: ("8",)}
    assert seen.unlisted == {"6"}


def test_without_sacct_the_queue_is_enough() -> None:
    seen = slurm(Answers({"squeue": (0, queue_row(7), "")})).observe(["7", "6"])
    assert (seen.queue_answered, seen.accounting_answered) == (True, False)
    assert [r.state for r in seen.records] == ["RUNNING"]
    assert seen.unlisted == {"6"}
    assert "sacct" in seen.problems[0]


def test_while_slurmdbd_is_down_sacct_is_asked_once() -> None:
    refused = (1, "", "sacct: error: Problem talking to the database: Connection refused\n")
    runner = Answers({"squeue": (0, "", ""), "sacct": refused})
    seen = slurm(runner).observe(["7"], tokens=[TOKEN])
    assert len(runner.named("sacct")) == 1
    assert not seen.accounting_answered


def test_without_the_queue_nothing_is_unlisted() -> None:
    runner = Answers({"squeue": (None, "", ""), "sacct": (0, accounting_row(7), "")})
    seen = slurm(runner).observe(["7", "6"])
    assert (seen.queue_answered, seen.unlisted) == (False, frozenset())
    assert [r.state for r in seen.records] == ["COMPLETED"]


def test_a_torn_queue_is_no_answer_and_a_damaged_record_is_not_unlisted() -> None:
    torn = queue_row(7) + queue_row(8)[:20]
    seen = slurm(Answers({"squeue": (0, torn, ""), "sacct": (0, "", "")})).observe(["7", "8"])
    assert (seen.queue_answered, seen.unlisted) == (False, frozenset())
    damaged = queue_row(7) + queue_row(8).replace("RUNNING\x1f", "")
    seen = slurm(Answers({"squeue": (0, damaged, ""), "sacct": (0, "", "")})).observe(["7", "8"])
    assert (seen.queue_answered, seen.unlisted) == (True, frozenset())
    assert "8" in " ".join(seen.problems)


def test_nothing_answers_and_nothing_is_raised() -> None:
    seen = slurm(Answers()).observe(["7"], tokens=[TOKEN])
    assert (seen.queue_answered, seen.accounting_answered, len(seen.problems)) == (False, False, 2)


def test_a_look_up_reaches_back_to_the_run_and_an_hour_more() -> None:
    runner = Answers({"squeue": (0, "", ""), "sacct": (0, "", "")})
    slurm(runner).observe([], tokens=[TOKEN], since=1_000_000.0 - 600)
    (argv,) = runner.named("sacct")
    assert "--starttime=now-70minutes" in argv
    assert f"--name={TOKEN}" in argv


def test_a_users_own_formats_do_not_reach_the_commands() -> None:
    runner = Answers({"squeue": (0, "", ""), "sacct": (0, "", "")})
    slurm(runner).observe(["7"])
    for env in runner.envs:
        assert env["SLURM_TIME_FORMAT"] == "%s"
        assert not {"SQUEUE_FORMAT", "SLURM_JOB_ID", "SBATCH_ACCOUNT", "API_KEY"} & set(env)


# -- cancel, release, exclude ------------------------------------------------------------------


def test_cancelling_goes_in_batches() -> None:
    runner = Answers({"scancel": (0, "", "")})
    slurm(runner).cancel({str(i) for i in range(1200)})
    assert [len(argv) - 1 for argv in runner.calls] == [500, 500, 200]
    slurm(runner).cancel([])
    assert len(runner.calls) == 3


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (
            (8, "", "scancel: error: Kill job error on job id 5: Unable to contact slurm controller"),
            SchedulerUnreachable,
        ),
        ((None, "", ""), SchedulerUnreachable),
        ((1, "", "scancel: error: Kill job error on job id 5: Access/permission denied"), SchedulerError),
    ],
)
def test_a_cancel_that_fails_says_why(reply: tuple, error: type) -> None:
    with pytest.raises(SchedulerError) as caught:
        slurm(Answers({"scancel": reply})).cancel(["5"])
    assert type(caught.value) is error


def test_release_and_exclude() -> None:
    runner = Answers({"scontrol": (0, "", "")})
    scheduler = slurm(runner)
    scheduler.release("7")
    scheduler.exclude("7", ["a1", "a2"])
    scheduler.exclude("7", [])
    assert runner.calls == [
        ["scontrol", "release", "7"],
        ["scontrol", "update", "JobId=7", "ExcNodeList=a1,a2"],
        ["scontrol", "update", "JobId=7", "ExcNodeList="],
    ]
    refused = Answers({"scontrol": (1, "", "Invalid job id specified for job 7")})
    with pytest.raises(SchedulerError, match="Invalid job id"):
        slurm(refused).release("7")
    lost = Answers({"scontrol": (1, "", "slurm_suspend error: Unexpected message received")})
    with pytest.raises(SchedulerUnreachable):
        slurm(lost).release("7")


# -- opening -----------------------------------------------------------------------------------


def test_a_profile_opens_its_scheduler(tmp_path: Path) -> None:
    local = open_scheduler(Profile("here", scheduler="local"), home=tmp_path)
    assert (local.kind, local.cluster) == ("local", "here")
    runner = Answers({"squeue": (0, "", "")})
    beta = open_scheduler(Profile("site", cluster="beta"), home=tmp_path, runner=runner, environ={})
    beta.observe([])
    assert (beta.kind, beta.cluster) == ("slurm", "beta")
    assert runner.calls[0][:3] == ["squeue", "-M", "beta"]
    with pytest.raises(SpecError, match="pbs"):
        open_scheduler(Profile("x", scheduler="pbs"), home=tmp_path)
