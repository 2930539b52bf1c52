"""What a look at the scheduler adds to the journal."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from orchestrator.observing import GONE_AFTER_S, record_changes
from resiliency.events import Event
from resiliency.jobstate import JobRecord, Observation
from resiliency.journal import JournalWriter, read_run
from resiliency.state import RunState, fold
from tests.orchestrator.builders import RUN, Chain, Story

SLURM: Any = SimpleNamespace(kind="slurm", cluster="c")
LOCAL: Any = SimpleNamespace(kind="local", cluster="c")


def look(
    tmp_path: Path, story: Story, seen: Observation, *, scheduler: Any = SLURM, at: float | None = None
) -> tuple[list[Event], RunState]:
    """The events one look adds, and the state after them."""
    with JournalWriter(tmp_path, run=RUN, writer="look") as journal:
        before, _ = read_run(tmp_path)
        asked = frozenset({"1", "2"})
        record_changes(story.state, scheduler, seen, at or story.now, asked, journal)
    after, _ = read_run(tmp_path)
    return after[len(before) :], fold([*story.events, *after])


def told(**word: Any) -> Observation:
    return Observation(
        records=[JobRecord(**{"job_id": "1", "restart_count": 0, **word})], queue_answered=True
    )


ONE = [Chain("train")]


def test_a_change_is_written_once(tmp_path: Path) -> None:
    story = Story(ONE).accepted("train", 1, "1")
    added, _ = look(tmp_path, story, told(state="RUNNING", nodes="n1"))
    assert [(e.type, e.attempt, e.data["state"]) for e in added] == [("job.observed", "c/1.0", "RUNNING")]
    story.observed("train", 1, "1", "RUNNING", nodes="n1")
    assert look(tmp_path / "again", story, told(state="RUNNING", nodes="n1"))[0] == []


def test_a_waiting_reason_that_flips_is_no_news_but_one_to_act_on_is(tmp_path: Path) -> None:
    story = Story(ONE).accepted("train", 1, "1").observed("train", 1, "1", "PENDING", reason="Priority")
    assert look(tmp_path / "a", story, told(state="PENDING", reason="Resources"))[0] == []
    added, _ = look(tmp_path / "b", story, told(state="PENDING", reason="PartitionTimeLimit"))
    assert [e.data["reason"] for e in added] == ["PartitionTimeLimit"]


def test_unknown_is_no_word(tmp_path: Path) -> None:
    story = Story(ONE).accepted("train", 1, "1")
    assert look(tmp_path, story, told(state="UNKNOWN"))[0] == []


def test_an_answer_that_did_not_come_proves_nothing(tmp_path: Path) -> None:
    story = Story(ONE).accepted("train", 1, "1")
    assert look(tmp_path, story, Observation(), at=story.now + 1e6)[0] == []


def test_a_job_is_gone_only_after_two_looks_that_miss_it(tmp_path: Path) -> None:
    story = Story(ONE).accepted("train", 1, "1").observed("train", 1, "1", "RUNNING")
    missing = Observation(queue_answered=True, unlisted=frozenset({"1"}))
    added, _ = look(tmp_path / "a", story, missing, at=story.now + 1e6)
    assert [e.type for e in added] == ["job.missing"]
    story.inside("job.missing", "train", "1")
    assert look(tmp_path / "b", story, missing, at=story.now + GONE_AFTER_S / 2)[0] == []
    added, state = look(tmp_path / "c", story, missing, at=story.now + GONE_AFTER_S + 1)
    assert [e.type for e in added] == ["job.gone"]
    assert state.stage("train").attempts["c/1.0"].state == "GONE"


def test_a_job_that_shows_up_again_is_not_missing_any_more(tmp_path: Path) -> None:
    story = Story(ONE).accepted("train", 1, "1").inside("job.missing", "train", "1")
    story.observed("train", 1, "1", "RUNNING")
    missing = Observation(queue_answered=True, unlisted=frozenset({"1"}))
    added, _ = look(tmp_path, story, missing, at=story.now + 1e6)
    assert [e.type for e in added] == ["job.missing"]


def test_a_job_with_its_own_last_word_is_gone_at_once(tmp_path: Path) -> None:
    story = Story(ONE).accepted("train", 1, "1").ran("train", 1, "1", 0)
    missing = Observation(queue_answered=True, unlisted=frozenset({"1"}))
    added, state = look(tmp_path, story, missing)
    assert [e.type for e in added] == ["job.gone"]
    assert state.stage("train").attempts["c/1.0"].verdict().category == "healthy"


def test_the_local_queue_forgets_nothing_so_a_job_it_lacks_is_gone(tmp_path: Path) -> None:
    story = Story(ONE).accepted("train", 1, "1")
    missing = Observation(queue_answered=True, accounting_answered=True, unlisted=frozenset({"1"}))
    assert [e.type for e in look(tmp_path, story, missing, scheduler=LOCAL)[0]] == ["job.gone"]


def test_each_run_of_a_requeued_job_is_an_attempt_of_its_own(tmp_path: Path) -> None:
    story = Story(ONE).accepted("train", 1, "1")
    records = [JobRecord("1", 0, "NODE_FAIL", ended_at=5.0), JobRecord("1", 1, "PENDING")]
    _, state = look(tmp_path, story, Observation(records=records, queue_answered=True))
    assert [(a.restart_count, a.state) for a in state.stage("train").chain()] == [
        (0, "NODE_FAIL"),
        (1, "PENDING"),
    ]
    assert state.stage("train").live_links()
