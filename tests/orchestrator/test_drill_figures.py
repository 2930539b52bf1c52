"""Figures of rehearsals, from journals written here as a run writes them."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.drill.figures import Outcome, Step, outcome, steps_of
from resiliency.events import Event
from resiliency.faults import Fault

RUN, STAGE, ATTEMPT = "r-drill", "train", "local/1.0"


class Journal:
    """Events at seconds after the start."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self("run.created", 0.0)
        self("attempt.started", 1.0)
        self("cycle.started", 1.5, cycle=0)

    def __call__(self, type_: str, at: float, attempt: str = ATTEMPT, **data: Any) -> Journal:
        number = len(self.events) + 1
        self.events.append(
            Event(type_, RUN, "w", number, 1000 + at, at, stage=STAGE, attempt=attempt, data=data)
        )
        return self


def trained(*parts: tuple[int, int, float], changed: int | None = None) -> list[Step]:
    """``(first step, last step, time of the first)``, five steps a second."""
    found = []
    for first, last, at in parts:
        for number, step in enumerate(range(first, last + 1)):
            loss = "0.5" if step == changed and at > 5 else f"1.{step}"
            found.append(Step(step, loss, 1000 + at + number / 5))
    return found


def told(kind: str, journal: Journal, steps: list[Step], status: str = "complete", **more: Any) -> Outcome:
    fault = Fault("1", kind, step=26)
    done = {"1": {"time": 1007.0, "step": 26, "rank": 1, "node": "local-1"}}
    return outcome(RUN, STAGE, status, [fault], done, journal.events, steps, **more)


def recovered() -> Journal:
    journal = Journal()
    journal("incident", 7.8, kind="rank_end", detected=1007.7, detail="rank 1 ended with 137", step=25)
    journal("verdict", 7.8, category="unknown")
    journal("decision", 7.9, action="restart_in_job", rule="retry:unknown", in_job=True)
    journal("cycle.ended", 7.9, cycle=0, step=25, saved_step=20, continued=True)
    journal("cycle.started", 8.0, cycle=1)
    journal("workload.resumed", 9.0, step=20)
    journal("stage.completed", 16.0)
    return journal(
        "attempt.finished", 16.1, exit_code=0, category="healthy", decision="none", rule="complete"
    )


def test_a_recovery_is_measured_to_the_first_new_step() -> None:
    found = told("sigkill", recovered(), trained((1, 25, 2.0), (21, 50, 9.2)))
    (story,) = found.stories
    assert (story.injected_at, story.step, story.rank, story.node) == (1007.0, 26, 1, "local-1")
    assert story.detected_s == pytest.approx(0.7)
    assert story.detected_by == "incident: rank 1 ended with 137"
    assert (story.category, story.action, story.rule) == ("unknown", "restart_in_job", "retry:unknown")
    assert story.in_job is True
    assert (story.resumed_from, story.lost_steps, story.new_step) == (20, 5, 26)
    assert story.recovery_s == pytest.approx(9.2 + 5 / 5 - 7.0)
    assert found.ok and story.ok and not story.why
    assert (found.attempts, found.cycles, found.lost_steps, found.repeated) == (1, 2, 5, 5)
    assert found.seconds == pytest.approx(16.1)
    assert (found.last_step, found.last_loss) == (50, "1.50")


def test_steps_that_were_done_and_not_logged_are_not_new() -> None:
    """A killed rank 0 takes what it had not yet written of its log with it."""
    found = told("sigkill", recovered(), trained((1, 12, 2.0), (21, 50, 9.2)))
    assert found.stories[0].new_step == 26 and found.stories[0].lost_steps == 5


def test_without_a_checkpoint_all_is_lost() -> None:
    journal = recovered()
    journal.events = [event for event in journal.events if event.type != "workload.resumed"]
    (story,) = told("sigkill", journal, trained((1, 25, 2.0), (1, 50, 9.2))).stories
    assert (story.resumed_from, story.lost_steps, story.new_step) == (0, 25, 26)


def test_a_loss_that_differs_in_one_digit_is_named() -> None:
    steps = trained((1, 25, 2.0), (21, 50, 9.2), changed=23)
    found = told("sigkill", recovered(), steps)
    assert found.differing == [23] and not found.ok


def test_every_loss_is_compared_with_the_baseline() -> None:
    steps = trained((1, 25, 2.0), (21, 50, 9.2))
    same = told("sigkill", recovered(), steps, baseline=trained((1, 50, 0.0)))
    assert same.ok
    other = [Step(s.step, "9" if s.step == 40 else s.loss, s.time) for s in trained((1, 50, 0.0))]
    assert told("sigkill", recovered(), steps, baseline=other).differing == [40]


