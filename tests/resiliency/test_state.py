"""The fold: independent of order and repetition, and right about chains, requeues, epochs."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from resiliency import contract
from resiliency.events import Event
from resiliency.state import RunState, Stage, fold
from tests.resiliency.histories import RUN, histories

_TOKEN = contract.token(RUN, "train", 1)
_JOB = contract.attempt_id("local", "7", 0)


class Told:
    """Writes a history as one would tell it: each event a second after the one before."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now = 1000.0

    def say(self, type: str, *, at: float | None = None, **data: Any) -> Told:
        fields = {k: data.pop(k) for k in ("stage", "attempt", "node", "cycle") if k in data}
        self.now += 1
        number, ts = len(self.events) + 1, self.now if at is None else at
        self.events.append(Event(type, RUN, "w", number, ts, ts, data=data, **fields))
        return self

    def created(self, **needs: list[str]) -> Told:
        items = [{"name": name, "kind": "command", "needs": need} for name, need in needs.items()]
        return self.say("run.created", name="demo", stages=items)

    def submitted(self, job_id: str = "7", *, link: int = 1, epoch: int = 0) -> Told:
        token = contract.token(RUN, "train", link)
        self.say("submission.intent", token=token, stage="train", epoch=epoch, cluster="local")
        return self.say("submission.accepted", token=token, job_id=job_id, stage="train")

    def seen(self, state: str, *, job_id: str = "7", restart: int = 0, **data: Any) -> Told:
        link = data.pop("link", 1)
        return self.say(
            "job.observed",
            stage="train",
            attempt=contract.attempt_id("local", job_id, restart),
            token=contract.token(RUN, "train", link),
            state=state,
            **data,
        )

    def inside(self, type: str, *, attempt: str = _JOB, **data: Any) -> Told:
        return self.say(type, stage="train", attempt=attempt, **data)

    @property
    def state(self) -> RunState:
        return fold(self.events)

    @property
    def train(self) -> Stage:
        return self.state.stages["train"]


