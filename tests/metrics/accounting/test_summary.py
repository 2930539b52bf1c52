"""Figures of a ledger: the run computed by hand, a simulated one with known truth, and what must add up."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import pytest

from metrics.accounting.figures import DEFINITIONS
from metrics.accounting.kinds import GROUPS
from metrics.accounting.summary import DIMENSIONS, Scope, Summary, summarise
from metrics.ledger import Ledger
from resiliency.errors import NotFound
from resiliency.events import Event
from tests.metrics.accounting.stories import RUN, Story, two_attempts
from tests.metrics.accounting.test_tracks import swapped
from tests.metrics.rundirs import lines, write

Make = Callable[..., Summary]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A ledger with one story, or none, summed up."""

    def made(events: list[Event] | None, scope: Scope | None = None, gpus: int = 4) -> Summary:
        ledger = Ledger.open(tmp_path / "ledger.db")
        if events is not None:
            run_dir = write(tmp_path / "runs" / RUN, {"w": lines(events)})
            (run_dir / "stages" / "train").mkdir(parents=True, exist_ok=True)
            text = json.dumps({"launch": {"gpus_per_node": gpus}})
            (run_dir / "stages" / "train" / "stage.json").write_text(text)
            ledger.ingest_run(run_dir)
        return summarise(ledger, scope)

    return made


def value(summary: Summary, name: str) -> float:
    figure = summary.figure(name)
    assert figure is not None and figure.value is not None, figure
    return figure.value


def test_the_run_computed_by_hand(make: Make) -> None:
    """tests/metrics/accounting/stories.py tells it, test_tiling.py has its waterfall."""
    found = make(two_attempts().events)
    assert value(found, "ettr") == pytest.approx((190 + 99) / 660, abs=1e-12)
    assert value(found, "goodput") == pytest.approx((190 + 99) / 550, abs=1e-12)
    assert value(found, "provisional") == 0.0
    assert (value(found, "lost_steps"), value(found, "lost_seconds")) == (100, 102.0)
    assert value(found, "lost_gpu_hours") == pytest.approx(102 * 2 * 4 / 3600)
    assert (value(found, "node_hours"), value(found, "gpu_hours")) == (1100 / 3600, 4400 / 3600)
    assert value(found, "mttd_seconds") == 4.0
    assert value(found, "mttr_running_seconds") == 9.0
    assert value(found, "mttr_progress_seconds") == 134.0
    assert value(found, "mtbf_hours") == pytest.approx(550 / 3600)
    assert value(found, "mttf_hours") == pytest.approx(1100 / 3600)
    assert value(found, "mtbi_hours") == pytest.approx(660 / 3600)
    assert value(found, "failures_per_1000_node_days") == pytest.approx(1000 * 86400 / 1100)
    assert value(found, "overhead_queue") == pytest.approx(110 / 660)
    assert value(found, "overhead_recovery") == pytest.approx((4 + 1 + 14) / 550)
    assert value(found, "restart_success_rate") == 1.0
    assert value(found, "step_time_p50") == pytest.approx(1.0)
    mtbf = found.figure("mtbf_hours")
    # One failure: 2T/χ²(0.975; 4) and 2T/χ²(0.025; 2), of published tables 11.143 and 0.0506.
    assert mtbf is not None and mtbf.low is not None and mtbf.high is not None
    assert mtbf.low == pytest.approx(2 * 550 / 3600 / 11.143, rel=1e-4)
    assert mtbf.high == pytest.approx(2 * 550 / 3600 / 0.0506356, rel=1e-4)
    assert (mtbf.n, mtbf.level) == (1, 0.95)
    (failure,) = found.failures
    assert (failure.category, failure.domain, failure.counted, failure.node) == (
        "gpu_fault",
        "gpu",
        True,
        "n2",
    )


