"""The local queue: room, order, many processes at once, and files it cannot use."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.schedulers.local import passes
from orchestrator.schedulers.local.backend import LocalScheduler
from orchestrator.schedulers.local.schema import transaction
from resiliency.errors import SchedulerError, SchedulerUnreachable, SubmissionRejected
from resiliency.jobstate import JobRecord
from tests.orchestrator import local_jobs
from tests.orchestrator.local_jobs import Jobs

ROOT = Path(__file__).parents[2]


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with local_jobs.local(tmp_path) as found:
        yield found


def most_at_once(records: list[JobRecord]) -> int:
    changes = [(r.started_at, 1) for r in records] + [(r.ended_at, -1) for r in records]
    now = most = 0
    for _, change in sorted(changes, key=lambda c: (c[0] or 0, c[1])):
        now += change
        most = max(most, now)
    return most


def test_no_more_run_than_allowed_and_the_rest_follow_by_themselves(tmp_path: Path) -> None:
    with local_jobs.local(tmp_path, cpus=16, max_running=2) as jobs:
        ids = [jobs.submit("sleep 0.4") for _ in range(6)]
        # The shepherds see to it: nobody looks until all could have run.
        (last,) = jobs.ended(ids[-1])
        assert most_at_once(jobs.ended(*ids)) == 2
        assert last.state == "COMPLETED"


def test_the_limit_is_remembered_by_commands_that_do_not_name_it(tmp_path: Path) -> None:
    with local_jobs.local(tmp_path, max_running=1) as jobs:
        first = jobs.submit("sleep 1")
        jobs.scheduler = LocalScheduler(tmp_path / "home")
        assert jobs.scheduler.facts()["limits"]["max_jobs"] == 1
        second = jobs.submit("true")
        assert jobs.record(second).reason == "Resources"
        assert most_at_once(jobs.ended(first, second)) == 1


def test_a_job_wider_than_the_machine_runs_alone_and_is_not_overtaken(jobs: Jobs) -> None:
    first = jobs.submit("sleep 1")
    wide = jobs.submit("sleep 0.3", nodes=8, cpus_per_node=64)
    small = jobs.submit("true")
    records = jobs.ended(first, wide, small)
    assert [r.state for r in records] == ["COMPLETED"] * 3
    assert most_at_once(records) == 1
    assert records[1].started_at < records[2].started_at  # type: ignore[operator]


def test_ids_increase_and_files_are_the_users_alone(jobs: Jobs) -> None:
    ids = [int(jobs.submit("true", held=True)) for _ in range(3)]
    assert ids == sorted(set(ids))
    folder = jobs.folder / "home" / "local"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "queue.db").stat().st_mode & 0o777 == 0o600


def test_a_parent_that_is_no_job_id_is_refused(jobs: Jobs) -> None:
    with pytest.raises(SubmissionRejected, match="not-a-job"):
        jobs.submit("true", after=["not-a-job"])
    assert jobs.scheduler.observe(["1"]).unlisted == {"1"}


def test_a_parent_id_beyond_any_number_is_unknown(jobs: Jobs) -> None:
    assert jobs.ended(jobs.submit("true", after=["9" * 30]))[0].state == "COMPLETED"


_SUBMITTER = """
import sys
from pathlib import Path
from tests.orchestrator.local_jobs import Jobs
from orchestrator.schedulers.local.backend import LocalScheduler
jobs = Jobs(LocalScheduler(Path(sys.argv[1]) / "home"), Path(sys.argv[1]), run="many-" + sys.argv[2])
for n in range(5):
    print(jobs.submit(f"echo x >> ran-$TRAINMASTER_LOCAL_JOB_ID"), flush=True)
    jobs.scheduler.observe(jobs.live)
