"""Cycles, repeated lines and times of a whole log."""

from __future__ import annotations

from datetime import timezone

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.importing.story import Story, tell


def story(*lines: str) -> Story:
    return tell(lines, timezone.utc, 1000.0)


def told(found: Story) -> list[tuple[int, str, int]]:
    return [(fact.cycle, fact.line.kind, fact.step) for fact in found.facts]


def step(number: int, clock: str = "") -> str:
    return f"{clock} iteration {number}/ 50 | elapsed time per iteration (ms): 2000.0 | lm loss: 1.0 |"


def test_a_step_that_goes_back_begins_a_cycle_and_repeats_count_once() -> None:
    found = story(step(1), step(1), step(2), step(3), step(2), step(3))
    assert told(found) == [(0, "step", n) for n in (1, 2, 3)] + [(1, "step", n) for n in (2, 3)]


def test_a_load_or_a_start_begins_a_cycle_only_after_steps() -> None:
    start = "Training starts at step 11"
    found = story(start, "[titan] step: 11  loss: 2.0", start, "[titan] step: 11  loss: 2.0")
    assert told(found) == [(c, kind, n) for c in (0, 1) for kind, n in (("loaded", 10), ("step", 11))]


def test_a_save_without_its_step_is_of_the_last_step() -> None:
    done = "Finished saving the checkpoint in 1.5 seconds."
    found = story(done, "step: 7  loss: 2.0", done)
    assert told(found) == [(0, "step", 7), (0, "saved", 7)] and found.unplaced == 1


def test_a_load_without_a_time_has_that_of_the_line_after_it() -> None:
    load = "successfully loaded checkpoint from /c at iteration 1"
    found = story(step(2, "[2026-01-01 00:00:10]"), load, step(2, "[2026-01-01 01:00:00]"))
    assert [fact.at - 1767225600 for fact in found.facts] == [10, 3600, 3600]


def test_without_any_time_steps_end_when_the_file_was_written() -> None:
    assert [fact.at for fact in story(step(1), step(2), step(3)).facts] == [996.0, 998.0, 1000.0]


@given(st.lists(st.sampled_from(["x", step(1), step(9), "saving", "\x00", "step: 9 loss: nan"]) | st.text()))
@settings(max_examples=60, deadline=None)
def test_steps_of_a_cycle_never_go_back(lines: list[str]) -> None:
    steps: dict[int, list[int]] = {}
    for fact in tell(lines, timezone.utc, 1000.0).facts:
        if fact.line.kind == "step":
            steps.setdefault(fact.cycle, []).append(fact.step)
    assert all(found == sorted(set(found)) for found in steps.values())