def test_shares_add_up_to_one(make: Make) -> None:
    found = make(two_attempts().events)
    assert {figure.name for figure in found.figures} == set(DEFINITIONS)
    paid = sum(value(found, f"overhead_{group}") for group in GROUPS if group != "queue")
    assert value(found, "goodput") + value(found, "provisional") + paid == pytest.approx(1.0)
    assert sum(part.share for part in found.waterfall) == pytest.approx(1.0)
    assert sum(part.node_share or 0.0 for part in found.waterfall) == pytest.approx(1.0)
    for dimension in DIMENSIONS:
        groups = found.by(dimension)
        if dimension in ("run", "stage", "attempt", "version", "node"):
            paid_s = sum(part.node_seconds for group in groups for part in group.waterfall)
            assert paid_s == pytest.approx(sum(part.node_seconds for part in found.waterfall))
    with pytest.raises(KeyError):
        found.by("moon")


def test_groups_of_the_run(make: Make) -> None:
    found = make(two_attempts().events)
    first, second = found.by("attempt")
    assert (first.key, second.key) == (f"{RUN}/train/c1/7.0", f"{RUN}/train/c1/8.0")
    ettr = first.figure("ettr")
    assert ettr is not None and ettr.value == pytest.approx(239 / 550)
    (cause,) = found.by("cause")
    assert cause.key == "gpu_fault"
    cost = cause.figure("node_hours")
    assert cost is not None and cost.value == pytest.approx(2 * (102 + 4 + 1 + 14) / 3600)
    nodes = {group.key: group for group in found.by("node")}
    assert set(nodes) == {"n1", "n2"}
    rate = nodes["n2"].figure("failures_per_1000_node_days")
    assert rate is not None and rate.value == pytest.approx(1000 * 86400 / 550)
    clean = nodes["n1"].figure("mttf_hours")
    # No failure: only the one-sided bound T / -ln 0.05.
    assert clean is not None and clean.value is None and clean.high is None
    assert clean.low == pytest.approx(550 / 3600 / -math.log(0.05))
    assert found.by("switch") == ()


def test_a_window_cuts_intervals_and_chooses_failures_by_their_onset(make: Make) -> None:
    found = make(two_attempts().events, Scope(since=200.0, until=300.0))
    # 200 → 260 productive, 260 → 264 saving, 264 → 300 lost.
    assert {part.kind: part.seconds for part in found.waterfall} == {
        "productive": 60.0,
        "checkpoint_stall": 4.0,
        "lost": 36.0,
    }
    assert found.failures == ()
    assert len(make(None, Scope(since=366.0, until=366.1)).failures) == 1


def test_a_stage_that_goes_on_is_provisional_and_lasts_until_now(make: Make) -> None:
    events = [event for event in two_attempts().events if event.ts < 300.0 or event.type == "job.observed"]
    events = [event for event in events if event.attempt == "c1/7.0"]
    data = {**events[0].data, "state": "RUNNING", "ended_at": None}
    events[0] = Event("job.observed", RUN, "w", 1, 0.0, 0.0, "train", "c1/7.0", data=data)
    found = make(events, Scope(run=RUN[:6], now=400.0))
    ettr = found.figure("ettr")
    assert ettr is not None and ettr.provisional
    assert ettr.value == pytest.approx(100 / 400)  # steps 2 … 101 are saved
    assert value(found, "provisional") == pytest.approx((274 - 264) / 300)
    assert value(found, "overhead_unknown") == pytest.approx((400 - 274) / 300)
    with pytest.raises(NotFound):
        make(None, Scope(run="nothing"))


def test_rehearsals_count_only_when_asked_for(make: Make) -> None:
    story = two_attempts()
    story.at(365.0, "fault.injected", cycle=0, kind="kill")
    assert make(story.events).waterfall == ()
    assert len(make(None, Scope(rehearsals=True)).failures) == 1
    assert len(make(None, Scope(run=RUN)).failures) == 1


def test_an_empty_ledger_has_figures_that_say_why_they_are_none(make: Make) -> None:
    found = make(None)
    assert {figure.name for figure in found.figures} == set(DEFINITIONS)
    for figure in found.figures:
        assert figure.value in (None, 0.0)
        assert figure.note or figure.value == 0.0


@dataclass
class Truth:
    """What the simulation knows: seconds of kept steps, lost work, onset → first new step."""

    useful: float = 0.0
    lost: float = 0.0
    lost_steps: int = 0
    repairs: list[float] = field(default_factory=list)
    wall: float = 0.0


