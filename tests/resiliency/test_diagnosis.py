"""The quick verdict: a row per rule, in the order of the rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resiliency.diagnosis import AttemptEvidence, diagnose
from resiliency.taxonomy import CATEGORIES


def seen(**known: Any) -> AttemptEvidence:
    return AttemptEvidence(**{"started": True, "gate": "go", **known})


ROWS = [
    # what is known                                                        category
    (seen(exit_code=0), "healthy"),
    (seen(scheduler_state="COMPLETED", exit_code=0), "healthy"),
    (seen(scheduler_state="GONE", exit_code=0), "healthy"),
    (seen(scheduler_state="CANCELLED"), "user_cancelled"),
    (seen(scheduler_state="CANCELLED", cancelled_by_us=True), "planned_rollover"),
    (seen(scheduler_state="TIMEOUT"), "time_limit"),
    (seen(scheduler_state="DEADLINE"), "time_limit"),
    (seen(scheduler_state="PREEMPTED"), "preempted"),
    (seen(scheduler_state="NODE_FAIL"), "node_down"),
    (seen(scheduler_state="BOOT_FAIL"), "node_down"),
    (seen(scheduler_state="OUT_OF_MEMORY"), "host_oom"),
    (seen(scheduler_state="REVOKED"), "requeued"),
    # what ended it from outside explains the code it left behind
    (seen(scheduler_state="TIMEOUT", exit_code=1), "time_limit"),
    (seen(scheduler_state="NODE_FAIL", exit_code=137, error_category="code_error"), "node_down"),
    (seen(exit_code=75, gate="wait"), "requeued"),
    (seen(exit_code=75, drain_reason="time_limit"), "time_limit"),
    (seen(exit_code=75, drain_reason="preempted"), "preempted"),
    (seen(exit_code=75, drain_reason="cancelled"), "user_cancelled"),
    (seen(exit_code=75), "planned_rollover"),
    # a program's own word explains its code
    (seen(exit_code=1, error_category="gpu_oom", error_message="CUDA out of memory"), "gpu_oom"),
    (seen(exit_code=1, error_category="of a newer version"), "unknown"),
    (seen(exit_code=143, drain_reason="preempted"), "preempted"),
    (seen(exit_code=76, drain_reason="preempted"), "config_error"),
    (seen(exit_code=16), "sdc_suspected"),
    (seen(exit_code=17), "numeric"),
    (seen(exit_code=76), "config_error"),
    (seen(exit_code=126), "config_error"),
    (seen(exit_code=127), "config_error"),
    (seen(exit_code=93), "code_error"),
    (seen(exit_code=124), "hang"),
    (AttemptEvidence(scheduler_state="FAILED", exit_code=0, signal=53), "launch_failed"),
    (AttemptEvidence(scheduler_state="FAILED", exit_code=1), "launch_failed"),
    # a job that never wrote a line did no work, whatever its exit code (24.11 without a log folder)
    (AttemptEvidence(scheduler_state="COMPLETED", exit_code=0), "launch_failed"),
    # Slurm itself (root) gives up a job that may not be requeued when a prolog fails; a person's
    # scancel of a pending job names no nodes
    (AttemptEvidence(scheduler_state="CANCELLED", cancelled_by="0", nodes="a1"), "launch_failed"),
    (AttemptEvidence(scheduler_state="CANCELLED", cancelled_by="0"), "user_cancelled"),
    (AttemptEvidence(scheduler_state="CANCELLED", cancelled_by="1000", nodes="a1"), "user_cancelled"),
    (seen(scheduler_state="CANCELLED", cancelled_by="0", nodes="a1"), "user_cancelled"),
    (seen(scheduler_state="REQUEUED"), "requeued"),
    # a bare code or signal, or nothing, proves little
    (seen(scheduler_state="FAILED", exit_code=1), "unknown"),
    (seen(scheduler_state="FAILED", exit_code=137), "unknown"),
    (seen(scheduler_state="GONE"), "unknown"),
    (AttemptEvidence(), "unknown"),
]


@pytest.mark.parametrize(("known", "category"), ROWS)
def test_rule(known: AttemptEvidence, category: str) -> None:
    verdict = diagnose(known)
    assert verdict.category == category
    assert verdict.reason and 0 < verdict.confidence <= 1


def test_a_bare_code_is_never_a_sure_verdict() -> None:
    assert diagnose(seen(scheduler_state="FAILED", exit_code=1)).confidence < 0.5


def test_equal_errors_have_equal_signatures_and_others_not() -> None:
    one = diagnose(seen(exit_code=1, error_category="code_error", error_message="KeyError: 'a'\ntrace"))
    same = diagnose(seen(exit_code=2, error_category="code_error", error_message="KeyError: 'a'\nother"))
    other = diagnose(seen(exit_code=1, error_category="code_error", error_message="KeyError: 'b'"))
    assert one.signature == same.signature != other.signature
    assert one.reason == "KeyError: 'a'"


_words = st.none() | st.sampled_from(["FAILED", "COMPLETED", "UNKNOWN", "RUNNING", "GONE", "CANCELLED"])


@given(
    st.builds(
        AttemptEvidence,
        scheduler_state=_words,
        exit_code=st.none() | st.integers(-70, 300),
        signal=st.none() | st.integers(0, 64),
        drain_reason=st.none() | st.sampled_from(["time_limit", "preempted", "cancelled", "None"]),
        error_category=st.none() | st.sampled_from([*CATEGORIES, "new"]),
        started=st.booleans(),
        gate=st.none() | st.sampled_from(["go", "wait", "stopped"]),
    )
)
def test_any_evidence_gives_a_known_category_and_blames_no_node_without_proof(
    known: AttemptEvidence,
) -> None:
    verdict = diagnose(known)
    assert verdict.category in CATEGORIES
    assert verdict.node is None
