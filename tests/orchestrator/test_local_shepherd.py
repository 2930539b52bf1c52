"""Limits, signals and node loss on the local scheduler, with real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.schedulers.local import queue
from orchestrator.schedulers.local.backend import LocalScheduler
from orchestrator.schedulers.local.schema import connect
from resiliency.errors import SchedulerError
from tests.orchestrator import local_jobs
from tests.orchestrator.local_jobs import Jobs, gone

LOOP = "while :; do sleep 0.05; done"
DEAF = "trap '' TERM USR2; echo up; " + LOOP


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with local_jobs.local(tmp_path) as found:
        yield found


def attempt(jobs: Jobs, job_id: str) -> dict[str, Any]:
    with connect(scheduler(jobs).path) as db:
        return dict(queue.current(db, int(job_id)))


def scheduler(jobs: Jobs) -> LocalScheduler:
    assert isinstance(jobs.scheduler, LocalScheduler)
    return jobs.scheduler


def pids(jobs: Jobs) -> list[int]:
    """What the test's jobs wrote down about themselves."""
    return [int(line) for p in jobs.folder.glob("*.pid") for line in p.read_text().split()]


def states(jobs: Jobs, job_id: str) -> list[tuple[int, str]]:
    return [(r.restart_count, r.state) for r in jobs.observe(job_id).records]


def test_the_warning_comes_before_the_limit_and_a_job_that_heeds_it_ends_itself(
    jobs: Jobs,
) -> None:
    job_id = jobs.submit(f"trap 'exit 75' USR2; {LOOP}", time_limit_s=20, signal_lead_s=19)
    (record,) = jobs.ended(job_id)
    assert (record.state, record.exit_code) == ("FAILED", 75)
    assert record.ended_at - record.started_at < 20  # type: ignore[operator]


def test_the_warning_reaches_the_batch_process_alone(jobs: Jobs) -> None:
    child = f"trap 'echo child-heard' USR2; echo child-up; {LOOP}"
    job_id = jobs.submit(
        f"trap 'echo parent-heard; exit 0' USR2; bash -c \"{child}\" & echo up; {LOOP}",
        time_limit_s=20,
        signal_lead_s=18,
    )
    (record,) = jobs.ended(job_id)
    assert record.state == "COMPLETED"
    assert "parent-heard" in jobs.log.read_text()
    assert "child-up" in jobs.log.read_text()
    assert "child-heard" not in jobs.log.read_text()


def test_a_job_over_its_limit_is_timeout_and_nothing_of_it_survives(jobs: Jobs) -> None:
    deaf = "trap '' TERM HUP INT; echo $$ >> deaf.pid; exec sleep 600"
    job_id = jobs.submit(
        f'setsid bash -c "{deaf}" & env -i bash -c "{deaf}" & (setsid bash -c "{deaf}" &) ; {DEAF}',
        time_limit_s=2,
    )
    (record,) = jobs.ended(job_id)
    assert (record.state, record.exit_code, record.signal) == ("TIMEOUT", 0, 0)
    assert len(pids(jobs)) == 3
    assert gone(pids(jobs))


def test_a_job_that_ignores_term_is_killed_after_kill_wait(jobs: Jobs) -> None:
    job_id = jobs.submit(DEAF)
    jobs.says("up")
    jobs.scheduler.cancel([job_id])
    assert jobs.ended(job_id)[0].state == "CANCELLED"


def test_a_stopped_job_is_woken_to_be_cancelled(jobs: Jobs) -> None:
    job_id = jobs.submit("trap 'echo heard; exit 0' TERM; echo up; kill -STOP $$; " + LOOP)
    jobs.says("up")
    jobs.scheduler.cancel([job_id])
    assert jobs.ended(job_id)[0].state == "CANCELLED"
    assert "heard" in jobs.log.read_text()


def test_what_a_job_leaves_behind_ends_with_it(jobs: Jobs) -> None:
    job_id = jobs.submit("setsid sleep 600 & echo $! > left.pid; exit 0")
    assert jobs.ended(job_id)[0].state == "COMPLETED"
    assert gone(pids(jobs))


@pytest.mark.parametrize("again", [False, True])
def test_a_killed_shepherd_is_a_lost_node_and_leaves_no_orphan(jobs: Jobs, again: bool) -> None:
    line = (
        "echo $$ > main.pid; setsid bash -c 'echo $$ > own-session.pid; exec sleep 600' & "
        "env -i bash -c 'echo $$ > no-env.pid; exec sleep 600' & "
        'test "$TRAINMASTER_LOCAL_RESTART_COUNT" = 0 || exit 0; '
        "until [ -s own-session.pid ] && [ -s no-env.pid ]; do sleep 0.05; done; echo up; "
    )
    job_id = jobs.submit(line + LOOP, requeue=again)
    jobs.says("up")
    before = pids(jobs)
    assert len(before) == 3
    os.kill(attempt(jobs, job_id)["shepherd_pid"], signal.SIGKILL)
    (record,) = jobs.ended(job_id)
    assert gone(before)
    rows = jobs.observe(job_id).records
    assert (rows[0].state, rows[0].exit_code, rows[0].reason[:8]) == ("NODE_FAIL", None, "NodeDown")
    if again:
        assert states(jobs, job_id) == [(0, "NODE_FAIL"), (1, "COMPLETED")]
        assert record.restart_count == 1
    else:
        assert states(jobs, job_id) == [(0, "NODE_FAIL")]