@settings(max_examples=150, deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_order_and_repetition_do_not_matter(events: list[Event], rng: random.Random) -> None:
    told = fold(events)
    mixed = events + rng.choices(events, k=len(events) // 2) if events else []
    rng.shuffle(mixed)
    assert fold(mixed) == told


@settings(max_examples=60, deadline=None)
@given(histories(), st.integers(0, 40))
def test_folding_on_equals_folding_at_once(events: list[Event], cut: int) -> None:
    assert fold(events[cut:], fold(events[:cut])) == fold(events)


@settings(max_examples=60, deadline=None)
@given(histories())
def test_every_question_can_be_answered_of_any_history(events: list[Event]) -> None:
    state = fold(events)
    assert state.status
    for stage in state.stages.values():
        assert stage.status
        stage.history()
        stage.live_links()
        state.blocked(stage)
        for attempt in stage.chain():
            attempt.past()


def test_nonsense_is_noted_and_changes_nothing_else() -> None:
    told = Told().created(train=[]).submitted()
    before = told.state
    told.say("submission.accepted", token=_TOKEN)
    told.inside("checkpoint.committed", step="far")
    after = told.state
    assert after.malformed == {("w", 4), ("w", 5)}
    assert after.stages["train"].submissions == before.stages["train"].submissions
    assert after.stages["train"].attempts[_JOB].checkpoint_step is None


def test_an_empty_history_is_a_waiting_run() -> None:
    assert fold([]).status == "waiting"


def test_statuses_along_a_simple_chain() -> None:
    told = Told().created(train=[])
    assert told.train.status == "waiting"
    told.say("submission.intent", token=_TOKEN, stage="train", cluster="local", epoch=0)
    assert told.train.status == "uncertain"
    told.say("submission.accepted", token=_TOKEN, job_id="7", stage="train")
    assert told.train.status == "queued"
    told.seen("RUNNING")
    assert told.train.status == "running" and told.state.status == "running"
    told.inside("attempt.finished", exit_code=75).seen("COMPLETED", exit_code=75)
    assert told.train.status == "waiting"
    told.say("stage.completed", stage="train", epoch=0)
    assert told.train.status == "complete" and told.state.status == "complete"
    assert told.state.finished


def test_a_late_older_word_does_not_revive_an_ended_job() -> None:
    told = Told().created(train=[]).submitted().seen("COMPLETED", exit_code=0)
    told.seen("RUNNING")  # from a host whose clock is ahead
    assert told.train.attempts[_JOB].state == "COMPLETED"
    told.seen("PENDING", at=1.0)
    assert told.train.attempts[_JOB].ended


def test_the_scheduler_s_later_word_on_an_ended_job_counts() -> None:
    told = Told().created(train=[]).submitted().seen("FAILED", exit_code=1).seen("NODE_FAIL")
    assert told.train.attempts[_JOB].state == "NODE_FAIL"


def test_a_job_that_speaks_is_running_whatever_was_observed_before() -> None:
    told = Told().created(train=[]).submitted().seen("PENDING")
    told.inside("attempt.started", token=_TOKEN)
    assert told.train.attempts[_JOB].state == "RUNNING"
    assert told.train.status == "running"


def test_a_requeued_job_is_two_attempts_and_its_link_lives() -> None:
    told = Told().created(train=[]).submitted()
    told.seen("PREEMPTED").seen("PENDING", restart=1)
    assert [a.restart_count for a in told.train.chain()] == [0, 1]
    assert [link.token for link in told.train.live_links()] == [_TOKEN]
    assert told.train.status == "queued"
    told.seen("COMPLETED", restart=1, exit_code=0)
    assert told.train.live_links() == []


def test_chain_order_is_by_number_not_by_text() -> None:
    told = Told().created(train=[])
    told.seen("RUNNING", job_id="100").seen("COMPLETED", job_id="99")
    assert [a.job_id for a in told.train.chain()] == ["99", "100"]


def test_a_duplicate_that_ended_does_not_end_its_link() -> None:
    told = Told().created(train=[]).submitted("7").seen("RUNNING")
    told.say("submission.accepted", token=_TOKEN, job_id="8", stage="train")
    other = contract.attempt_id("local", "8", 0)
    told.seen("COMPLETED", job_id="8", exit_code=0)
    told.inside("duplicate.refused", attempt=other, token=_TOKEN)
    assert [link.token for link in told.train.live_links()] == [_TOKEN]
    assert told.train.attempts[other].duplicate
    assert told.train.history() == []


def test_an_accepted_job_nobody_has_seen_yet_lives() -> None:
    assert len(Told().created(train=[]).submitted().train.live_links()) == 1


def test_an_epoch_starts_anew_after_a_resume() -> None:
    told = Told().created(train=[]).submitted().seen("FAILED", exit_code=1)
    told.inside("attempt.started", token=_TOKEN).inside("attempt.gate", verdict="go")
    told.say("stage.stopped", stage="train", epoch=0, category="code_error", reason="bug")
    assert told.train.status == "stopped" and len(told.train.history()) == 1
    told.say("run.resumed", stages={"train": 1})
    assert told.train.status == "waiting"
    assert told.train.history() == []
    told.submitted("9", link=2, epoch=1).seen("FAILED", job_id="9", link=2, exit_code=1)
    assert len(told.train.history()) == 1
    told.say("run.cancelled", stages={"train": 1})
    assert told.train.status == "cancelled"


def test_the_first_reason_to_stop_is_kept() -> None:
    told = Told().created(train=[])
    told.say("stage.stopped", stage="train", epoch=0, reason="later")
    told.say("stage.stopped", stage="train", epoch=0, reason="first", at=5.0)
    assert told.train.stopped == {"epoch": 0, "reason": "first"}


def test_a_stage_is_blocked_by_what_it_needs_however_far() -> None:
    told = Told().created(a=[], b=["a"], c=["b"])
    told.say("stage.stopped", stage="a", epoch=0, category="data_error", reason="no file")
    state = told.state
    assert state.blocked(state.stages["c"]) == "a"
    assert state.status == "stopped"


def test_outcomes_of_a_submission() -> None:
    told = Told().created(train=[])

    def outcome() -> str:
        return told.train.submissions[_TOKEN].outcome

    told.say("submission.intent", token=_TOKEN)
    told.say("submission.uncertain", token=_TOKEN, looked_up=True)
    assert outcome() == "uncertain"
    assert told.train.submissions[_TOKEN].first_negative == told.now
    told.say("submission.absent", token=_TOKEN)
    assert outcome() == "absent"
    told.say("submission.intent", token=_TOKEN)  # tried again: what was said before is past
    assert outcome() == "intent"
    assert told.train.submissions[_TOKEN].first_negative is None
    told.say("submission.rejected", token=_TOKEN, reason="no such partition")
    assert outcome() == "rejected"
    told.say("submission.accepted", token=_TOKEN, job_id="7")
    assert outcome() == "accepted"


def test_cancelled_by_us_is_known_in_either_order() -> None:
    one = Told().created(train=[]).submitted()
    one.say("link.cancelled", token=_TOKEN, stage="train").seen("CANCELLED")
    other = Told().created(train=[]).submitted().seen("CANCELLED")
    other.say("link.cancelled", token=_TOKEN, stage="train")
    for told in (one, other):
        assert told.train.attempts[_JOB].verdict().category == "planned_rollover"
        assert told.train.history() == []


def test_progress_keeps_the_furthest_step_and_the_last_known_loss() -> None:
    told = Told().created(train=[])
    told.inside("progress", step=10, loss=2.0, tokens=100, section="step")
    told.inside("progress", step=12, loss=None, tokens=None, section="save")
    told.inside("progress", step=4, loss=9.0, tokens=40, section="step")  # an older cycle's, late
    attempt = told.train.attempts[_JOB]
    assert (attempt.step, attempt.loss, attempt.tokens) == (12, 2.0, 100)
    assert attempt.section == "save"
    assert attempt.last_progress_ts == told.now


def test_progress_made_means_a_checkpoint_past_the_one_resumed_from() -> None:
    told = Told().created(train=[]).inside("workload.resumed", step=10)
    assert not told.train.attempts[_JOB].progressed
    told.inside("checkpoint.committed", step=10)
    assert not told.train.attempts[_JOB].progressed
    told.inside("checkpoint.committed", step=20)
    assert told.train.attempts[_JOB].progressed


def test_the_program_s_first_error_counts() -> None:
    told = Told().created(train=[])
    told.inside("workload.error", category="gpu_oom", message="first")
    told.inside("workload.error", category="code_error", message="in its wake")
    told.inside("attempt.finished", exit_code=1).seen("FAILED", exit_code=1)
    assert told.train.attempts[_JOB].verdict().category == "gpu_oom"


# -- cycles ------------------------------------------------------------------------------------


def cycled(*ends: tuple[str, bool]) -> Told:
    """An attempt whose cycles ended so: (category, whether another followed), each at a further step."""
    told = Told().created(train=[]).submitted()
    told.inside("attempt.started", token=_TOKEN).inside("attempt.gate", verdict="go")
    for number, (category, on) in enumerate(ends):
        told.inside("cycle.started", cycle=number, nodes=["n1", "n2"], spares=["n3"])
        told.inside("workload.resumed", cycle=number, step=10 * number)
        told.inside("progress", cycle=number, step=10 * number + 5)
        data = {"category": category, "signature": f"{category}!", "continued": on, "rank": 1}
        told.inside("cycle.ended", cycle=number, step=10 * number + 6, reason="why", **data)
    return told


def test_each_cycle_that_was_got_over_counts_and_the_attempt_s_own_end_counts_once() -> None:
    told = cycled(("hang", True), ("framework_crash", True), ("code_error", False))
    assert [p.category for p in told.train.attempts[_JOB].past_cycles()] == ["hang", "framework_crash"]
    told.inside("workload.error", cycle=2, category="code_error", message="KeyError")
    told.inside("attempt.finished", exit_code=1).seen("FAILED", exit_code=1)
    past = told.train.history()
    assert [(p.category, p.step, p.in_job) for p in past] == [
        ("hang", 6, True),
        ("framework_crash", 16, True),
        ("code_error", 26, False),
    ]
    assert past[-1].signature == "code_error!"  # what the supervisor decided on, so that both decide alike


def test_a_running_attempt_is_not_history_yet() -> None:
    assert cycled(("hang", True)).train.history() == []


def test_what_was_found_out_on_the_spot_explains_a_bare_exit_code() -> None:
    told = cycled(("hang", False)).inside("attempt.finished", exit_code=1).seen("FAILED", exit_code=1)
    verdict = told.train.attempts[_JOB].verdict()
    assert (verdict.category, verdict.rank, verdict.reason) == ("hang", 1, "why")


def test_and_does_not_contradict_an_end_that_says_more() -> None:
    told = cycled(("hang", False)).seen("TIMEOUT")
    assert told.train.attempts[_JOB].verdict().category == "time_limit"
    told = cycled(("hang", True)).inside("attempt.finished", exit_code=0).seen("COMPLETED", exit_code=0)
    assert told.train.attempts[_JOB].verdict().category == "healthy"


def test_an_end_after_a_cycle_that_was_got_over_is_not_that_cycle_s() -> None:
    told = cycled(("code_error", True))
    told.inside("workload.error", cycle=0, category="code_error", message="KeyError")
    # Then no node was left to start the next cycle on.
    told.inside("attempt.finished", exit_code=1).seen("FAILED", exit_code=1)
    past = told.train.history()
    assert [(p.category, p.step) for p in past] == [("code_error", 6), ("unknown", None)]


def test_progress_of_a_cycle_is_a_save_past_what_it_resumed_from() -> None:
    told = cycled(("hang", True), ("hang", True))
    attempt = told.train.attempts[_JOB]
    assert [p.progressed for p in attempt.past_cycles()] == [False, False]
    told.inside("checkpoint.committed", cycle=0, step=4).inside("checkpoint.committed", cycle=1, step=10)
    attempt = told.train.attempts[_JOB]
    assert [p.progressed for p in attempt.past_cycles()] == [True, False]


def test_a_cycle_that_does_not_say_where_it_resumed_is_measured_by_what_was_saved_before() -> None:
    told = Told().created(train=[])
    told.inside("checkpoint.committed", cycle=0, step=20).inside("checkpoint.committed", cycle=1, step=20)
    attempt = told.train.attempts[_JOB]
    assert (attempt.progressed_in(0), attempt.progressed_in(1), attempt.progressed_in(7)) == (
        True,
        False,
        False,
    )


def test_swaps_losses_and_orders_are_kept() -> None:
    told = cycled(("node_down", True))
    told.inside("node.swapped", cycle=1, **{"out": "n2", "in": "n3"})
    told.inside("node.lost", cycle=0, reason="gone")  # of no node: nonsense
    told.events.append(_event(told, "node.lost", {"node": "n2", "reason": "gone"}))
    told.events.append(_event(told, "node.excluded", {"node": "n2", "cluster": "local", "until": 9e9}))
    attempt = told.train.attempts[_JOB]
    assert (attempt.cycles[1].swapped, attempt.lost) == ({"n2": "n3"}, {"n2": "gone"})
    (order,) = told.state.orders.values()
    assert (order.node, order.run, order.until) == ("n2", RUN, 9e9)
    assert len(told.state.malformed) == 1


def _event(told: Told, kind: str, data: dict[str, Any]) -> Event:
    told.now += 1
    return Event(kind, RUN, "w", len(told.events) + 1, told.now, told.now, "train", _JOB, 0, data=data)


def test_a_link_keeps_off_the_nodes_it_was_last_told() -> None:
    told = Told().created(train=[])
    told.say("submission.intent", token=_TOKEN, stage="train", exclude=["n2", "n1"])
    assert told.train.submissions[_TOKEN].exclude == ("n1", "n2")
    told.say("link.excluding", token=_TOKEN, stage="train", nodes=["n1"])
    assert told.train.submissions[_TOKEN].exclude == ("n1",)
    told.say("submission.intent", token=_TOKEN, stage="train")  # submitted again, kept off none
    assert told.train.submissions[_TOKEN].exclude == ()


def test_a_job_gone_from_the_scheduler_has_ended_without_a_verdict() -> None:
    told = Told().created(train=[]).submitted().inside("job.gone", token=_TOKEN)
    attempt = told.train.attempts[_JOB]
    assert attempt.ended and attempt.state == "GONE"
    assert attempt.verdict().category == "unknown"