def test_a_fault_that_never_came_is_no_success() -> None:
    found = outcome(RUN, STAGE, "complete", [Fault("1", "hang", step=99)], {}, recovered().events, [])
    assert not found.ok and "never done" in found.stories[0].why


def test_a_run_that_ends_is_as_it_should_be_only_for_the_right_cause() -> None:
    journal = Journal()
    journal("attempt.finished", 8, exit_code=1, category="storage_full", decision="hold", rule="category")
    journal("stage.held", 8.1, category="storage_full", rule="category", reason="full")
    steps = trained((1, 25, 2.0))
    held = told("full-disk", journal, steps, "held")
    assert held.ok and held.stories[0].category == "storage_full" and held.stories[0].action == "hold"
    assert "not to host_oom" in told("oom", journal, steps, "stopped").stories[0].why
    assert "as if nothing" in told("full-disk", journal, steps, "complete").stories[0].why
    assert "run is held" in told("sigkill", journal, steps, "held").stories[0].why


def test_what_should_do_no_harm_must_lose_nothing() -> None:
    quiet = Journal()("stage.completed", 16.0)
    steps = trained((1, 50, 2.0))
    unharmed = told("node-drain", quiet, steps)
    assert unharmed.ok and unharmed.stories[0].lost_steps is None
    assert unharmed.stories[0].new_step == 27, "it simply went on"
    harmed = told("node-drain", recovered(), trained((1, 25, 2.0), (21, 50, 9.2)))
    assert not harmed.ok and "5 steps were lost" in harmed.stories[0].why


def test_two_faults_have_each_their_own_decision() -> None:
    journal = recovered()
    journal.events = [e for e in journal.events if e.type not in ("stage.completed", "attempt.finished")]
    journal("incident", 13.2, kind="hang", detected=1013.1, detail="rank 0 stands still", step=39)
    journal("verdict", 13.2, category="hang")
    journal("decision", 13.3, action="swap_node", rule="hang", in_job=True)
    journal("cycle.ended", 13.3, cycle=1, step=39, saved_step=30, continued=True)
    journal("cycle.started", 13.4, cycle=2)
    journal("workload.resumed", 14.0, step=30)
    journal("stage.completed", 20.0)
    steps = trained((1, 25, 2.0), (21, 39, 9.2), (31, 50, 14.2))
    plan = [Fault("1", "sigkill", step=26), Fault("2", "hang", step=40)]
    done = {"1": {"time": 1007.0, "step": 26}, "2": {"time": 1012.9, "step": 40}}
    first, second = outcome(RUN, STAGE, "complete", plan, done, journal.events, steps).stories
    assert (first.action, second.action) == ("restart_in_job", "swap_node")
    assert (first.lost_steps, second.lost_steps) == (5, 9)
    assert (second.new_step, second.resumed_from) == (40, 30)
    assert second.detected_s == pytest.approx(0.2)


def test_a_stage_without_a_log_of_steps_is_read_from_its_progress() -> None:
    events = Journal()("progress", 3.0, step=5, loss=0.25)("progress", 5.0, step=15, loss=0.125).events
    assert steps_of([], events, STAGE) == [Step(5, "0.25", 1003.0), Step(15, "0.125", 1005.0)]
    records = [{"step": 5, "loss": 0.25, "time": 1002.9}, {"note": "no step"}]
    assert [one.time for one in steps_of(records, events, STAGE)] == [1002.9, 1005.0]


def test_where_the_supervisor_is_killed_too_the_scheduler_tells() -> None:
    journal = Journal()
    journal("job.observed", 8.5, state="NODE_FAIL", ended_at=1008.2)
    journal("decision", 8.6, action="requeue_excluding", rule="category:node_down", in_job=False)
    second = "local/2.0"
    journal("attempt.started", 9.0, second)
    journal("cycle.started", 9.1, second, cycle=0)
    journal("workload.resumed", 9.5, second, step=20)
    journal("cycle.ended", 19.0, second, cycle=0, step=50)
    journal("stage.completed", 19.1, second)
    (story,) = told("node-crash", journal, trained((1, 25, 2.0), (21, 50, 9.6))).stories
    assert story.detected_s == pytest.approx(1.5) and story.detected_by == "job.observed: NODE_FAIL"
    assert (story.rule, story.in_job) == ("category:node_down", False)
    assert (story.resumed_from, story.lost_steps, story.new_step) == (20, 5, 26)
