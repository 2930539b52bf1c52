"""Settling links of which it is not known whether a job exists."""

from __future__ import annotations

from pathlib import Path

from orchestrator.submission import settle
from resiliency import contract
from resiliency.jobstate import Observation
from resiliency.journal import JournalWriter, read_run
from resiliency.state import RunState, fold
from tests.orchestrator.builders import RUN, Chain, Story

TOKEN = contract.token(RUN, "train", 1)
NOTHING = Observation(queue_answered=True)


def intent() -> Story:
    story = Story([Chain("train")])
    return story.say("submission.intent", {"token": TOKEN, "link": 1, "cluster": "c"}, stage="train")


def after(tmp_path: Path, story: Story, seen: Observation, at: float, settle_s: float = 20.0) -> RunState:
    with JournalWriter(tmp_path, run=RUN, writer="look") as journal:
        asked = frozenset({TOKEN})
        settle(story.state, seen, observed_at=at, asked=asked, settle_s=settle_s, journal=journal)
    return fold([*story.events, *read_run(tmp_path)[0]])


def outcome(state: RunState) -> str:
    return state.stage("train").submissions[TOKEN].outcome


def test_a_job_that_is_found_is_the_links_job(tmp_path: Path) -> None:
    story = intent()
    state = after(tmp_path, story, Observation(queue_answered=True, tokens={TOKEN: ["7"]}), story.now + 1)
    assert outcome(state) == "accepted"
    assert state.stage("train").submissions[TOKEN].job_id == "7"


def test_no_answer_settles_nothing_however_late(tmp_path: Path) -> None:
    story = intent()
    assert outcome(after(tmp_path, story, Observation(), story.now + 1e6)) == "intent"


def test_one_look_that_finds_nothing_is_not_enough(tmp_path: Path) -> None:
    story = intent()
    assert outcome(after(tmp_path, story, NOTHING, story.now + 1e6)) == "uncertain"


def looked(story: Story) -> Story:
    return story.say(
        "submission.uncertain", {"token": TOKEN, "reason": "x", "looked_up": True}, stage="train"
    )


def test_a_second_look_too_soon_is_not_enough(tmp_path: Path) -> None:
    story = looked(intent())
    assert outcome(after(tmp_path, story, NOTHING, story.now + 19)) == "uncertain"


def test_two_looks_well_apart_prove_that_there_is_no_job(tmp_path: Path) -> None:
    story = looked(intent())
    assert outcome(after(tmp_path, story, NOTHING, story.now + 21)) == "absent"


def test_a_look_made_before_the_newest_intent_says_nothing_about_it(tmp_path: Path) -> None:
    story = looked(intent())
    story.say("submission.intent", {"token": TOKEN, "link": 1, "cluster": "c"}, stage="train")
    assert outcome(after(tmp_path, story, NOTHING, story.now - 0.5)) == "intent"


def test_the_local_queue_answers_at_once(tmp_path: Path) -> None:
    story = intent()
    assert outcome(after(tmp_path, story, NOTHING, story.now + 0.1, settle_s=0)) == "absent"


def test_a_late_find_beats_an_earlier_absent(tmp_path: Path) -> None:
    story = intent().say("submission.absent", {"token": TOKEN, "looked_up": True}, stage="train")
    story.say("submission.intent", {"token": TOKEN, "link": 1, "cluster": "c"}, stage="train")
    seen = Observation(queue_answered=True, tokens={TOKEN: ["7", "9"]})
    state = after(tmp_path, story, seen, story.now + 1)
    # Two jobs of one link: both are known, so the second can be watched ending itself at its claim.
    assert state.stage("train").submissions[TOKEN].job_ids == ["7", "9"]
