"""Rows of a run: cycles, checkpoints, evaluations, the attempt to show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from metrics.ledger import project
from resiliency import contract
from resiliency.events import Event
from resiliency.state import fold
from tests.metrics.rundirs import RUN

ATTEMPT = contract.attempt_id("c1", "7", 0)


def event(n: int, type: str, **data: Any) -> Event:
    cycle = data.pop("cycle", 0)
    node = data.pop("node", "n1")
    return Event(type, RUN, "w", n, float(n), 0.0, "train", ATTEMPT, cycle, node, data=data)


def rows(*events: Event) -> dict[str, list[project.Row]]:
    return project.rows(Path("/runs") / RUN, events, fold(events))


def test_cycles_tell_in_job_restarts_apart() -> None:
    found = rows(
        event(1, "role.started", role="trainer"),
        event(2, "role.started", role="trainer", node="n2"),
        event(3, "role.exited", role="trainer", exit_code=0, node="n2"),
        event(4, "role.exited", role="trainer", exit_code=137),
        event(5, "role.started", role="trainer", cycle=1),
        event(6, "workload.resumed", step=20, cycle=1),
        event(7, "checkpoint.committed", step=30, cycle=1),
        event(8, "workload.error", message="boom", cycle=1),
    )["cycle"]
    keys = ("cycle", "nodes", "exit_code", "started_at", "ended_at", "resumed_from", "error")
    assert [tuple(row[key] for key in keys) for row in found] == [
        (0, 2, 137, 1.0, 4.0, None, None),
        (1, 1, None, 5.0, None, 20, "boom"),
    ]
    assert found[1]["checkpoint_step"] == 30


def test_a_quarantined_checkpoint_is_the_last_one_written_there() -> None:
    found = rows(
        event(1, "checkpoint.committed", step=10, path="a"),
        event(2, "checkpoint.committed", step=10, path="a"),
        event(3, "checkpoint.quarantined", path="a", reason="torn"),
        event(4, "checkpoint.committed", step=10, path="a"),
    )["checkpoint"]
    assert [(row["at"], row["quarantine_reason"]) for row in found] == [
        (1.0, None),
        (2.0, "torn"),
        (4.0, None),
    ]


def test_figures_have_dotted_names_and_text_is_left_out() -> None:
    metrics = {"bpb": 1.5, "base": {"unigram": 4, "name": "x"}, "flag": True, "loss": "nan"}
    found = rows(event(1, "eval.result", metrics=metrics))["evaluation"]
    assert [(row["metric"], row["value"]) for row in found] == [
        ("base.unigram", 4.0),
        ("bpb", 1.5),
        ("loss", "nan"),
    ]


def test_the_running_attempt_is_shown_not_the_queued_one_behind_it() -> None:
    def seen(job: str, link: int, state: str) -> Event:
        attempt = contract.attempt_id("c1", job, 0)
        data = {"token": contract.token(RUN, "train", link), "state": state, "reason": "Priority"}
        return Event("job.observed", RUN, "w", link, 1.0, 0.0, "train", attempt, data=data)

    events = [seen("7", 1, "COMPLETED"), seen("8", 2, "RUNNING"), seen("9", 3, "PENDING")]
    assert rows(*events)["stage"][0]["job_id"] == "8"
    queued = rows(events[0], events[2])["stage"][0]
    assert (queued["job_id"], queued["link"], queued["reason"]) == ("9", 3, "Priority")
    assert rows(events[0])["stage"][0]["state"] == "COMPLETED"


def test_a_blocked_stage_says_by_what() -> None:
    items = [{"name": "data", "kind": "text"}, {"name": "train", "needs": ["data"]}]
    stop = {"epoch": 0, "category": "data_error", "rule": "category:data_error", "reason": "no file"}
    found = rows(
        Event("run.created", RUN, "w", 1, 1.0, 0.0, data={"name": "demo", "stages": items}),
        Event("stage.stopped", RUN, "w", 2, 2.0, 0.0, "data", data=stop),
    )
    told = {row["stage"]: (row["status"], row["rule"], row["reason"]) for row in found["stage"]}
    assert told["data"] == ("stopped", "category:data_error", "no file")
    assert told["train"] == ("waiting", None, "stage data stopped")
    assert (found["run"][0]["status"], found["run"][0]["finished_at"]) == ("stopped", 2.0)


def test_a_lost_node_with_a_name_is_evidence() -> None:
    """Only where the verdict names a node and its category proves a node's fault."""
    seen = {"token": contract.token(RUN, "train", 1), "state": "NODE_FAIL", "nodes": "n[1-2]"}
    found = rows(event(1, "job.observed", **seen))
    assert found["verdict"][0]["category"] == "node_down"
    assert "node_evidence" not in found  # which of the two nodes is not known
