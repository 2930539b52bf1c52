"""Orders on nodes: who is kept out, for how long, and who must be let back in."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resiliency.diagnosis import Verdict
from resiliency.events import Event
from resiliency.exclusion import (
    DAY_S,
    Order,
    Settings,
    active,
    avoided,
    choose,
    ordered,
    orders_in,
)
from resiliency.policy import Budgets, Capacity, PastAttempt, decide
from tests.resiliency.test_state import Told

NOW = 100 * DAY_S


def out(node: str, *, ago: float = 1.0, days: float = 7.0, by: str = "proof", cluster: str = "c") -> Order:
    at = NOW - ago * DAY_S
    return Order(cluster, node, at, until=at + days * DAY_S, by=by, reason=f"{by} {node}", evidence=(by,))


def back(node: str, *, ago: float = 0.5, cluster: str = "c") -> Order:
    return Order(cluster, node, NOW - ago * DAY_S, back=True, by="person:ann")


def names(orders: list[Order], now: float = NOW, **more: Any) -> list[str]:
    return [one.node for one in active(orders, now=now, **more)]


def test_an_order_holds_until_its_end_and_not_a_moment_longer() -> None:
    one = out("n1")
    assert one.until is not None
    assert names([one], one.until - 1) == ["n1"]
    assert names([one], one.until) == []


def test_a_readmission_forgets_what_came_before_it_only() -> None:
    assert names([out("n1", ago=1), back("n1", ago=0.5)]) == []
    assert names([out("n1", ago=1), back("n1", ago=2)]) == ["n1"]
    assert names([out("n1"), back("n2")]) == ["n1"]


def test_clusters_do_not_share_names() -> None:
    orders = [out("n1", cluster="c"), out("n1", cluster="d"), back("n1", cluster="d")]
    assert [(e.cluster, e.node) for e in active(orders, now=NOW)] == [("c", "n1")]
    assert names(orders, cluster="d") == []


def test_the_strongest_order_says_why_and_the_longest_when_it_ends() -> None:
    held = [out("n1", ago=3, by="person:ann"), out("n1", ago=1), out("n1", ago=2, by="quorum")]
    (found,) = active(held, now=NOW)
    assert (found.rule, found.by, found.since) == ("person", "person:ann", NOW - 3 * DAY_S)
    assert found.until == NOW + 6 * DAY_S
    assert found.evidence == ("person:ann", "quorum", "proof")


_orders = st.lists(
    st.builds(
        Order,
        cluster=st.sampled_from("cd"),
        node=st.sampled_from(["n1", "n2"]),
        at=st.integers(0, 5).map(float),
        back=st.booleans(),
        until=st.integers(0, 9).map(float),
        by=st.sampled_from(["proof", "quorum", "person:ann"]),
        reason=st.sampled_from("ab"),
    ),
    max_size=8,
)


@settings(deadline=None)
@given(_orders, st.randoms(use_true_random=False))
def test_the_order_of_orders_and_repetition_do_not_matter(orders: list[Order], rng: random.Random) -> None:
    mixed = orders + orders[:3]
    rng.shuffle(mixed)
    assert active(mixed, now=4.0) == active(orders, now=4.0)


def event(kind: str, **data: Any) -> Event:
    return Event(kind, "r", "w", 1, 5.0, 0.0, "train", data=data)


@pytest.mark.parametrize(
    "bad",
    [
        event("node.excluded", node="n1", cluster="c"),  # without an end it would be for ever
        event("node.excluded", node="n1", cluster="c", until="soon"),
        event("node.excluded", node="n1", until=9),
        event("node.readmitted", cluster="c"),
        event("node.lost", node="n1", cluster="c"),
    ],
    ids=range(5),
)
def test_what_is_no_order_keeps_nobody_out(bad: Event) -> None:
    assert orders_in([bad]) == []


def test_an_order_is_read_back_as_it_was_journaled() -> None:
    one = Order(
        "c", "n1", 5.0, until=9.0, by="proof", category="gpu_ecc", reason="x", evidence=("l",), run="r"
    )
    assert orders_in([event("node.excluded", **one.as_data())]) == [one]


# -- from decisions ----------------------------------------------------------------------------


def orders_of(category: str, sure: float) -> list[Order]:
    verdict = Verdict(category, "why", confidence=sure, node="n1", evidence=("Xid 79",))
    past = [PastAttempt(category, category, 3, node="n1")]
    decision = decide(verdict, past, Budgets(), Capacity(in_job=True, spares=1, restarts_left=1))
    return ordered(decision, verdict, cluster="c", settings=Settings(days=2.0), now=NOW)


def test_a_proven_fault_is_an_order_with_evidence_and_an_end() -> None:
    (one,) = orders_of("gpu_off_bus", 0.95)
    assert (one.cluster, one.node, one.until, one.category) == ("c", "n1", NOW + 2 * DAY_S, "gpu_off_bus")
    assert one.evidence == ("why", "Xid 79")


@pytest.mark.parametrize(
    ("category", "sure"),
    [("gpu_off_bus", 0.8), ("sdc_suspected", 0.6), ("gpu_oom", 1.0), ("code_error", 1.0), ("hang", 1.0),
     ("storage_full", 1.0), ("host_oom", 1.0)],
)  # fmt: skip
def test_what_proves_no_node_s_fault_is_none(category: str, sure: float) -> None:
    assert orders_of(category, sure) == []


def told(shadow: bool = False) -> Told:
    story = Told().created(train=[]).submitted()
    story.inside("cycle.started", cycle=0, nodes=["n1", "n2"])
    story.inside("decision", cycle=0, action="requeue_excluding", exclude=["n1"], shadow=shadow, reason="16")
    story.inside("cycle.ended", cycle=0, category="sdc_suspected", continued=False)
    return story.inside("attempt.finished", exit_code=16)


def test_the_stage_s_next_link_avoids_what_its_decisions_left() -> None:
    stage = told().train
    assert avoided(stage, now=1010.0, settings=Settings()) == {"n1": "16"}
    assert avoided(stage, now=1010.0 + 8 * DAY_S, settings=Settings()) == {}


def test_a_decision_that_was_only_recorded_leaves_no_node() -> None:
    assert avoided(told(shadow=True).train, now=1010.0, settings=Settings()) == {}


# -- what there is room for ---------------------------------------------------------------------


def test_a_stage_keeps_the_nodes_it_needs() -> None:
    held = active([out("n1", by="person:ann"), out("n2", by="person:ann", ago=2)], now=NOW)
    kept = choose(held, need=3, available=4, settings=Settings())
    assert kept.nodes == ("n1",)
    assert kept.dropped == (("n2", "3 of 4 nodes are needed"),)


def test_no_more_than_a_share_of_the_partition_the_weakest_and_oldest_first() -> None:
    held = active([out("n1", by="quorum"), out("n2", ago=3), out("n3", ago=2)], now=NOW)
    kept = choose(held, need=1, available=20, settings=Settings(max_share=0.1))
    assert kept.nodes == ("n2", "n3")
    assert [node for node, _ in kept.dropped] == ["n1"]
    kept = choose(held, need=1, available=20, settings=Settings(max_share=0.05))
    assert (kept.nodes, [n for n, _ in kept.dropped]) == (("n3",), ["n2", "n1"])
    assert choose(held, need=1, available=8, settings=Settings()).nodes == ()


def test_a_person_s_word_and_the_stage_s_own_next_link_are_not_bound_by_the_share() -> None:
    held = active([out("n1", by="person:ann"), out("n2")], now=NOW)
    kept = choose(held, need=2, available=6, settings=Settings(), avoid={"n2": "exit 16", "n3": "lost"})
    assert kept.nodes == ("n1", "n2", "n3")
    few = choose(held, need=5, available=6, settings=Settings(), avoid={"n2": "", "n3": ""})
    assert few.nodes == ("n1",)


def test_where_nobody_knows_how_many_nodes_there_are_only_a_person_s_word_counts() -> None:
    held = active([out("n1", by="person:ann"), out("n2"), out("n3", by="quorum")], now=NOW)
    kept = choose(held, need=4, available=None, settings=Settings(), avoid={"n4": "lost"})
    assert kept.nodes == ("n1",)
    assert {why for _, why in kept.dropped} == {"it is not known how many nodes there are"}


def test_emulated_nodes_are_as_many_as_are_asked_for() -> None:
    held = active([out(f"n{i}") for i in range(9)], now=NOW)
    assert len(choose(held, need=4, available=math.inf, settings=Settings()).nodes) == 9


@settings(deadline=None)
@given(
    _orders,
    st.integers(1, 6),
    st.integers(1, 8),
    st.floats(0.01, 1.0),
    st.dictionaries(st.sampled_from(["n1", "n2", "n3"]), st.just(""), max_size=3),
)
def test_promises_that_hold_for_every_choice(
    orders: list[Order], need: int, available: int, share: float, avoid: dict[str, str]
) -> None:
    held = active(orders, now=2.0, cluster="c")
    kept = choose(held, need=need, available=available, settings=Settings(max_share=share), avoid=avoid)
    assert not kept.nodes or available - len(kept.nodes) >= need
    free = {e.node for e in held if e.rule == "person"} | set(avoid)
    if set(kept.nodes) - free:
        assert len(kept.nodes) <= share * available
    assert {*kept.nodes, *(node for node, _ in kept.dropped)} == {e.node for e in held} | set(avoid)


def test_settings_are_the_file_s_or_the_defaults() -> None:
    assert Settings.read(None) == Settings() == Settings(7.0, 3, 0.1)
    assert Settings.read({"days": 1, "quorum": 2, "max_share": 0.5}) == Settings(1.0, 2, 0.5)
