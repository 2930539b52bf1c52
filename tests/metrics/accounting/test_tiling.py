"""Intervals tile: a run computed by hand, and random streams with every fault a journal can have."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.accounting.kinds import KINDS
from metrics.accounting.outages import Outages
from resiliency.events import Event
from tests.metrics.accounting.stories import RUN, STAGE, Story, shown, tiled, two_attempts


def test_a_run_computed_by_hand() -> None:
    first, second = two_attempts().tiled()
    # 0 … 550: the numbers of the story's docstring, one after the other.
    assert shown(first) == [
        ("queued", 100.0),  # 0 → 100
        ("launching", 22.0),  # → 122, 38 s of phases before 160
        ("imports", 10.0),
        ("init", 20.0),  # groups 5, model 10, data 5
        ("load", 2.0),
        ("warmup", 6.0),  # → 160, step 1 is done
        ("productive", 100.0),  # steps 2 … 101 → 260
        ("checkpoint_stall", 4.0),  # → 264
        ("lost", 102.0),  # steps 102 … 201 → 364, and 2 s of step 202 → 366
        ("detecting", 4.0),  # → 370
        ("diagnosing", 1.0),  # → 371
        ("restarting", 14.0),  # → 385, 15 s of phases before 400
        ("imports", 8.0),
        ("load", 5.0),
        ("warmup", 2.0),  # → 400, step 102 is done
        ("recomputing", 99.0),  # steps 103 … 201 → 499
        ("productive", 40.0),  # steps 202 … 241 → 539
        ("draining", 11.0),  # asked at 538, the last step is done at 539 → 550
    ]
    assert shown(second) == [
        ("chained", 445.0),  # 105 → 550: link 1 has the stage
        ("queued", 10.0),  # → 560
        ("launching", 6.0),  # → 566
        ("init", 34.0),  # → 600: this start tells no phases
        ("productive", 50.0),  # steps 242 … 291 → 650
        ("checkpoint_stall", 5.0),  # → 655
        ("draining", 5.0),  # → 660
    ]
    assert [first.lost(cycle) for cycle in first.cycles] == [(100, 102_000), (0, 0)]


def test_work_is_provisional_until_something_persisted_holds_it_and_lost_once_the_stage_is_over() -> None:
    def story() -> Story:
        made = Story()
        made.job("7.0", 1, 0.0, 0.0, 100.0)
        made.at(0.0, "cycle.started", cycle=0, nodes=["n1", "n2"])
        made.at(0.0, "role.started", cycle=0)
        made.at(10.0, "workload.resumed", cycle=0, step=0)
        made.at(41.0, "checkpoint.committed", cycle=0, step=30, path="a")
        made.words("7.0", 0, (90.0, 80))
        return made

    assert shown(story().tiled()[0])[1:] == [("productive", 30.0), ("provisional", 50.0), ("unknown", 10.0)]
    over = story()
    over.at(100.0, "stage.stopped", epoch=0, category="config_error")
    assert shown(over.tiled()[0])[1:] == [("productive", 30.0), ("lost", 50.0), ("unknown", 10.0)]
    aside = story()
    aside.at(99.0, "checkpoint.quarantined", path="a", reason="torn")
    assert shown(aside.tiled()[0])[1:] == [("provisional", 80.0), ("unknown", 10.0)]
    complete = story()
    complete.at(99.0, "role.exited", cycle=0, exit_code=0)
    complete.at(99.0, "stage.completed", epoch=0)
    assert shown(complete.tiled()[0])[1:] == [("productive", 80.0), ("draining", 10.0)]


def test_an_attempt_that_goes_on_is_open_or_ends_now() -> None:
    story = Story()
    story.job("7.0", 1, 0.0, 10.0, None)
    story.at(12.0, "cycle.started", cycle=0, nodes=["n1", "n2"])
    story.at(13.0, "role.started", cycle=0)
    story.at(20.0, "workload.resumed", cycle=0, step=0)
    story.words("7.0", 0, (50.0, 30))
    known = [("queued", 10.0), ("launching", 3.0), ("init", 7.0), ("provisional", 30.0)]
    assert shown(story.tiled()[0]) == [*known, ("unknown", None)]
    assert shown(story.tiled(now=58.5)[0]) == [*known, ("unknown", 8.5)]
    assert shown(story.tiled(now=30.0)[0])[-1] == ("provisional", 10.0)


def test_a_program_without_steps_is_judged_by_its_end() -> None:
    def story(code: int, *, complete: bool) -> list[tuple[str, float]]:
        made = Story()
        made.job("7.0", 1, 0.0, 10.0, 100.0)
        made.at(11.0, "attempt.started")
        made.at(20.0, "role.started", cycle=0)
        made.at(90.0, "role.exited", cycle=0, exit_code=code)
        if complete:
            made.at(91.0, "stage.completed", epoch=0)
        return shown(made.tiled()[0])

    start = [("queued", 10.0), ("launching", 10.0)]
    assert story(0, complete=True) == [*start, ("productive", 70.0), ("draining", 10.0)]
    assert story(1, complete=False) == [*start, ("unknown", 70.0), ("draining", 10.0)]


def test_the_first_word_tells_how_long_its_process_had_worked() -> None:
    story = Story()
    story.job("7.0", 1, 0.0, 10.0, 100.0)
    story.at(12.0, "role.started", cycle=0)
    spent = {"setup": 8.0, "step": 20.0, "checkpoint": 2.0}
    story.at(42.0, "progress", cycle=0, step=10, section="step", spent=spent)
    spent = {"setup": 8.0, "step": 60.0, "checkpoint": 2.0}
    story.at(82.0, "progress", cycle=0, step=30, section="step", spent=spent)
    assert shown(story.tiled()[0])[1:] == [
        ("launching", 2.0),
        ("init", 8.0),  # → 20, 22 s before the first word
        ("provisional", 20.0),
        ("checkpoint_stall", 2.0),
        ("provisional", 40.0),
        ("unknown", 18.0),
    ]


def test_a_program_whose_work_are_no_steps_has_all_its_sections_as_work() -> None:
    story = Story()
    story.job("7.0", 1, 0.0, 10.0, 100.0, state="COMPLETED")
    story.at(12.0, "role.started", cycle=0)
    story.at(42.0, "progress", cycle=0, step=900, section="read", spent={"setup": 8.0, "read": 20.0})
    spent = {"setup": 8.0, "read": 40.0, "cut": 28.0}
    story.at(90.0, "progress", cycle=0, step=1900, section="cut", spent=spent)
    story.at(91.0, "role.exited", cycle=0, exit_code=0)
    story.at(92.0, "stage.completed", epoch=0)
    assert shown(story.tiled()[0])[1:] == [
        ("launching", 2.0),
        ("init", 10.0),
        ("productive", 68.0),
        ("draining", 10.0),
    ]


def test_of_a_log_alone_the_time_to_the_first_step_is_one_start() -> None:
    story = Story()
    story.job("7.0", 1, 0.0, 10.0, 100.0)
    story.words("7.0", 0, (60.0, 1), (90.0, 31))
    known = [("queued", 10.0), ("init", 50.0), ("provisional", 30.0), ("unknown", 10.0)]
    assert shown(story.tiled()[0]) == known


def test_a_stop_asked_before_the_start_by_a_clock_that_is_behind_leaves_the_queue_alone() -> None:
    story = Story()
    story.job("7.0", 1, 0.0, 10.0, 50.0)
    story.at(5.0, "drain.requested", reason="cancelled")
    assert shown(story.tiled()[0]) == [("queued", 10.0), ("draining", 40.0)]


def test_one_imported_job_s_log_says_nothing_of_another() -> None:
    story = Story()
    for job, at in (("7.0", 0.0), ("8.0", 200.0)):
        story.job(job, 1, at, at + 10.0, at + 100.0)
        story.at(at + 10.0, "attempt.started", job, imported=True)
        story.at(at + 10.0, "role.started", job, 0, role="imported")
    story.words("7.0", 0, (30.0, 1), (90.0, 61))
    first, second = story.tiled()
    assert shown(first)[:2] == [("queued", 10.0), ("init", 20.0)]
    assert shown(second) == [("queued", 10.0), ("unknown", 90.0)]


def test_of_a_job_that_nothing_of_ours_saw_inside_only_the_queue_is_known() -> None:
    story = Story()
    story.job("7.0", 1, 0.0, 30.0, 100.0)
    assert shown(story.tiled()[0]) == [("queued", 30.0), ("unknown", 70.0)]
    story = Story()
    story.job("7.0", 1, 5.0, None, 30.0)
    assert shown(story.tiled()[0]) == [("queued", 25.0)]


_TYPES = (
    "attempt.started", "attempt.finished", "cycle.started", "cycle.ended", "role.started", "role.exited",
    "drain.requested", "progress", "workload.resumed", "workload.timing", "checkpoint.committed",
    "checkpoint.quarantined", "snapshot.taken", "incident", "decision", "preflight", "node.lost",
    "node.swapped", "job.observed", "job.gone", "stage.completed", "stage.stopped", "run.resumed",
)  # fmt: skip
_number = st.none() | st.integers(-5, 400) | st.floats(-10, 400) | st.just("nan")
_nodes = st.lists(st.sampled_from(["n1", "n2", "n3"]), max_size=3)
_data = st.fixed_dictionaries(
    {
        "step": st.integers(0, 60) | st.none() | st.just("x"),
        "stall_s": _number,
        "seconds": _number,
        "onset": _number,
        "detected": _number,
        "exit_code": st.sampled_from([0, 1, 75, None]),
        "kind": st.sampled_from(["rank_end", "hang", "node_lost", "straggler"]),
        "continued": st.booleans(),
        "action": st.sampled_from(["wait", "restart_in_job"]),
        "nodes": _nodes | st.just("n[1-2]"),
        "spares": _nodes,
        "node": st.sampled_from(["n1", "n2", "n3"]),
        "out": st.just("n1"),
        "in": st.just("n3"),
        "path": st.sampled_from(["a", "b"]),
        "section": st.sampled_from(["step", "eval", "checkpoint", "load", "data"]),
        "spent": st.none() | st.dictionaries(st.sampled_from(["step", "eval", "data", "load"]), _number),
        "phases": st.none()
        | st.dictionaries(st.sampled_from(["imports", "load", "first_step", "x"]), _number),
        "count": _number,
        "state": st.sampled_from(["RUNNING", "FAILED", "PENDING", "COMPLETED"]),
        "submitted_at": _number,
        "started_at": _number,
        "ended_at": _number,
        "stages": st.just({STAGE: 1}),
    }
)
_event = st.tuples(
    st.sampled_from(_TYPES),
    st.floats(-50, 450),
    st.sampled_from(["c1/7.0", "c1/7.1", "c1/8.0"]),
    st.none() | st.integers(0, 3),
    _data,
)


def _events(told: list[tuple[str, float, str, int | None, dict[str, Any]]]) -> list[Event]:
    return [
        Event(kind, RUN, "w", n, ts, 0.0, STAGE, attempt, cycle, None, data=data)
        for n, (kind, ts, attempt, cycle, data) in enumerate(told)
    ]


def _bounds(found: Any) -> tuple[int | None, int | None, int | None]:
    """Submission (or start), start and end, each no earlier than the one before it."""
    attempt = found.attempt
    start = attempt.submitted if attempt.submitted is not None else attempt.started
    start = attempt.ended if start is None else start
    if start is not None and attempt.started is not None:
        start = min(start, attempt.started)
    end = attempt.ended
    if end is not None:
        end = max(end, start, attempt.started if attempt.started is not None else end)
    return start, attempt.started, end


@settings(max_examples=200, deadline=None)
@given(st.lists(_event, max_size=40), st.none() | st.floats(-10, 500))
def test_intervals_tile_whatever_a_journal_holds(
    told: list[tuple[str, float, str, int | None, dict[str, Any]]], now: float | None
) -> None:
    for found in tiled(_events(told), now):
        start, started, end = _bounds(found)
        assert found.tracks[0] is not None
        members = [node for track in found.tracks for node in track.nodes]
        assert sorted(members) == sorted(found.attempt.nodes)
        for track in found.tracks:
            spans = track.spans
            assert all(span.kind in KINDS for span in spans)
            assert all(span.end is None or span.end > span.start for span in spans)
            assert all(one.end == two.start for one, two in pairwise(spans))
            if start is None:
                assert spans == ()
                continue
            if end is None and now is None:
                assert spans[-1].end is None
                continue
            if end is None and now is not None:
                end = max(round(now * 1000), start, started if started is not None else start)
            assert end is not None
            assert sum(span.ms for span in spans) == end - start
            inside = sum(span.ms for span in spans if KINDS[span.kind].allocated)
            assert inside == (end - started if started is not None else 0)
            assert all(span.end is not None for span in spans)


@settings(max_examples=100, deadline=None)
@given(st.lists(_event, max_size=40))
def test_what_failures_cost_is_never_negative(
    told: list[tuple[str, float, str, int | None, dict[str, Any]]],
) -> None:
    found = tiled(_events(told))
    outages = Outages(found)
    for one in found:
        lost = 0
        for number in range(5):
            cost = outages.of(one.attempt.id, number)
            lost += cost.lost_ms
            assert cost.lost_ms >= 0 and cost.lost_steps >= 0
            if cost.onset is not None and cost.detected is not None:
                assert cost.onset <= cost.detected
        spans = one.tracks[0].spans
        assert lost == sum(span.ms for span in spans if span.kind == "lost")


@settings(max_examples=100, deadline=None)
@given(st.lists(_event, max_size=30), st.randoms())
def test_the_order_of_reading_does_not_matter(told: Any, random: Any) -> None:
    events = _events(told)
    shuffled = list(events)
    random.shuffle(shuffled)
    assert tiled(shuffled) == tiled(events)