"""


def test_many_submitters_and_observers_at_once(jobs: Jobs) -> None:
    """Each job exists once and runs once, whoever submits and looks at the same time."""
    jobs.submit("true")
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _SUBMITTER, str(jobs.folder), str(n)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for n in range(4)
    ]
    while any(one.poll() is None for one in started):
        jobs.scheduler.observe(jobs.live)
        time.sleep(0.01)
    ids = [line for one in started for line in one.communicate()[0].split()]
    assert len(set(ids)) == 20
    assert {r.state for r in jobs.ended(*ids)} == {"COMPLETED"}
    assert [(jobs.folder / f"ran-{i}").read_text() for i in ids] == ["x\n"] * 20


def test_a_pipe_of_the_caller_closes_when_the_caller_ends(jobs: Jobs) -> None:
    """`trainmaster submit | tee` must not hang for as long as the jobs run."""
    program = (
        "import sys; from pathlib import Path; from tests.orchestrator.local_jobs import Jobs;"
        "from orchestrator.schedulers.local.backend import LocalScheduler;"
        "print(Jobs(LocalScheduler(Path(sys.argv[1]) / 'home'), Path(sys.argv[1])).submit('sleep 600'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(jobs.folder)],
        capture_output=True, text=True, timeout=60, cwd=ROOT, check=True,
    )  # fmt: skip
    jobs.live.append(done.stdout.strip())
    assert not jobs.record(done.stdout.strip()).ended


def test_a_queue_of_a_newer_version_is_refused_with_the_way_out(jobs: Jobs) -> None:
    job_id = jobs.submit("true", held=True)
    path = jobs.folder / "home" / "local" / "queue.db"
    for version in (99, 1):
        with sqlite3.connect(path) as db:
            db.execute(f"PRAGMA user_version = {version}")
        db.close()
        if version == 99:
            with pytest.raises(SchedulerError, match="newer Trainmaster"):
                jobs.submit("true")
            seen = jobs.observe(job_id)
            assert not seen.queue_answered
            assert not seen.unlisted
            assert "newer" in seen.problems[0]


def test_a_file_that_is_no_queue_says_so_and_concludes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "home" / "local" / "queue.db"
    path.parent.mkdir(parents=True)
    path.write_text("this is not a database, and longer than a header of one hundred bytes" * 9)
    scheduler = LocalScheduler(tmp_path / "home")
    seen = scheduler.observe(["1"])
    assert not seen.queue_answered and not seen.unlisted and seen.problems
    with pytest.raises(SchedulerUnreachable, match=r"queue\.db"):
        scheduler.cancel(["1"])


def test_jobs_of_another_host_are_left_to_it_until_it_is_long_silent(jobs: Jobs) -> None:
    job_id = jobs.submit("true", held=True)
    number, now = int(job_id), time.time()
    path = str(jobs.folder / "home" / "local" / "queue.db")
    with transaction(path) as db:
        db.execute("UPDATE job SET phase = 'running' WHERE id = ?", (number,))
        db.execute(
            """UPDATE attempt SET state = 'RUNNING', host = 'elsewhere', boot_id = 'x', tag = 't',
               shepherd_pid = 1, shepherd_start = 1, alive_at = ? WHERE job = ?""",
            (now, number),
        )
    assert jobs.record(job_id).state == "RUNNING"
    with transaction(path) as db:
        db.execute("UPDATE attempt SET alive_at = ?", (now - 11 * passes.ALIVE_EVERY_S,))
    record = jobs.record(job_id)
    assert record.state == "NODE_FAIL"
    assert "elsewhere" in record.reason


def test_many_jobs_are_looked_at_in_as_many_statements_as_few(jobs: Jobs) -> None:
    path = str(jobs.folder / "home" / "local" / "queue.db")
    jobs.submit("true", held=True)
    with transaction(path) as db:
        for _ in range(2000):
            db.execute(
                """INSERT INTO job (token, script, chdir, output, nodes, cpus, gpus, requeue, env_from,
                   env_pass, excluded, held, phase, submitted_at) SELECT token, script, chdir, output,
                   nodes, cpus, gpus, requeue, env_from, env_pass, excluded, held, 'pending',
                   submitted_at FROM job WHERE id = 1"""
            )
        db.execute(
            """INSERT INTO attempt (job, restart_count, state, submitted_at)
               SELECT id, 0, 'PENDING', submitted_at FROM job WHERE id > 1"""
        )
    statements: list[str] = []
    real = sqlite3.connect

    def counted(*args: object, **options: object) -> sqlite3.Connection:
        db = real(*args, **options)  # type: ignore[arg-type,call-overload]
        db.set_trace_callback(statements.append)
        return db  # type: ignore[no-any-return]

    counts = []
    for size in (2, 2000):
        statements.clear()
        sqlite3.connect = counted  # type: ignore[assignment]
        try:
            seen = jobs.scheduler.observe([str(n) for n in range(1, size + 1)])
        finally:
            sqlite3.connect = real
        assert len(seen.records) == size
        counts.append(len(statements))
    assert counts[0] == counts[1]
