"""A table of states and the acts they lead to."""

from __future__ import annotations

import random

from orchestrator.advance import (
    CancelLink,
    CompleteStage,
    ExcludeNodes,
    HoldStage,
    RecordDecision,
    ReleaseJob,
    StopStage,
    SubmitLink,
    advance,
    links_used,
)
from resiliency import contract
from resiliency.policy import Budgets
from resiliency.state import fold
from tests.orchestrator.builders import RUN, Chain, Story

DATA = Chain("data", lookahead=1, max_links=3)
TRAIN = Chain("train", needs=("data",))
EVAL = Chain("eval", needs=("train",), lookahead=1, max_links=3)
ALL = [DATA, TRAIN, EVAL]


def token(stage: str, link: int) -> str:
    return contract.token(RUN, stage, link)


def submits(acts: list) -> list[tuple[str, int, tuple[str, ...]]]:
    return [(a.stage, a.link, a.after) for a in acts if isinstance(a, SubmitLink)]


def test_a_new_run_queues_every_stage_behind_what_it_needs() -> None:
    assert submits(advance(Story(ALL).state, ALL)) == [
        ("data", 1, ()),
        ("train", 1, (token("data", 1),)),
        ("eval", 1, (token("train", 1),)),
    ]


def test_a_stage_that_may_start_gets_its_lookahead() -> None:
    story = Story([TRAIN]).say("stage.completed", {"epoch": 0}, stage="data")
    assert submits(advance(story.state, [DATA, TRAIN])) == [
        ("train", 1, ()),
        ("train", 2, (token("train", 1),)),
    ]


def test_nothing_is_submitted_twice() -> None:
    story = Story(ALL).accepted("data", 1, "1").accepted("train", 1, "2").accepted("eval", 1, "3")
    assert advance(story.state, ALL) == []


def test_an_unsettled_link_blocks_its_chain_and_those_behind_it() -> None:
    story = Story(ALL)
    story.say("submission.intent", {"token": token("data", 1), "link": 1}, stage="data")
    assert submits(advance(story.state, ALL)) == []


def test_an_absent_link_is_submitted_again_under_its_own_number() -> None:
    story = Story([TRAIN])
    story.say("submission.intent", {"token": token("train", 1), "link": 1}, stage="train")
    story.say("submission.absent", {"token": token("train", 1)}, stage="train")
    story.say("stage.completed", {"epoch": 0}, stage="data")
    assert submits(advance(story.state, [DATA, TRAIN]))[0][:2] == ("train", 1)


def test_a_link_that_ended_with_its_state_saved_is_followed_by_the_next() -> None:
    only = Chain("train", lookahead=1)
    story = Story([only]).accepted("train", 1, "1").ran("train", 1, "1", 75)
    story.inside("checkpoint.committed", "train", "1", {"step": 20})
    assert submits(advance(story.state, [only])) == [("train", 2, ())]


def test_completion_cancels_only_what_is_still_queued() -> None:
    only = Chain("train")
    story = Story([only]).accepted("train", 1, "1").accepted("train", 2, "2")
    story.observed("train", 1, "1", "RUNNING").observed("train", 2, "2", "PENDING")
    story.say("stage.completed", {"epoch": 0}, stage="train")
    acts = advance(story.state, [only])
    assert [(type(a), a.job_ids) for a in acts] == [(CancelLink, ("2",))]


def test_a_deterministic_failure_stops_the_stage_and_everything_behind_it() -> None:
    story = Story(ALL).accepted("data", 1, "1").accepted("train", 1, "2")
    story.inside("workload.error", "data", "1", {"category": "data_error", "message": "no such file"})
    story.ran("data", 1, "1", 76).observed("data", 1, "1", "FAILED", exit_code=76)
    acts = advance(story.state, ALL)
    stops = [(a.stage, a.rule) for a in acts if isinstance(a, StopStage)]
    assert stops == [
        ("data", "category:data_error"),
        ("train", "needs:data"),
        ("eval", "needs:train"),
    ]
    assert [a.token for a in acts if isinstance(a, CancelLink)] == [token("train", 1)]
    assert submits(acts) == []


