"""What every scheduler backend does alike: one suite over the local scheduler and a real Slurm."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.schedulers.local.backend import LocalScheduler
from resiliency.errors import SchedulerError, SubmissionRejected, TrainmasterError
from tests.orchestrator import local_jobs
from tests.orchestrator.local_jobs import Jobs

# The fixture of tests/slurm: asked for by the slurm parameter alone, so no Slurm is needed without.
from tests.slurm.conftest import _locked, slurm_cluster  # noqa: F401

SECRET = "s3cr3t-of-the-suite"


def _environ(base: dict[str, str]) -> dict[str, str]:
    return {**base, "SUITE_SECRET": SECRET, "SUITE_NOISE": "not-for-jobs"}


@pytest.fixture(params=["local", pytest.param("slurm", marks=pytest.mark.slurm)])
def jobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Jobs]:
    if request.param == "local":
        scheduler: Any = LocalScheduler(
            tmp_path / "home", cpus=4, kill_wait_s=1.0, environ=_environ(dict(os.environ))
        )
        found = local_jobs.Jobs(scheduler, tmp_path)
        yield found
        found.close()
        assert local_jobs.gone(local_jobs.processes_mentioning(str(tmp_path)))
        return
    from orchestrator.schedulers.slurm import SlurmScheduler

    cluster = request.getfixturevalue("slurm_cluster")
    with _locked(cluster.state_dir / "test.lock"):
        cluster.heal()
        scheduler = SlurmScheduler(name="alpha", environ=_environ(cluster.env("alpha")))
        found = local_jobs.Jobs(scheduler, tmp_path, pause_s=0.3)
        found.run = f"suite-{os.urandom(4).hex()}"
        yield found
        found.close()


def test_a_job_runs_and_completes(jobs: Jobs) -> None:
    job_id = jobs.submit("echo out; echo err >&2; pwd")
    (record,) = jobs.ended(job_id)
    assert (record.state, record.exit_code, record.signal) == ("COMPLETED", 0, 0)
    assert record.restart_count == 0
    assert record.name == f"{jobs.run}.stage.001"
    assert jobs.log.read_text().splitlines() == ["out", "err", str(jobs.folder)]
    assert record.submitted_at <= record.started_at <= record.ended_at


def test_exit_codes_are_passed_on(jobs: Jobs) -> None:
    codes = (1, 75, 76)
    records = jobs.ended(*[jobs.submit(f"exit {code}") for code in codes])
    assert [(r.state, r.exit_code, r.signal) for r in records] == [("FAILED", code, 0) for code in codes]


def test_a_signal_that_ended_the_program_is_told(jobs: Jobs) -> None:
    (record,) = jobs.ended(jobs.submit("kill -SEGV $$"))
    assert (record.state, record.exit_code, record.signal) == ("FAILED", 0, 11)


def test_a_program_that_is_not_there(jobs: Jobs) -> None:
    (record,) = jobs.ended(jobs.submit(["/no/such/program"]))
    assert (record.state, record.exit_code) == ("FAILED", 127)


@pytest.mark.parametrize("first", ["sleep 1; echo first", "sleep 1; echo first; exit 3"])
def test_a_job_waits_for_another_however_it_ends(jobs: Jobs, first: str) -> None:
    one = jobs.submit(first)
    two = jobs.submit("echo second", after=[one])
    waiting = jobs.record(two)
    assert (waiting.state, waiting.reason) == ("PENDING", "Dependency")
    before, after = jobs.ended(one, two)
    assert jobs.log.read_text().splitlines() == ["first", "second"]
    assert after.started_at >= int(before.ended_at)
    assert after.state == "COMPLETED"


def test_a_cancelled_parent_counts_as_ended(jobs: Jobs) -> None:
    one = jobs.submit("echo never", held=True)
    two = jobs.submit("echo second", after=[one])
    jobs.scheduler.cancel([one])
    assert [r.state for r in jobs.ended(one, two)] == ["CANCELLED", "COMPLETED"]


def test_an_unknown_parent_is_no_reason_to_wait(jobs: Jobs) -> None:
    (record,) = jobs.ended(jobs.submit("true", after=["4999999"]))
    assert record.state == "COMPLETED"


def test_a_held_job_waits_for_its_release(jobs: Jobs) -> None:
    job_id = jobs.submit("echo ran", held=True)
    record = jobs.record(job_id)
    assert (record.state, record.held) == ("PENDING", True)
    jobs.scheduler.release(job_id)
    (record,) = jobs.ended(job_id)
    assert (record.state, record.held) == ("COMPLETED", False)


def test_cancelling_a_pending_job(jobs: Jobs) -> None:
    job_id = jobs.submit("echo never", held=True)
    jobs.scheduler.cancel([job_id])
    (record,) = jobs.ended(job_id)
    assert record.state == "CANCELLED"
    assert not jobs.log.exists()


def test_cancelling_a_running_job_reaches_its_handler(jobs: Jobs) -> None:
    job_id = jobs.submit("trap 'echo saved; exit 75' TERM; echo up; while :; do sleep 0.1; done")
    jobs.says("up")
    jobs.scheduler.cancel([job_id])
    (record,) = jobs.ended(job_id)
    assert record.state == "CANCELLED"
    assert record.cancelled_by == str(os.getuid())
    assert "saved" in jobs.log.read_text()


def test_cancelling_what_is_over_or_unknown_is_no_error(jobs: Jobs) -> None:
    job_id = jobs.submit("true")
    (before,) = jobs.ended(job_id)
    jobs.scheduler.cancel([job_id, "4999999"])
    assert jobs.ended(job_id)[0].state == before.state == "COMPLETED"


def test_tokens_find_jobs_of_any_state(jobs: Jobs) -> None:
    over, waiting = jobs.spec("true"), jobs.spec("true")
    first = jobs.submit_spec(over)
    second = jobs.submit_spec(waiting, held=True)
    jobs.ended(first)
    absent = f"{jobs.run}.stage.999"
    wanted = {over.token: (first,), waiting.token: (second,)}

    def found(seen: Any) -> bool:
        return {t: tuple(ids) for t, ids in seen.tokens.items() if ids} == wanted

    end = 60
    while end and not found(seen := jobs.scheduler.observe([], tokens=[*wanted, absent])):
        end -= 1
        time.sleep(0.5)
    assert found(seen), seen
    assert seen.queue_answered
    assert {record.job_id for record in seen.records} >= {first, second}


def test_the_same_token_twice_is_two_jobs_and_both_are_told(jobs: Jobs) -> None:
    job = jobs.spec("true")
    ids = [jobs.submit_spec(job, held=True), jobs.submit_spec(job, held=True)]
    seen = jobs.scheduler.observe([], tokens=[job.token])
    assert sorted(seen.tokens[job.token]) == sorted(ids)


def test_unknown_ids_are_unlisted_once_the_queue_has_answered(jobs: Jobs) -> None:
    job_id = jobs.submit("true", held=True)
    seen = jobs.observe(job_id, "4999999")
    assert seen.queue_answered
    assert seen.unlisted == {"4999999"}
    assert [r.job_id for r in seen.records] == [job_id]


def test_output_is_appended(jobs: Jobs) -> None:
    jobs.log.write_text("from before\n")
    jobs.ended(jobs.submit("echo now"))
    assert jobs.log.read_text() == "from before\nnow\n"


def test_env_from_reaches_the_job_and_no_file(jobs: Jobs) -> None:
    line = 'test "$SUITE_SECRET" = "$(printf %s s3cr3t-of)-the-suite" && test -z "$SUITE_NOISE"'
    job_id = jobs.submit(line, env_from=("SUITE_SECRET",))
    assert jobs.ended(job_id)[0].state == "COMPLETED"
    written = [p for p in jobs.folder.rglob("*") if p.is_file()]
    assert written
    assert not [p for p in written if SECRET.encode() in p.read_bytes()]


def test_env_from_that_is_not_set_is_refused_before_anything_is_sent(jobs: Jobs) -> None:
    with pytest.raises(SubmissionRejected, match="SUITE_MISSING"):
        jobs.submit("true", env_from=("SUITE_MISSING",))


def test_hostile_values_arrive_as_they_are(jobs: Jobs) -> None:
    hostile = "a'b\"c $(touch pwned) `touch pwned` ${HOME} \\ \n; touch pwned #"
    folder = jobs.folder / "it's a $(touch pwned) folder"
    folder.mkdir()
    program = "import os,sys; print(repr((sys.argv[1], os.environ['HOSTILE'], os.getcwd())))"
    job_id = jobs.submit([sys.executable, "-c", program, hostile], env={"HOSTILE": hostile}, chdir=folder)
    assert jobs.ended(job_id)[0].state == "COMPLETED"
    assert jobs.log.read_text().strip() == repr((hostile, hostile, str(folder)))
    assert not list(jobs.folder.rglob("pwned"))


@pytest.mark.parametrize("fields", [{"env": {"A;touch pwned": "x"}}, {"token": "x; touch pwned"}])
def test_names_that_could_break_a_script_are_refused(jobs: Jobs, fields: dict[str, Any]) -> None:
    with pytest.raises(TrainmasterError):
        jobs.scheduler.render(jobs.spec("true", **fields))


def test_a_folder_that_is_gone_is_refused(jobs: Jobs) -> None:
    with pytest.raises(SubmissionRejected, match="does not exist"):
        jobs.submit("true", chdir=jobs.folder / "gone")


def test_excluding_nodes_of_a_pending_job(jobs: Jobs) -> None:
    node = "a1" if jobs.scheduler.kind == "slurm" else "local-0"
    job_id = jobs.submit("true", held=True)
    jobs.scheduler.exclude(job_id, [node])
    jobs.scheduler.release(job_id)
    (record,) = jobs.ended(job_id)
    assert record.state == "COMPLETED"
    assert node not in record.nodes.split(",")


def test_a_job_that_is_over_cannot_be_changed(jobs: Jobs) -> None:
    job_id = jobs.submit("true")
    jobs.ended(job_id)
    with pytest.raises(SchedulerError):
        jobs.scheduler.exclude(job_id, ["a1"])


def test_facts_have_the_agreed_keys(jobs: Jobs) -> None:
    facts = jobs.scheduler.facts()
    assert facts["reachable"] is True
    for name, partition in facts["partitions"].items():
        assert name
        assert {"default", "nodes", "max_time_s", "cpus_per_node", "up"} <= set(partition)
    assert {"max_submit_jobs", "max_jobs", "max_array_size"} <= set(facts["limits"])


def test_a_job_outlives_the_command_that_submitted_it(jobs: Jobs) -> None:
    """The submitter's own process group is not the job's, and nobody waits on its pipes."""
    job_id = jobs.submit(f"sleep 0.5; ps -o pgid= -p $$ > {shlex.quote(str(jobs.folder))}/pgid")
    jobs.ended(job_id)
    assert int((jobs.folder / "pgid").read_text()) != os.getpgid(0)
