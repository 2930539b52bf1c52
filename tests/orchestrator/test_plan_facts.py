"""A plan against what the scheduler says: what it would refuse, or leave pending for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.clusters import Profile
from orchestrator.plan import RunPlan, check_against, make_plan
from tests.orchestrator.spec_files import load

GPU = {
    "default": True,
    "nodes": 4,
    "max_time_s": 14400,
    "max_nodes": 3,
    "cpus_per_node": 16,
    "gpus_per_node": 8,
    "mem_mb": 65536,
    "up": True,
}
SMALL = {**GPU, "default": False, "nodes": 1, "max_nodes": None, "gpus_per_node": 0}
FACTS: dict[str, Any] = {
    "partitions": {"gpu": GPU, "small": SMALL, "old": {**GPU, "default": False, "up": False}},
    "accounts": ["proj", "test"],
    "qos": ["normal", "high"],
    "limits": {"max_submit_jobs": 100},
}


def plan(directory: Path, resources: str, **profile: Any) -> RunPlan:
    text = f"name: d\nstages:\n  c: {{kind: command, run: x, resources: {resources}}}\n"
    loaded = load(directory, text)
    return make_plan(
        loaded.resolved,
        Profile("site", **profile),
        run_id="d-1",
        run_dir=Path("/r"),
        python="python3",
        home=Path("/h"),
    )


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ("{nodes: 4}", "resources.nodes: 4 asked, partition gpu allows a job 3"),
        ("{nodes: 5}", "resources.nodes: 5 asked, partition gpu has 4"),
        ("{nodes: 2, partition: small}", "resources.nodes: 2 asked, partition small has 1"),
        (
            "{partition: gpuu}",
            "resources.partition: no partition 'gpuu' on this cluster for you; did you mean 'gpu'?",
        ),
        (
            "{account: porj}",
            "resources.account: no account 'porj' on this cluster for you; did you mean 'proj'?",
        ),
        (
            "{account: zzz}",
            "resources.account: no account 'zzz' on this cluster for you; there are proj, test",
        ),
        ("{qos: higher}", "resources.qos: no qos 'higher' on this cluster for you; did you mean 'high'?"),
        (
            '{time: "05:00:00"}',
            'resources.time: 05:00:00 asked, partition gpu allows 04:00:00: set time: "04:00:00", the chain '
            "goes on in further links",
        ),
        ("{gpus_per_node: 9}", "resources.gpus_per_node: 9 asked, nodes of partition gpu have 8"),
        ("{cpus_per_node: 17}", "resources.cpus_per_node: 17 needed, nodes of partition gpu have 16"),
        ("{ranks_per_node: 17}", "resources.cpus_per_node: 17 needed, nodes of partition gpu have 16"),
        ("{mem: 65G}", "resources.mem: 65G asked, nodes of partition gpu have 65536M"),
        ("{mem: '65537'}", "resources.mem: 65537 asked, nodes of partition gpu have 65536M"),
        ("{partition: old}", "resources.partition: old is down"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, resources: str, said: str) -> None:
    assert check_against(FACTS, plan(tmp_path, resources)) == [f"stages.c.{said}"]


def test_what_fits_is_not(tmp_path: Path) -> None:
    fits = (
        '{nodes: 3, gpus_per_node: 8, cpus_per_node: 16, mem: 64G, time: "04:00:00", account: '
        "proj, qos: high}"
    )
    assert check_against(FACTS, plan(tmp_path, fits)) == []


def test_several_at_once(tmp_path: Path) -> None:
    found = check_against(FACTS, plan(tmp_path, "{nodes: 5, gpus_per_node: 9, account: x, time: 10h}"))
    assert len(found) == 4


def test_one_partition_of_a_list_is_enough(tmp_path: Path) -> None:
    assert check_against(FACTS, plan(tmp_path, "{partition: 'small,gpu', nodes: 2}")) == []
    assert len(check_against(FACTS, plan(tmp_path, "{partition: 'small,gpu', nodes: 9}"))) == 1
    (line,) = check_against(FACTS, plan(tmp_path, "{partition: 'small,gpx'}"))
    assert "no partition 'gpx'" in line


def test_the_profiles_settings_are_judged_too(tmp_path: Path) -> None:
    (line,) = check_against(FACTS, plan(tmp_path, "{}", account="nope"))
    assert "no account 'nope'" in line
    (line,) = check_against({}, plan(tmp_path, "{gpus_per_node: 8}", gpus_per_node=4))
    assert line == "stages.c.resources.gpus_per_node: 8 asked, profile site says a node has 4"


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"partitions": {}, "limits": {}},
        {"partitions": {"gpu": {"default": True}}},
        {"partitions": {"gpu": dict.fromkeys(GPU)}, "limits": {"max_submit_jobs": None}},
        {"reachable": False, "problems": ["slurmctld does not answer"]},
    ],
)
def test_what_is_not_known_is_not_judged(tmp_path: Path, facts: dict[str, Any]) -> None:
    heavy = "{nodes: 99, gpus_per_node: 99, cpus_per_node: 999, mem: 9T, account: x, qos: y, time: 90h}"
    assert check_against(facts, plan(tmp_path, heavy)) == []


def test_a_user_who_may_not_submit_is_told(tmp_path: Path) -> None:
    assert check_against({"limits": {"max_submit_jobs": 0}}, plan(tmp_path, "{}")) == [
        "you may not submit jobs on site (MaxSubmitJobs 0)"
    ]