def simulated(failures: int, seed: int) -> tuple[Story, Truth]:
    """Failures at random moments; a word of progress each 10 s is all that is seen of steps."""
    rng, story, truth = random.Random(seed), Story(), Truth()
    step_s, save_every, stall, at = 0.7, 200, 1.5, 1000.0
    story.at(at, "attempt.started", link=1)
    saved = high = 0
    waiting: list[float] = []
    for cycle in range(failures + 1):
        story.at(at + 3, "cycle.started", cycle=cycle, nodes=["n1", "n2"])
        story.at(at + 4, "role.started", cycle=cycle)
        at += 30.0
        base = step = saved
        story.at(at, "workload.resumed", cycle=cycle, step=step)
        word = at
        end = at + (rng.expovariate(1 / 900.0) if cycle < failures else 5000.0)
        while at + step_s <= end:
            at, step = at + step_s, step + 1
            if step > high:
                high = step
                truth.repairs += [at - onset for onset in waiting]
                waiting = []
            if at - word >= 10.0:
                story.words("7.0", cycle, (at, step))
                word = at
            if step % save_every == 0:
                at, saved = at + stall, step
                story.at(at, "checkpoint.committed", cycle=cycle, step=step, path=f"s{step}", stall_s=stall)
        if cycle == failures:
            break
        onset = max(at, end)
        truth.useful += (saved - base) * step_s
        truth.lost_steps += step - saved
        truth.lost += (step - saved) * step_s + onset - at
        waiting.append(onset)
        story.at(
            onset + 5, "incident", cycle=cycle, kind="rank_end", onset=onset, detected=onset + 5, step=step
        )
        story.at(onset + 6, "decision", cycle=cycle, action="restart_in_job")
        story.at(onset + 6, "cycle.ended", cycle=cycle, category="net_other", step=step, continued=True)
        at = onset + 6
    truth.useful += (step - base) * step_s
    truth.wall = at + 10
    story.words("7.0", failures, (at, step))
    story.at(at + 1, "role.exited", cycle=failures, exit_code=0)
    story.at(at + 2, "stage.completed", epoch=0)
    story.at(at + 3, "attempt.finished", exit_code=0, category="healthy")
    story.job("7.0", 1, 0.0, 1000.0, truth.wall, state="COMPLETED")
    return story, truth


def test_a_simulated_run_with_known_truth(make: Make) -> None:
    story, truth = simulated(200, seed=4)
    found = make(story.events)
    assert value(found, "failures") == 200
    assert value(found, "ettr") == pytest.approx(truth.useful / truth.wall, rel=0.005)
    assert value(found, "lost_steps") == truth.lost_steps
    assert value(found, "lost_seconds") == pytest.approx(truth.lost, rel=0.005)
    assert value(found, "mttd_seconds") == pytest.approx(5.0, abs=1e-3)
    assert value(found, "mttr_running_seconds") == pytest.approx(10.0, abs=1e-3)
    assert len(truth.repairs) == 200
    assert value(found, "mttr_progress_seconds") == pytest.approx(fmean(truth.repairs), rel=0.005)
    assert value(found, "step_time_p50") == pytest.approx(0.7, rel=0.005)
    assert sum(part.seconds for part in found.waterfall) == pytest.approx(truth.wall, abs=1e-3)


def test_nodes_of_attempts_with_spares_have_their_own_time(make: Make) -> None:
    found = make(swapped().events)
    nodes = {group.key: {part.kind: part.seconds for part in group.waterfall} for group in found.by("node")}
    assert set(nodes) == {"n1", "n2", "n3", "n4"}
    assert nodes["n1"]["productive"] == 50.0
    assert (nodes["n2"]["productive"], nodes["n2"]["down"]) == (30.0, 50.0)
    assert (nodes["n3"]["idle_spare"], nodes["n3"]["productive"]) == (48.0, 20.0)
    assert nodes["n4"] == {"launching": 10.0, "idle_spare": 80.0, "draining": 10.0}
    assert value(found, "overhead_down") == pytest.approx(50 / 400)
    assert value(found, "overhead_spare") == pytest.approx(128 / 400)
    (failed,) = [group for group in found.by("node") if group.failures]
    assert failed.key == "n2"
