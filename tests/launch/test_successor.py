"""What the next link is told when this one lost a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from launch import successor
from launch.allocation import Allocation
from launch.config import read_stage_config
from launch.journaling import SafeJournal
from launch.segment import Segment
from resiliency import contract
from resiliency.errors import SchedulerUnreachable

from .conftest import CLUSTER, RUN_ID, RunDir


class Scheduler:
    """Writes down what it is told; ``nodes`` of its one partition."""

    def __init__(self, nodes: int, *, answers: bool = True) -> None:
        self.nodes, self.answers = nodes, answers
        self.told: list[tuple[str, str, tuple[str, ...]]] = []

    def facts(self) -> Mapping[str, Any]:
        return {"partitions": {"low": {"nodes": self.nodes, "default": True}}}

    def exclude(self, job_id: str, nodes: Sequence[str]) -> None:
        if not self.answers:
            raise SchedulerUnreachable("no answer")
        self.told.append(("exclude", job_id, tuple(nodes)))

    def unchain(self, job_id: str) -> None:
        self.told.append(("unchain", job_id, ()))

    def observe(self, job_ids: Any) -> Any: ...
    def cancel(self, job_ids: Any) -> None: ...


def told(
    run_dir: RunDir,
    scheduler: Scheduler,
    *,
    lost: set[str],
    exclude: Sequence[str] = (),
    third_keeps_off: Sequence[str] = (),
) -> list[Any]:
    run_dir.stage(argv=["x"], nodes=2, scheduler="slurm", exclude=["bad9"])
    for link, job in ((1, "17"), (2, "18"), (3, "19")):
        run_dir.queue(link, job)
    config = read_stage_config(run_dir.paths.stage_config("work"))
    journal = SafeJournal(run_dir.paths.journal, run=RUN_ID, writer="test", defaults={})
    if third_keeps_off:
        data = {"token": contract.token(RUN_ID, "work", 3), "job_id": "19", "nodes": third_keeps_off}
        journal.append("link.excluding", data, stage="work")
    allocation = Allocation("slurm", "17", 0, "a[1-2]", "a1")
    segment = Segment(config, run_dir.paths, allocation, 1, journal, lambda: scheduler, lost_nodes=lost)
    successor.prepare(segment, run_dir.state().stage("work"), exclude)
    assert config.cluster == CLUSTER
    return scheduler.told


def test_every_queued_link_keeps_off_and_the_next_one_waits_no_more(run_dir: RunDir) -> None:
    assert told(run_dir, Scheduler(8), lost={"a2"}) == [
        ("exclude", "18", ("bad9", "a2")),
        ("exclude", "19", ("bad9", "a2")),
        ("unchain", "18", ()),
    ]


def test_it_is_journaled_and_what_a_link_keeps_off_already_stays(run_dir: RunDir) -> None:
    assert told(run_dir, Scheduler(8), lost={"a2"}, third_keeps_off=["a7", "bad9"])[:2] == [
        ("exclude", "18", ("bad9", "a2")),
        ("exclude", "19", ("bad9", "a2", "a7")),
    ]
    links = {s.link: s.exclude for s in run_dir.state().stage("work").links()}
    assert (links[2], links[3]) == (("a2", "bad9"), ("a2", "a7", "bad9"))


def test_an_excluded_node_that_is_not_lost_changes_no_dependency(run_dir: RunDir) -> None:
    assert [word for word, *_ in told(run_dir, Scheduler(8), lost=set(), exclude=["a2"])] == ["exclude"] * 2


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_stage_is_never_left_without_enough_nodes(run_dir: RunDir, nodes: int) -> None:
    assert told(run_dir, Scheduler(nodes), lost={"a2"}) == []


def test_nothing_lost_nothing_said(run_dir: RunDir) -> None:
    assert told(run_dir, Scheduler(8), lost=set()) == []


def test_a_scheduler_that_does_not_answer_costs_time_only(
    run_dir: RunDir, capfd: pytest.CaptureFixture[str]
) -> None:
    assert told(run_dir, Scheduler(8, answers=False), lost={"a2"}) == []
    assert "the next link is left as it is" in capfd.readouterr().err