def test_fail_node_rehearses_exactly_that(jobs: Jobs) -> None:
    job_id = jobs.submit("echo $$ > main.pid; echo up; " + LOOP)
    jobs.says("up")
    scheduler(jobs).fail_node(job_id)
    assert states(jobs, job_id) == [(0, "NODE_FAIL")]
    assert gone(pids(jobs))
    with pytest.raises(SchedulerError, match="on no node"):
        scheduler(jobs).fail_node(job_id)


def test_a_reboot_is_a_lost_node(jobs: Jobs) -> None:
    job_id = jobs.submit("echo $$ > main.pid; echo up; " + LOOP)
    jobs.says("up")
    row = attempt(jobs, job_id)
    queue.note(scheduler(jobs).path, int(job_id), 0, row["tag"], boot_id="another boot")
    assert [r.reason for r in jobs.ended(job_id)] == ["NodeDown: the machine was rebooted"]
    # In truth there was none: the shepherd learns that it lost the job, and ends what it started.
    os.kill(row["shepherd_pid"], signal.SIGUSR1)  # it would look by itself in a few seconds
    assert gone(pids(jobs))


def test_a_pid_that_is_used_again_is_not_the_shepherd(jobs: Jobs) -> None:
    job_id = jobs.submit("echo up; " + LOOP)
    jobs.says("up")
    row = attempt(jobs, job_id)
    os.kill(row["shepherd_pid"], signal.SIGSTOP)  # as good as dead: it records nothing
    queue.note(
        scheduler(jobs).path, int(job_id), 0, row["tag"],
        shepherd_pid=os.getpid(), shepherd_start=row["shepherd_start"],
    )  # fmt: skip
    assert jobs.ended(job_id)[0].state == "NODE_FAIL"
    os.kill(row["shepherd_pid"], signal.SIGCONT)


def test_a_terminated_shepherd_stays_to_record_the_end(jobs: Jobs) -> None:
    job_id = jobs.submit("echo up; sleep 1; exit 7")
    jobs.says("up")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        os.kill(attempt(jobs, job_id)["shepherd_pid"], number)
    (record,) = jobs.ended(job_id)
    assert (record.state, record.exit_code) == ("FAILED", 7)


def test_requeue_keeps_the_id_and_the_history(jobs: Jobs) -> None:
    job_id = jobs.submit(
        f'test "${{TRAINMASTER_LOCAL_RESTART_COUNT}}" -ge 2 && exit 0; echo up; {LOOP}', requeue=True
    )
    jobs.says("up")
    child = jobs.submit("echo child", after=[job_id])
    scheduler(jobs).requeue(job_id)
    jobs.says("up\nup")
    assert states(jobs, job_id) == [(0, "REQUEUED"), (1, "RUNNING")]
    assert jobs.record(child).state == "PENDING"
    scheduler(jobs).preempt(job_id)
    jobs.ended(job_id, child)
    assert states(jobs, job_id) == [(0, "REQUEUED"), (1, "PREEMPTED"), (2, "COMPLETED")]
    scheduler(jobs).requeue(job_id)
    jobs.ended(job_id)
    assert [n for n, _ in states(jobs, job_id)] == [0, 1, 2, 3]


def test_a_job_not_to_be_requeued(jobs: Jobs) -> None:
    job_id = jobs.submit("echo up; " + LOOP)
    jobs.says("up")
    with pytest.raises(SchedulerError, match="not to be requeued"):
        scheduler(jobs).requeue(job_id)
    scheduler(jobs).preempt(job_id)
    jobs.ended(job_id)
    assert states(jobs, job_id) == [(0, "PREEMPTED")]


def test_preemption_gives_its_grace(jobs: Jobs) -> None:
    job_id = jobs.submit(f"trap 'sleep 2; echo saved; exit 75' TERM; echo up; {LOOP}")
    jobs.says("up")
    scheduler(jobs).preempt(job_id, grace_s=30)  # more than the KillWait of one second
    assert jobs.ended(job_id)[0].state == "PREEMPTED"
    assert "saved" in jobs.log.read_text()


def test_a_cancel_during_preemption_wins(jobs: Jobs) -> None:
    job_id = jobs.submit(f"trap 'echo heard; sleep 2; exit 75' TERM; echo up; {LOOP}", requeue=True)
    jobs.says("up")
    scheduler(jobs).preempt(job_id, grace_s=30)
    jobs.says("heard")
    jobs.scheduler.cancel([job_id])
    # The job itself, still ending, can already be told by whom.
    assert jobs.record(job_id).cancelled_by == str(os.getuid())
    jobs.ended(job_id)
    assert states(jobs, job_id) == [(0, "CANCELLED")]


def test_a_job_that_cannot_be_set_up_says_why(jobs: Jobs) -> None:
    folder = jobs.folder / "going"
    folder.mkdir()
    job_id = jobs.submit("true", chdir=folder, held=True)
    folder.rmdir()
    jobs.scheduler.release(job_id)
    (record,) = jobs.ended(job_id)
    assert (record.state, record.exit_code, record.signal) == ("FAILED", 0, 53)
    assert str(folder) in record.reason


def test_emulated_nodes_and_the_umask_of_the_submitter(jobs: Jobs) -> None:
    line = 'echo "$TRAINMASTER_LOCAL_JOB_ID $TRAINMASTER_LOCAL_NODELIST"; umask'
    before = os.umask(0o027)
    try:
        job_id = jobs.submit(line, nodes=3, exclude=("local-1",))
    finally:
        os.umask(before)
    assert jobs.ended(job_id)[0].nodes == "local-0,local-2,local-3"
    assert jobs.log.read_text().split("\n") == [f"{job_id} local-0,local-2,local-3", "0027", ""]
