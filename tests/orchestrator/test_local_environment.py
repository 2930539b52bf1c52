"""What a local job sees of its submitter's environment, and how it gets what it names."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.schedulers.local import spawn
from orchestrator.schedulers.local.backend import LocalScheduler
from orchestrator.schedulers.slurm import commands
from tests.orchestrator import local_jobs
from tests.orchestrator.local_jobs import Jobs

ROOT = Path(__file__).parents[2]
SECRET = {"TOKEN_A": "tok3n-value-a"}


def environ(**more: str) -> dict[str, str]:
    return {**os.environ, "NOISE": "x", **more}


def as_user_with(jobs: Jobs, **more: str) -> LocalScheduler:
    return LocalScheduler(jobs.folder / "home", environ=environ(**more))


def test_both_backends_give_a_job_the_same_variables() -> None:
    assert list(spawn.BASE) == [n for n in commands.PASSED if not n.startswith("SLURM_")]


def test_a_job_gets_the_short_list_its_own_and_what_it_names(tmp_path: Path) -> None:
    options: dict[str, Any] = {"environ": environ(EXTRA="e", **SECRET), "pass_env": ["EXTRA", "UNSET"]}
    with local_jobs.local(tmp_path, **options) as jobs:
        job_id = jobs.submit(
            [sys.executable, "-c", "import os; print(sorted(os.environ))"],
            env={"OWN": "1"}, env_from=("TOKEN_A",),
        )  # fmt: skip
        jobs.ended(job_id)
        names = set(ast.literal_eval(jobs.log.read_text()))
    ours = {n for n in names if n.startswith("TRAINMASTER_LOCAL_")}
    assert ours == {spawn.ENV_JOB_ID, spawn.ENV_RESTART_COUNT, spawn.ENV_NODELIST, spawn.ENV_TAG}
    of_the_shell = {"PWD", "OLDPWD", "SHLVL", "_"}
    assert names - ours - of_the_shell - set(spawn.BASE) == {"OWN", "TOKEN_A", "EXTRA"}


def test_a_job_waits_for_a_command_that_has_what_it_names(tmp_path: Path) -> None:
    with local_jobs.local(tmp_path, environ=environ()) as jobs:
        mine, scheduler = as_user_with(jobs, **SECRET), jobs.scheduler
        jobs.scheduler = mine
        job_id = jobs.submit('test "$TOKEN_A" = tok3n-value-a', env_from=("TOKEN_A",), held=True)
        jobs.scheduler = scheduler
        scheduler.release(job_id)
        record = jobs.record(job_id)
        assert record.state == "PENDING"
        assert record.reason.startswith("EnvNotSet: TOKEN_A")
        other = jobs.submit("true")  # and nobody has to wait behind it
        assert jobs.ended(other)[0].state == "COMPLETED"
        mine.observe([])
        assert jobs.ended(job_id)[0].state == "COMPLETED"


def test_the_next_job_gets_it_from_the_shepherd_before(tmp_path: Path) -> None:
    with local_jobs.local(tmp_path, environ=environ(**SECRET), max_running=1) as jobs:
        first = jobs.submit("sleep 1")
        second = jobs.submit('test "$TOKEN_A" = tok3n-value-a', env_from=("TOKEN_A",))
        jobs.scheduler = as_user_with(jobs)
        assert [r.state for r in jobs.ended(first, second)] == ["COMPLETED", "COMPLETED"]


_WITHIN = """
import sys
from pathlib import Path
from tests.orchestrator.local_jobs import Jobs
from orchestrator.schedulers.local.backend import LocalScheduler
folder = Path(sys.argv[1])
jobs = Jobs(LocalScheduler(folder / "home"), folder, run="within-1")
(folder / "inner").write_text(jobs.submit("sleep 0.5; echo inner >> inner-ran"))
for held in sys.argv[2:]:
    jobs.scheduler.release(held)
"""


@pytest.mark.parametrize("by", ["end", "poll"])
def test_a_command_within_a_job_lets_the_shepherd_start_others(tmp_path: Path, by: str) -> None:
    """Started by the job they would lack what their own submitter had, and die with the job."""
    options: dict[str, Any] = {"environ": environ(EXTRA="e", **SECRET), "pass_env": ["EXTRA"]}
    with local_jobs.local(tmp_path, **options) as jobs:
        line = 'test "$TOKEN_A" = tok3n-value-a && sleep 0.5 && echo named >> inner-ran'
        named = jobs.submit(line, env_from=("TOKEN_A",), held=True)
        passed = jobs.submit('test "$EXTRA" = e && echo passed >> inner-ran', held=True)
        stay = "" if by == "end" else "; until [ $(wc -l < inner-ran) = 3 ]; do sleep 0.1; done"
        jobs.scheduler = as_user_with(jobs, EXTRA="e", **SECRET)  # does not pass EXTRA on
        program = jobs.folder / "within.py"
        program.write_text(_WITHIN)
        outer = jobs.submit(
            f"touch inner-ran; cd {ROOT}; PYTHONPATH=. {sys.executable} {program} {tmp_path} {named} {passed}"
            f"; cd {tmp_path}{stay}"
        )
        (record,) = jobs.ended(outer)
        inner = (tmp_path / "inner").read_text()
        jobs.live.append(inner)
        assert record.state == "COMPLETED"
        assert [r.state for r in jobs.ended(inner, named, passed)] == ["COMPLETED"] * 3
        assert sorted((tmp_path / "inner-ran").read_text().split()) == ["inner", "named", "passed"]


def test_no_file_and_no_row_holds_a_value(tmp_path: Path) -> None:
    with local_jobs.local(tmp_path, environ=environ(**SECRET)) as jobs:
        job_id = jobs.submit("sleep 0.3", env_from=("TOKEN_A",))
        files = [p for p in tmp_path.rglob("*") if p.is_file()]
        assert any(b"TOKEN_A" in p.read_bytes() for p in files)
        jobs.ended(job_id)
        files = [p for p in tmp_path.rglob("*") if p.is_file()]
        assert not [p for p in files if b"tok3n-value-a" in p.read_bytes()]
