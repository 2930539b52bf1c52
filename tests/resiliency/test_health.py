"""Health as plain data: what counts as failed, what it proves, and what hostile data does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resiliency.health import Check, NodeHealth, Status, settle


def health(*statuses: Status, categories: tuple[str, ...] = ()) -> NodeHealth:
    names = [*categories, *[""] * len(statuses)]
    checks = (Check(f"c{i}", s, f"d{i}", category=names[i]) for i, s in enumerate(statuses))
    return NodeHealth("n1", tuple(checks))


@pytest.mark.parametrize("status", [Status.OK, Status.WARN, Status.UNKNOWN])
def test_only_critical_fails(status: Status) -> None:
    assert not health(Status.OK, status).failed
    assert health(status, Status.CRITICAL).failed


def test_a_warning_is_worse_than_what_is_not_known() -> None:
    assert health().worst is Status.OK
    assert health(Status.OK, Status.UNKNOWN).worst is Status.UNKNOWN
    assert health(Status.WARN, Status.UNKNOWN).worst is Status.WARN
    assert health(Status.CRITICAL, Status.WARN).worst is Status.CRITICAL


def test_the_category_is_of_the_first_failed_check_that_proves_something() -> None:
    three = (Status.WARN, Status.CRITICAL, Status.CRITICAL, Status.CRITICAL)
    assert health(*three, categories=("gpu_nvlink", "", "gpu_ecc", "ib_link")).category == "gpu_ecc"
    assert health(Status.WARN, categories=("gpu_ecc",)).category == ""


def test_the_line_tells_the_worst() -> None:
    assert health(Status.OK).summary_line() == "1 checks passed"
    line = health(Status.CRITICAL, Status.WARN).summary_line()
    assert "c0: d0" in line and "c1" not in line
    assert "and 2 more" in health(*[Status.WARN] * 5).summary_line()


def test_it_comes_back_from_json_as_it_was() -> None:
    check = Check("gpu_ecc", Status.CRITICAL, "GPU 3", ("a", "b"), 0.25, "gpu_ecc")
    node = NodeHealth("n1", (check, Check("shm", Status.OK)))
    assert NodeHealth.from_data(json.loads(json.dumps(node.as_data()))) == node


_KEYS = st.sampled_from(["node", "checks", "name", "status", "detail", "evidence", "seconds", "category"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=12,
)


@given(_JSON, _JSON)
def test_hostile_data_is_refused_in_the_expected_ways(data: Any, check: Any) -> None:
    for hostile in (data, {"node": "n", "checks": [check]}, {"node": data, "checks": check}):
        try:
            node = NodeHealth.from_data(hostile)
        except (KeyError, TypeError, ValueError):
            continue
        assert NodeHealth.from_data(node.as_data()).worst is node.worst


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1, True, "1", 10**400, None])
def test_senseless_seconds_are_refused(seconds: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        Check.from_data({"name": "a", "status": "OK", "seconds": seconds})


def node(name: str, *checks: Check) -> NodeHealth:
    return NodeHealth(name, checks)


BAD_SCRIPT = Check("site:mine", Status.CRITICAL, "line 3: syntax error")
FEWER = Check("gpu_count", Status.CRITICAL, "4 GPUs", category="gpu_off_bus")
ECC = Check("gpu_ecc", Status.CRITICAL, "GPU 1", category="gpu_ecc")


@pytest.mark.parametrize("check", [BAD_SCRIPT, FEWER])
@pytest.mark.parametrize(
    ("bad", "of", "fails"), [(2, 2, 0), (3, 4, 0), (1, 2, 1), (2, 4, 2), (1, 1, 1), (7, 10, 7)]
)
def test_what_nearly_all_nodes_have_is_no_node_s_fault(check: Check, bad: int, of: int, fails: int) -> None:
    healths = [node(f"n{i}", *([check] if i < bad else []), Check("shm", Status.OK)) for i in range(of)]
    found = settle(healths)
    assert sum(health.failed for health in found) == fails
    assert [health.node for health in found] == [health.node for health in healths]
    if not fails:
        assert found[0].worst is Status.WARN and f"{bad} of {of} nodes" in found[0].checks[0].detail
        assert found[0].category == ""


def test_errors_that_a_gpu_counts_of_itself_stay_its_node_s_on_however_many_nodes() -> None:
    assert all(health.failed for health in settle([node("n1", ECC), node("n2", ECC)]))


def test_a_fault_of_one_s_own_beside_a_common_one_still_fails_the_node() -> None:
    found = settle([node("n1", BAD_SCRIPT, ECC), node("n2", BAD_SCRIPT)])
    assert [health.failed for health in found] == [True, False] and found[0].category == "gpu_ecc"


@given(st.text(max_size=30))
def test_what_a_node_says_moves_no_cursor(text: str) -> None:
    assert Check.from_data({"name": "a", "status": "OK", "detail": text}).detail.isprintable()
