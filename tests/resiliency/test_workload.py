"""The client in a training process: quiet where nobody listens, cheap, and never the cause of a death."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from resiliency import contract
from resiliency.errors import StorageError
from resiliency.events import Event
from resiliency.heartbeat import Heartbeat
from resiliency.journal import JournalWriter, read_run
from resiliency.steprecord import read
from resiliency.workload import Workload
from tests.clocks import StandingClock


def listening(tmp_path: Path, clock: StandingClock | None = None, **more: object) -> Workload:
    journal = JournalWriter(tmp_path / "journal", run="r", writer="w")
    return Workload(journal=journal, clock=clock or StandingClock(100.0), **more)  # type: ignore[arg-type]


def told(tmp_path: Path) -> list[Event]:
    return read_run(tmp_path / "journal")[0]


def environment(tmp_path: Path, rank: int = 0) -> dict[str, str]:
    return {
        contract.ENV_RUN: "demo-1",
        contract.ENV_RUN_DIR: str(tmp_path),
        contract.ENV_STAGE: "train",
        contract.ENV_ATTEMPT: "c1/7.0",
        contract.ENV_CYCLE: "2",
        contract.ENV_NODE: "n1",
        contract.ENV_STOP_FILE: str(tmp_path / "stop"),
        "RANK": str(rank),
    }


def test_outside_an_allocation_everything_is_a_quiet_no_op(tmp_path: Path) -> None:
    workload = Workload.from_env({})
    workload.report(step=1, loss=1.0)
    workload.event("eval.result", metrics={})
    workload.error("code_error", "x")
    assert not workload.should_stop()
    workload.close()
    assert list(tmp_path.iterdir()) == []


def test_progress_says_what_the_process_spent_its_time_on(tmp_path: Path) -> None:
    clock = StandingClock(100.0)
    work = listening(tmp_path, clock, heartbeat=Heartbeat(None, now=clock.mono))
    work.report(step=0, section="load")
    clock.now += 3.0
    work.report(step=1)
    clock.now += 12.0
    work.waited("data", 2.0)
    assert list(work.waiting("data", iter("ab"))) == ["a", "b"]
    work.report(step=2)
    [word] = told(tmp_path)
    spent = word.data["spent"]
    assert (word.data["step"], spent["load"]) == (2, 3.0)
    assert spent["data"] == pytest.approx(2.0, abs=0.1)
    assert spent["step"] + spent["data"] == pytest.approx(12.0, abs=0.01)


def test_a_program_states_its_work_with_its_start(tmp_path: Path) -> None:
    work = listening(tmp_path)
    work.timing({"imports": 1.23456}, 1, flops_per_token=6e9, gpus=8)
    [event] = told(tmp_path)
    assert event.data == {"phases": {"imports": 1.2346}, "step": 1, "flops_per_token": 6e9, "gpus": 8}


def test_the_environment_says_who_is_speaking(tmp_path: Path) -> None:
    workload = Workload.from_env(environment(tmp_path))
    workload.event("workload.resumed", step=5)
    workload.close()
    [event] = told(tmp_path)
    assert (event.run, event.stage, event.attempt, event.cycle) == ("demo-1", "train", "c1/7.0", 2)
    assert (event.node, event.rank, event.writer) == ("n1", 0, "c1-7.0-train-rank0")


def test_other_ranks_are_silent_but_can_be_stopped(tmp_path: Path) -> None:
    workload = Workload.from_env(environment(tmp_path, rank=3))
    workload.report(step=1)
    workload.event("eval.result", metrics={})
    workload.close()
    assert not (tmp_path / "journal").exists()
    assert not workload.should_stop()
    (tmp_path / "stop").touch()
    assert workload.should_stop()


def test_progress_is_told_once_an_interval_with_the_latest_word(tmp_path: Path) -> None:
    clock = StandingClock(100.0)
    workload = listening(tmp_path, clock, interval_s=10.0)
    for step in range(1, 26):
        clock.sleep(1.0)
        workload.report(step=step, loss=5.0 - step, tokens=step * 64)
    assert [event.data["step"] for event in told(tmp_path)] == [10, 20]
    workload.close()
    last = told(tmp_path)[-1].data
    assert (last["step"], last["loss"], last["tokens"], last["section"]) == (25, -20.0, 1600, "step")
    assert last["steps_per_s"] == 1.0


def test_pending_progress_comes_before_a_fact(tmp_path: Path) -> None:
    workload = listening(tmp_path)
    workload.report(step=7)
    workload.event("checkpoint.committed", step=7, path="p")
    assert [event.type for event in told(tmp_path)] == ["progress", "checkpoint.committed"]


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_is_told_as_text(tmp_path: Path, loss: float) -> None:
    workload = listening(tmp_path)
    workload.report(step=1, loss=loss)
    workload.event("eval.result", metrics={"bpb": loss, "all": [loss, 1.0]})
    progress, result = told(tmp_path)
    assert progress.data["loss"] == repr(loss)
    assert result.data == {"metrics": {"bpb": repr(loss), "all": [repr(loss), 1.0]}}


def test_scalars_of_array_libraries_become_numbers(tmp_path: Path) -> None:
    class Scalar:
        def __float__(self) -> float:
            return 2.5

    workload = listening(tmp_path)
    workload.report(step=1, loss=Scalar())  # type: ignore[arg-type]
    workload.event("eval.result", metrics={"x": Scalar(), "path": Path("p"), "raw": object})
    progress, result = told(tmp_path)
    assert progress.data["loss"] == 2.5
    assert result.data["metrics"]["x"] == 2.5 and result.data["metrics"]["path"] == "p"


def test_an_error_is_the_program_s_last_word(tmp_path: Path) -> None:
    workload = listening(tmp_path)
    workload.error("data_error", "no file", hint="run prepare")
    assert told(tmp_path)[0].data == {"category": "data_error", "message": "no file", "hint": "run prepare"}


def test_after_close_nothing_is_written_and_nothing_fails(tmp_path: Path) -> None:
    workload = listening(tmp_path)
    workload.close()
    workload.report(step=1)
    workload.event("eval.result", metrics={})
    workload.close()
    assert told(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_costs_progress_but_not_the_training(tmp_path: Path) -> None:
    workload = listening(tmp_path, interval_s=0.0)
    full = os.open("/dev/full", os.O_WRONLY)
    assert workload._journal is not None
    good, workload._journal._fd = workload._journal._fd, full
    workload.report(step=1, loss=1.0)
    assert workload.lost == 1 and "free space" in (workload.problem.hint if workload.problem else "")
    with pytest.raises(StorageError):  # a fact that cannot be kept is an error of the program's own
        workload.event("checkpoint.committed", step=1)
    workload._journal._fd = good
    os.close(full)
    workload.report(step=2, loss=1.0)
    assert [event.data["step"] for event in told(tmp_path)] == [2]


def test_every_rank_has_a_heartbeat_whoever_writes_the_journal(tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    env = environment(tmp_path, rank=3) | {contract.ENV_RECORDS: str(records)}
    workload = Workload.from_env(env)
    workload.report(step=0, section="load")
    assert (seen := read(records / "rank-3")) is not None and (seen.section, seen.step) == ("load", 0)
    for step in (1, 2, 3):
        workload.report(step=step, loss=2.0, tokens=64, seconds=0.5, compute_s=0.25)
    seen = read(records / "rank-3")
    assert seen is not None and (seen.section, seen.step, seen.loss, seen.tokens) == ("step", 3, 2.0, 64)
    assert seen.step_times[-1] == 0.5 and seen.compute_times[-1] == 0.25
    with workload.section("checkpoint"), workload.collective():
        seen = read(records / "rank-3")
        assert seen is not None and (seen.section, seen.in_collective) == ("checkpoint", True)
    workload.close()
    seen = read(records / "rank-3")
    assert seen is not None and (seen.section, seen.in_collective) == ("done", False)
    assert not (tmp_path / "journal").exists()


def test_what_a_start_was_spent_on_is_told(tmp_path: Path) -> None:
    workload = listening(tmp_path)
    workload.timing({"imports": 2.00004, "model": 0.5}, step=12)
    [event] = told(tmp_path)
    assert event.type == "workload.timing"
    assert event.data == {"phases": {"imports": 2.0, "model": 0.5}, "step": 12}


def test_the_client_loads_nothing_heavy() -> None:
    code = (
        "import sys, resiliency.workload\n"
        "sys.exit(', '.join({'torch', 'numpy', 'sqlite3', 'pydantic', 'rich'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
