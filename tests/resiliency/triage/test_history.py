"""What repeats: at a step, on a node, with a job."""

from __future__ import annotations

from resiliency.triage.history import WITH_JOB, WITH_NODE, Past, pattern
from resiliency.triage.model import TriageVerdict


def verdict(**changes):
    return TriageVerdict(
        **{
            "category": "gpu_fault",
            "domain": "gpu",
            "action": "requeue",
            "node": "n1",
            "step": 100,
            **changes,
        }
    )


def test_first_time_says_nothing():
    assert pattern(verdict(), [], run="r", stage="s").lines == ()


def test_its_own_row_does_not_count():
    mine = Past("r", "s", "a/1.0", "gpu_fault", "n1", 100)
    assert pattern(verdict(), [mine], run="r", stage="s", attempt="a/1.0").kind == ""


def test_same_step_is_code_or_data():
    past = [Past("r", "s", "a/1.0", "gpu_fault", "n4", 100)]
    assert pattern(verdict(), past, run="r", stage="s").kind == WITH_JOB


def test_other_jobs_on_the_node_point_at_the_node():
    past = [Past("q", "s", "a/1.0", "gpu_fault", "n1", 7), Past("p", "s", "a/2.0", "gpu_fault", "n1", 9)]
    found = pattern(verdict(), past, run="r", stage="s")
    assert found.kind == WITH_NODE
    assert "2 failure(s) on n1 before, in 2 job(s)" in " ".join(found.lines)


def test_the_same_job_on_other_nodes_points_at_the_job():
    past = [Past("r", "s", "a/1.0", "gpu_fault", "n2", 40), Past("r", "s", "a/2.0", "gpu_fault", "n3", 70)]
    assert pattern(verdict(), past, run="r", stage="s").kind == WITH_JOB
