"""What is held against a node, and when several failures become an order."""

from __future__ import annotations

from typing import Any

import pytest

from resiliency.exclusion import DAY_S, Order, Settings, active
from resiliency.node_evidence import Evidence, due, evidence_of
from resiliency.taxonomy import CATEGORIES
from tests.resiliency.test_state import Told

NOW = 100 * DAY_S


def failed(
    node: str = "n1", job: str = "1", *, run: str = "r", ago: float = 1.0, category: str = "hang", **more: Any
) -> Evidence:
    row = CATEGORIES[category]
    given = {"nodes": 4, "signature": f"{category} {job}", "proof": row.node_fault, **more}
    attempt, at = f"c/{job}.0", NOW - ago * DAY_S
    return Evidence("c", node, at, category, run, "train", attempt, 0, "verdict", **given)


def orders(*evidence: Evidence, known: list[Order] | None = None, **settings: Any) -> list[tuple[str, str]]:
    found = due(evidence, known or [], now=NOW, settings=Settings(**settings))
    for one in found:
        assert one.evidence and one.reason and one.until is not None and one.until > NOW
        assert one.until <= max(e.at for e in evidence) + 7 * DAY_S
    return [(one.node, one.by) for one in found]


def test_proof_needs_no_company() -> None:
    assert orders(failed(category="gpu_ecc")) == [("n1", "proof")]


def test_a_quorum_is_of_different_jobs() -> None:
    three = [failed(job=job) for job in "123"]
    assert orders(*three) == [("n1", "quorum")]
    assert orders(*three[:2]) == []
    assert orders(three[0], three[0], three[0]) == []
    assert orders(*three[:2], quorum=2) == [("n1", "quorum")]
    assert orders(three[0], three[1], failed("n2", "3")) == []


def test_a_job_of_one_node_could_not_have_failed_elsewhere_so_its_run_counts_once() -> None:
    alone = [failed(job=job, nodes=1) for job in "123"]
    assert orders(*alone) == []
    assert orders(*[failed(job=job, nodes=1, run=f"r{job}") for job in "123"]) == [("n1", "quorum")]


def test_what_the_run_also_had_on_another_node_follows_the_work() -> None:
    three = [failed(job=job, signature="same") for job in "123"]
    assert orders(*three) == [("n1", "quorum")]
    assert orders(*three, failed("n2", "4", signature="same")) == []
    assert orders(*three, failed("n2", "4", signature="same", run="another")) == [("n1", "quorum")]


def test_old_failures_say_nothing_any_more() -> None:
    assert orders(failed(job="1"), failed(job="2"), failed(job="3", ago=29)) == []
    assert orders(*[failed(job=job, ago=8 + i) for i, job in enumerate("123")]) == []  # 7 days are over
    assert orders(failed(category="gpu_ecc", ago=8)) == []


def test_nothing_is_ordered_twice_for_the_same_evidence() -> None:
    one = failed(category="gpu_ecc", ago=3)
    (order,) = due([one], [], now=NOW, settings=Settings())
    assert orders(one, known=[order]) == []
    # It ran out, and nothing new is known.
    over = Order("c", "n1", NOW - 2 * DAY_S, until=NOW - DAY_S, by="proof")
    assert orders(one, known=[over]) == []
    assert orders(one, failed(category="gpu_ecc", ago=0.5), known=[over]) == [("n1", "proof")]


def test_a_readmission_forgets_what_came_before() -> None:
    back = Order("c", "n1", NOW - 2 * DAY_S, back=True)
    old, new = failed(category="gpu_ecc", ago=3), failed(category="gpu_ecc", ago=1)
    assert orders(old, known=[back]) == []
    assert orders(old, new, known=[back]) == [("n1", "proof")]


def test_an_ordered_node_is_out_until_days_after_the_last_failure() -> None:
    held = [failed(job=job, ago=4 - i) for i, job in enumerate("123")]
    (order,) = due(held, [], now=NOW, settings=Settings(days=3))
    assert order.until == held[-1].at + 3 * DAY_S
    assert [e.node for e in active([order], now=NOW)] == ["n1"]


# -- from the journal --------------------------------------------------------------------------


def story() -> Told:
    return Told().created(train=[]).submitted()


def ended(
    told: Told, number: int, category: str, node: str | None, *, step: int = 5, on: bool = False
) -> Told:
    """A cycle's end as the supervisor journals it: the node it showed on is in the data."""
    from resiliency.events import Event
    from tests.resiliency.test_state import _JOB, RUN

    told.inside("cycle.started", cycle=number, nodes=["n1", "n2"])
    told.now += 1
    data = {"category": category, "signature": category, "reason": "why", "node": node, "step": step}
    event = Event(
        "cycle.ended", RUN, "w", len(told.events) + 1, told.now, told.now, "train", _JOB, number,
        data={**data, "continued": on},
    )  # fmt: skip
    told.events.append(event)
    return told


def test_the_end_of_a_cycle_that_names_a_node_is_held_against_it() -> None:
    told = ended(story(), 0, "node_down", "n1", on=True)
    (one,) = evidence_of(ended(told, 1, "code_error", "n2").state)
    assert (one.node, one.category, one.proof, one.nodes) == ("n1", "node_down", True, 2)
    assert (one.cluster, one.job, one.cycle, one.at) == ("local", "7", 0, told.now - 2)


@pytest.mark.parametrize(
    "name",
    ["code_error", "gpu_oom", "host_oom", "storage_full", "storage_quota", "config_error", "data_error",
     "shm_exhausted", "numeric", "unknown", "time_limit", "preempted", "healthy"],
)  # fmt: skip
def test_what_never_counts_against_a_node(name: str) -> None:
    assert evidence_of(ended(story(), 0, name, "n1").state) == []


def test_a_hang_counts_and_proves_nothing() -> None:
    (one,) = evidence_of(ended(story(), 0, "hang", "n1").state)
    assert not one.proof


def test_without_a_name_nobody_is_blamed() -> None:
    assert evidence_of(ended(story(), 0, "node_down", None).state) == []


def test_exit_16_is_proof_once_the_same_work_got_past_it_elsewhere() -> None:
    told = ended(story(), 0, "sdc_suspected", "n1", step=5, on=True)
    assert [e.proof for e in evidence_of(told.state)] == [False]
    told.inside("checkpoint.committed", cycle=1, step=5)
    assert [e.proof for e in evidence_of(told.state)] == [False]
    told.inside("checkpoint.committed", cycle=1, step=8)
    assert [e.proof for e in evidence_of(told.state)] == [True]


def test_a_check_that_proves_a_fault_is_evidence() -> None:
    check = {
        "node": "n2",
        "check": "gpu-ecc",
        "status": "CRITICAL",
        "category": "gpu_ecc",
        "detail": "4 errors",
    }
    other = {"node": "n1", "check": "clock", "status": "WARN", "category": "", "detail": "2 s apart"}
    told = story().inside("preflight", cycle=0, failed=["n2"], checks=[other, check], status="CRITICAL")
    (one,) = evidence_of(told.state)
    assert (one.node, one.source, one.category, one.proof) == ("n2", "preflight", "gpu_ecc", True)
    assert "4 errors" in one.line()