def test_an_unexplained_failure_is_retried_until_its_budget_is_used() -> None:
    only = Chain("train", lookahead=1, budgets=Budgets(unexplained=2))
    story = Story([only]).accepted("train", 1, "1").ran("train", 1, "1", 1)
    assert submits(advance(story.state, [only])) == [("train", 2, ())]
    story.accepted("train", 2, "2").ran("train", 2, "2", 1)
    acts = advance(story.state, [only])
    assert [(a.rule, a.category) for a in acts if isinstance(a, StopStage)] == [
        ("budget:unexplained", "unknown")
    ]


def test_a_full_disk_holds_the_stage() -> None:
    only = Chain("train")
    story = Story([only]).accepted("train", 1, "1").accepted("train", 2, "2")
    story.inside("workload.error", "train", "1", {"category": "storage_full", "message": "disk full"})
    story.ran("train", 1, "1", 1)
    acts = advance(story.state, [only])
    assert [type(a) for a in acts] == [HoldStage, CancelLink]


def test_a_lost_node_is_followed_by_the_next_link_and_its_decision_is_recorded() -> None:
    only = Chain("train", lookahead=1)
    story = Story([only]).accepted("train", 1, "1")
    story.inside("attempt.started", "train", "1", {"token": token("train", 1), "nodes": "n1"})
    story.observed("train", 1, "1", "NODE_FAIL")
    acts = advance(story.state, [only])
    assert [type(a) for a in acts] == [RecordDecision, SubmitLink]
    decided = {acts[0].attempt: acts[0].decision.rule}
    assert [type(a) for a in advance(story.state, [only], decided=decided)] == [SubmitLink]


def test_a_person_who_scancels_is_obeyed() -> None:
    only = Chain("train")
    story = Story([only]).accepted("train", 1, "1").accepted("train", 2, "2")
    story.observed("train", 1, "1", "CANCELLED", cancelled_by="1000")
    acts = advance(story.state, [only])
    assert [a.rule for a in acts if isinstance(a, StopStage)] == ["user-cancelled"]
    assert [a.job_ids for a in acts if isinstance(a, CancelLink)] == [("2",)]


def test_a_left_over_link_that_we_cancelled_is_not_a_persons_wish() -> None:
    only = Chain("train", lookahead=1)
    story = Story([only]).accepted("train", 1, "1")
    story.say("link.cancelled", {"token": token("train", 1), "job_id": "1"}, stage="train")
    story.observed("train", 1, "1", "CANCELLED")
    assert not [a for a in advance(story.state, [only]) if isinstance(a, StopStage)]


def test_cancel_ends_running_links_too() -> None:
    only = Chain("train")
    story = Story([only]).accepted("train", 1, "1").observed("train", 1, "1", "RUNNING")
    story.say("run.cancelled", {"stages": {"train": 0}})
    assert [a.job_ids for a in advance(story.state, [only])] == [("1",)]


def test_a_queued_link_is_told_which_nodes_to_keep_off_once() -> None:
    only = Chain("train")
    story = Story([only]).accepted("train", 1, "1").accepted("train", 2, "2")
    story.observed("train", 1, "1", "RUNNING").observed("train", 2, "2", "PENDING")
    keep_off = {"train": ["n2", "n1"]}
    acts = advance(story.state, [only], keep_off=keep_off)
    assert acts == [ExcludeNodes("train", token("train", 2), ("2",), ("n1", "n2"))]
    story.say("link.excluding", {"token": token("train", 2), "job_id": "2", "nodes": ["n1", "n2"]})
    assert advance(story.state, [only], keep_off=keep_off) == []
    assert advance(story.state, [only], keep_off={"train": []})[0].nodes == ()
    assert advance(story.state, [only]) == []  # nobody looked: left as it is


def test_a_link_that_runs_or_was_never_seen_is_not_told() -> None:
    only = Chain("train")
    story = Story([only]).accepted("train", 1, "1").accepted("train", 2, "2")
    story.observed("train", 1, "1", "RUNNING")
    assert advance(story.state, [only], keep_off={"train": ["n1"]}) == []


def test_a_new_link_keeps_off_from_the_start() -> None:
    only = Chain("train", lookahead=1)
    assert advance(Story([only]).state, [only], keep_off={"train": ["n1"]}) == [
        SubmitLink("train", 1, 0, (), ("n1",))
    ]


