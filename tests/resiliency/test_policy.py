"""What is done next: a row per rule, and what must never happen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resiliency.diagnosis import Verdict
from resiliency.policy import Budgets, Capacity, PastAttempt, decide, shadowed
from resiliency.taxonomy import CATEGORIES, Action, Budget

FEW = Budgets(unexplained=3, no_progress=3, same_signature=2, launch=2, max_links=10, total_wall_s=1000.0)


def past(category: str, **more: Any) -> PastAttempt:
    return PastAttempt(category, **{"signature": category, **more})


def rule(*history: PastAttempt, capacity: Capacity = Capacity()) -> tuple[str, str]:  # noqa: B008
    """``(action, rule)`` after a history whose last attempt is the one to decide about."""
    last = history[-1]
    verdict = Verdict(last.category, "why", signature=last.signature)
    decision = decide(verdict, history, FEW, capacity)
    return decision.action.value, decision.rule


def test_complete() -> None:
    assert rule(past("healthy")) == ("none", "complete")


def test_a_person_s_scancel_is_not_retried() -> None:
    assert rule(past("user_cancelled")) == ("stop", "user-cancelled")


@pytest.mark.parametrize("name", ["storage_full", "storage_quota", "storage_io", "submit_uncertain"])
def test_what_a_person_must_clear_is_held(name: str) -> None:
    assert rule(past(name)) == ("hold", f"category:{name}")


@pytest.mark.parametrize(
    "name", ["config_error", "data_error", "gpu_oom", "host_oom", "numeric", "checkpoint_mismatch"]
)
def test_what_is_deterministic_stops_after_one_attempt(name: str) -> None:
    assert rule(past(name)) == ("stop", f"category:{name}")


@pytest.mark.parametrize("name", ["time_limit", "preempted", "requeued", "planned_rollover"])
def test_what_is_planned_goes_on(name: str) -> None:
    assert rule(past(name, progressed=True)) == ("requeue", f"category:{name}")


@pytest.mark.parametrize("name", ["node_down", "gpu_ecc", "ib_link", "node_prolog", "sdc_suspected"])
def test_a_node_s_fault_goes_on_without_the_node(name: str) -> None:
    assert rule(past(name)) == ("requeue_excluding", f"category:{name}")


def test_a_torn_checkpoint_goes_back_to_the_one_before() -> None:
    assert rule(past("checkpoint_corrupt")) == ("rollback_checkpoint", "category:checkpoint_corrupt")


def test_what_looks_like_code_gets_another_allocation_within_budget() -> None:
    assert rule(past("code_error", step=5)) == ("requeue", "retry:code_error")
    assert rule(past("comm_timeout", step=5)) == ("requeue", "retry:comm_timeout")


def test_the_same_failure_at_the_same_step_never_burns_a_third_allocation() -> None:
    first = past("code_error", step=5, signature="KeyError")
    assert rule(first, first) == ("stop", "same-signature-same-step")
    elsewhere = past("code_error", step=6, signature="KeyError")
    assert rule(first, elsewhere) == ("requeue", "retry:code_error")
    other = past("code_error", step=5, signature="ValueError")
    assert rule(first, other) == ("requeue", "retry:code_error")


def test_the_same_failure_is_remembered_over_progress_and_other_ends() -> None:
    first = past("code_error", step=5, signature="KeyError")
    between = past("preempted", step=9, progressed=True)
    assert rule(first, between, first) == ("stop", "same-signature-same-step")


def test_without_a_step_equal_exits_prove_nothing_until_the_budget_is_used() -> None:
    bare = past("unknown", step=None)
    assert rule(bare, bare) == ("requeue", "category:unknown")
    assert rule(bare, bare, bare) == ("stop", "budget:unexplained")


def test_progress_resets_the_unexplained_budget() -> None:
    failed = [past("unknown", step=n) for n in range(2)]
    saved = past("unknown", step=50, progressed=True)
    assert rule(*failed, saved) == ("requeue", "category:unknown")
    assert rule(*failed, saved, past("unknown", step=51)) == ("requeue", "category:unknown")
    assert rule(*failed, past("unknown", step=7)) == ("stop", "budget:unexplained")


def test_planned_ends_do_not_use_the_unexplained_budget() -> None:
    history = [past("unknown", step=n) for n in range(2)]
    history += [past("preempted", step=3)] * 5
    assert rule(*history) == ("requeue", "category:preempted")


def test_launches_have_a_budget_of_their_own() -> None:
    launch = past("launch_failed", worked=False)
    assert rule(launch) == ("requeue", "category:launch_failed")
    assert rule(launch, launch) == ("stop", "budget:launch")
    worked = past("preempted", progressed=True)
    assert rule(launch, worked, launch) == ("requeue", "category:launch_failed")


def test_allocations_that_save_nothing_new_end_the_chain() -> None:
    idle = past("time_limit", worked=True)
    assert rule(idle, idle) == ("requeue", "category:time_limit")
    assert rule(idle, idle, idle) == ("stop", "budget:no-progress")
    assert rule(idle, idle, past("time_limit", progressed=True)) == ("requeue", "category:time_limit")


def test_waiting_at_the_gate_is_not_a_lack_of_progress() -> None:
    waited = past("planned_rollover", worked=False)
    assert rule(*[waited] * 9) == ("requeue", "category:planned_rollover")


def test_lost_nodes_and_preemption_say_nothing_about_the_work() -> None:
    assert rule(*[past("node_down")] * 9) == ("requeue_excluding", "category:node_down")
    assert rule(*[past("preempted")] * 9) == ("requeue", "category:preempted")


def test_the_total_wall_time_ends_even_what_is_free() -> None:
    used = Capacity(wall_used_s=1000.0)
    assert rule(past("preempted"), capacity=used) == ("stop", "budget:total-wall-time")
    nearly = Capacity(wall_used_s=999.0)
    assert rule(past("preempted"), capacity=nearly) == ("requeue", "category:preempted")


def test_the_last_link_ends_the_chain() -> None:
    assert rule(past("time_limit"), capacity=Capacity(links_used=10)) == ("stop", "budget:max-links")
    assert rule(past("time_limit"), capacity=Capacity(links_used=9)) == ("requeue", "category:time_limit")
    assert rule(past("healthy"), capacity=Capacity(links_used=10)) == ("none", "complete")


def test_in_shadow_a_failure_ends_the_attempt_and_no_node_is_kept_out() -> None:
    verdict = Verdict("node_down", "why", confidence=1.0, node="n1", signature="x")
    inside = Capacity(in_job=True, restarts_left=3, spares=1)
    swap = decide(verdict, [past("node_down")], FEW, inside)
    assert swap.stays and swap.exclude == ("n1",)
    done = shadowed(swap)
    assert (done.action, done.rule, done.exclude, done.stays) == (Action.REQUEUE, "shadow", (), False)
    assert "swap_node by in-job:spare" in done.reason
    slow = decide(Verdict("straggler", "why", node="n1"), [past("straggler")], FEW, inside)
    assert shadowed(slow).stays  # going on is doing nothing
    stop = decide(Verdict("gpu_oom", "why"), [past("gpu_oom")], FEW, inside)
    assert shadowed(stop).action is Action.STOP
    over = decide(verdict, [past("node_down")], FEW, Capacity())
    assert (shadowed(over).action, shadowed(over).exclude) == (Action.REQUEUE, ())


@settings(deadline=None)
@given(
    st.sampled_from(sorted(CATEGORIES)), st.booleans(), st.integers(0, 3), st.integers(0, 4), st.booleans()
)
def test_no_allocation_restarts_for_ever(
    name: str, named: bool, spares: int, restarts: int, swap_slow: bool
) -> None:
    """The same failure at ever new steps, and nothing saved: each restart uses something up."""
    history: list[PastAttempt] = []
    nodes = 4
    for _ in range(50):
        node = f"n{nodes}" if named else None
        capacity = Capacity(
            in_job=True, restarts_left=restarts, spares=spares, can_shrink=nodes > 1, straggler_swap=swap_slow
        )
        history.append(PastAttempt(name, name, len(history), node=node, in_job=True))
        decision = decide(
            Verdict(name, "why", confidence=1.0, node=node, signature=name), history, FEW, capacity
        )
        if not decision.stays or decision.action is Action.CONTINUE:
            break
        if decision.action is Action.SWAP_NODE:
            spares, nodes = spares - 1, nodes - 1
        elif decision.action is Action.SHRINK:
            nodes -= 1
        else:
            restarts -= 1
    assert len(history) <= 9


_pasts = st.builds(
    PastAttempt,
    category=st.sampled_from(sorted(CATEGORIES)),
    signature=st.sampled_from(["", "a", "b"]),
    step=st.none() | st.integers(0, 3),
    progressed=st.booleans(),
    worked=st.booleans(),
    node=st.sampled_from([None, "n1", "n2"]),
    in_job=st.booleans(),
)
_budgets = st.builds(
    Budgets,
    unexplained=st.integers(1, 4),
    no_progress=st.integers(1, 4),
    same_signature=st.integers(1, 3),
    launch=st.integers(1, 4),
    max_links=st.none() | st.integers(1, 5),
    total_wall_s=st.none() | st.floats(0, 100),
)


_capacities = st.builds(
    Capacity,
    in_job=st.booleans(),
    restarts_left=st.integers(0, 2),
    spares=st.integers(0, 2),
    can_shrink=st.booleans(),
    time_left_s=st.none() | st.floats(0, 100),
    restart_cost_s=st.floats(0, 60),
    straggler_swap=st.booleans(),
)


@settings(deadline=None)
@given(
    st.lists(_pasts, min_size=1, max_size=8),
    _budgets,
    st.integers(0, 6),
    st.floats(0, 200),
    _capacities,
    st.sampled_from([0.3, 0.95]),
)
def test_promises_that_hold_for_every_history(
    history: list[PastAttempt], budgets: Budgets, links: int, wall_s: float, inside: Capacity, sure: float
) -> None:
    last = history[-1]
    row = CATEGORIES[last.category]
    verdict = Verdict(last.category, "why", confidence=sure, node=last.node, signature=last.signature)
    capacity = replace(inside, links_used=links, wall_used_s=wall_s)
    decision = decide(verdict, history, budgets, capacity)
    assert decision == decide(verdict, history, budgets, capacity)
    assert decision.rule and decision.reason
    if decision.exclude or decision.action is Action.REQUEUE_EXCLUDING:
        assert row.node_fault
    assert decision.in_job or not decision.stays
    assert capacity.in_job or decision.action not in (Action.SWAP_NODE, Action.SHRINK, Action.CONTINUE)
    if decision.action is Action.SWAP_NODE:
        assert capacity.spares and verdict.node
    if row.budget is Budget.TERMINAL:
        assert not decision.goes_on
    if decision.goes_on and budgets.total_wall_s is not None:
        assert wall_s < budgets.total_wall_s
    if decision.goes_on and budgets.max_links is not None:
        assert links < budgets.max_links


@settings(deadline=None)
@given(st.sampled_from([n for n, r in CATEGORIES.items() if r.budget is not Budget.FREE]))
def test_what_keeps_failing_ends_after_few_attempts(name: str) -> None:
    history: list[PastAttempt] = []
    for _ in range(20):
        history.append(past(name, step=None))
        if not decide(Verdict(name, "why", signature=name), history, FEW, Capacity()).goes_on:
            break
    assert len(history) <= 3
