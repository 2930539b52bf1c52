"""models.cadence: by steps, by time, by cost and failures; what it says and when."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from models.cadence import LOOK_S, Cadence, Past, read_past
from models.settings import Checkpoint
from resiliency.daly import daly
from resiliency.journal import JournalWriter, read_run
from resiliency.workload import Workload
from tests.clocks import StandingClock


@dataclass
class Costs:
    stall_s: float | None = None
    save_s: float | None = None


def make(
    tmp_path: Path, past: Past, seconds: float = 600.0, interval: int | None = None
) -> tuple[Cadence, StandingClock, list[str]]:
    clock, said = StandingClock(), []
    work = Workload(journal=JournalWriter(tmp_path, run="r", writer="w"))
    cadence = Cadence(
        Checkpoint(interval=interval, seconds=seconds), work, past=lambda: past, clock=clock, tell=said.append
    )
    return cadence, clock, said


def chosen(tmp_path: Path) -> list[tuple[float, str]]:
    events, _ = read_run(tmp_path)
    return [(e.data["seconds"], e.data["reason"]) for e in events if e.type == "checkpoint.interval"]


def test_with_a_number_of_steps_time_says_nothing(tmp_path: Path) -> None:
    cadence, clock, _ = make(tmp_path, Past(), interval=20)
    clock.now += 1e6
    assert not cadence.overdue(1, Costs(1, 1))


def test_every_so_many_seconds_until_the_cost_is_known(tmp_path: Path) -> None:
    cadence, clock, said = make(tmp_path, Past())
    clock.now += 599
    assert not cadence.overdue(1, Costs())
    clock.now += 1
    assert cadence.overdue(2, Costs())
    cadence.started(0.1)
    assert not cadence.overdue(3, Costs())
    assert said == []


def test_then_by_cost_and_failure_rate_and_anew_only_when_it_matters(tmp_path: Path) -> None:
    cadence, clock, said = make(tmp_path, Past(failures=99, exposure_s=99 * 3600.0))
    for _ in range(5):
        cadence.stepped(0.5)
    costs = Costs(stall_s=2.0, save_s=10.0)
    cadence.overdue(10, costs)
    mtbf = (99 * 3600 + 86400 / 6.5e-3) / 100
    assert abs(cadence.seconds - daly(2.0, mtbf)) < 1
    assert "2.000 s" in said[0]
    # A few failures' difference is noise; a save that costs ten times as much is not.
    clock.now += LOOK_S
    cadence.overdue(20, Costs(stall_s=2.2, save_s=10.0))
    clock.now += LOOK_S
    cadence.overdue(30, Costs(stall_s=20.0, save_s=30.0))
    events = chosen(tmp_path)
    assert len(events) == 2
    assert events[1][0] > 2 * events[0][0]


def test_kept_to_what_is_left_of_the_allocation(tmp_path: Path) -> None:
    cadence, _, _ = make(tmp_path, Past(deadline=1000.0 + 300.0))
    cadence.overdue(1, Costs(stall_s=1.0, save_s=2.0))
    assert chosen(tmp_path) == [(100.0, "a third of what is left of the allocation")]


def test_that_a_save_waits_for_another_is_said_once(tmp_path: Path) -> None:
    cadence, _, said = make(tmp_path, Past(), interval=1)
    cadence.waits(5)
    cadence.waits(6)
    assert len(said) == 1
    assert "step 5 waits" in said[0]


def test_the_past_is_read_from_the_runs_journal(tmp_path: Path) -> None:
    env = {
        "TRAINMASTER_RUN_DIR": str(tmp_path),
        "TRAINMASTER_STAGE": "pretrain",
        "TRAINMASTER_ATTEMPT": "c/2.0",
    }
    with JournalWriter(tmp_path / "journal", run="r", writer="w") as journal:
        for attempt, stage in (("c/1.0", "pretrain"), ("c/1.0", "other"), ("c/2.0", "pretrain")):
            who = {"stage": stage, "attempt": attempt}
            journal.append("attempt.started", {"time_limit_s": 3600}, **who)
            journal.append("incident", {"kind": "rank_end"}, **who)
            journal.append("incident", {"kind": "straggler"}, **who)
    past = read_past(env)
    assert past.failures == 2
    assert past.deadline is not None
    assert past.exposure_s >= 0
    assert read_past({}) == Past()