def test_resume_starts_afresh_with_the_next_link_number() -> None:
    only = Chain("train", lookahead=1)
    story = Story([only]).accepted("train", 1, "1").ran("train", 1, "1", 76)
    story.say("stage.stopped", {"epoch": 0, "reason": "x", "rule": "r"}, stage="train")
    assert submits(advance(story.state, [only])) == []
    story.say("run.resumed", {"stages": {"train": 1}})
    assert advance(story.state, [only]) == [SubmitLink("train", 2, 1, ())]


def test_a_refused_submission_stops_the_stage() -> None:
    only = Chain("train")
    story = Story([only])
    story.say("submission.intent", {"token": token("train", 1), "link": 1}, stage="train")
    story.say("submission.rejected", {"token": token("train", 1), "reason": "bad account"}, stage="train")
    acts = advance(story.state, [only])
    assert [(a.rule, "bad account" in a.reason) for a in acts if isinstance(a, StopStage)] == [
        ("rejected-by-scheduler", True)
    ]


def test_used_up_links_wait_for_the_last_to_end() -> None:
    only = Chain("train", max_links=2, budgets=Budgets(max_links=2))
    story = Story([only]).accepted("train", 1, "1").accepted("train", 2, "2")
    story.ran("train", 1, "1", 75).inside("checkpoint.committed", "train", "1", {"step": 5})
    assert advance(story.state, [only]) == []
    story.ran("train", 2, "2", 75).inside("checkpoint.committed", "train", "2", {"step": 9})
    assert [a.rule for a in advance(story.state, [only]) if isinstance(a, StopStage)] == ["budget:max-links"]


def test_waiting_at_the_gate_uses_no_link() -> None:
    only = Chain("train", needs=("data",), lookahead=1)
    story = Story([DATA, only]).accepted("data", 1, "1").accepted("train", 1, "2")
    story.inside("attempt.started", "train", "2", {"token": token("train", 1), "nodes": ""})
    story.inside("attempt.gate", "train", "2", {"verdict": "wait"})
    story.inside("attempt.finished", "train", "2", {"exit_code": 75})
    assert links_used(story.state.stage("train")) == 0
    assert submits(advance(story.state, [DATA, only])) == [("train", 2, (token("data", 1),))]


def test_an_artifact_that_verifies_completes_a_stage_that_could_not_say_so() -> None:
    only = Chain("train", lookahead=1)
    story = Story([only]).accepted("train", 1, "1")
    story.inside("attempt.started", "train", "1", {"token": token("train", 1), "nodes": ""})
    story.observed("train", 1, "1", "NODE_FAIL")
    acts = advance(story.state, [only], artifact_ok=lambda name: True)
    assert acts == [CompleteStage("train", 0)]


def test_a_job_held_after_a_failed_launch_is_released_within_its_budget() -> None:
    only = Chain("train", lookahead=1, budgets=Budgets(launch=2))
    story = Story([only]).accepted("train", 1, "1")
    held = {"held": True, "reason": "launch failed requeued held"}
    story.observed("train", 1, "1", "PENDING", restart=1, **held)
    acts = advance(story.state, [only])
    assert [type(a) for a in acts] == [ReleaseJob]
    for _ in range(2):
        data = {"token": token("train", 1), "job_id": "1"}
        story.inside("job.released", "train", "1", data, restart=1)
    assert advance(story.state, [only]) == []


def test_a_persons_hold_is_left_alone() -> None:
    only = Chain("train", lookahead=1)
    story = Story([only]).accepted("train", 1, "1")
    story.observed("train", 1, "1", "PENDING", held=True, reason="JobHeldUser")
    assert advance(story.state, [only]) == []


def test_the_order_of_the_journal_changes_no_act() -> None:
    story = Story(ALL).accepted("data", 1, "1").accepted("train", 1, "2")
    story.ran("data", 1, "1", 1).observed("data", 1, "1", "FAILED", exit_code=1)
    want = advance(story.state, ALL)
    for seed in range(20):
        shuffled = list(story.events)
        random.Random(seed).shuffle(shuffled)
        state = fold(shuffled)
        state.stages = {name: state.stage(name) for name in ("data", "train", "eval")}
        assert advance(state, ALL) == want
