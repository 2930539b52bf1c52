"""What a Slurm is and can do, from recorded answers of two versions, and when a command is missing."""

from __future__ import annotations

import pytest

from orchestrator.schedulers.slurm import SlurmScheduler, sacctmgr, scontrol, sinfo
from resiliency.errors import SchedulerError
from tests.orchestrator.slurm_answers import DATA, Answers, recorded, row

VERSIONS = ["22.05", "24.11"]
LOW = {
    "default": True, "max_time_s": None, "max_nodes": None, "cpus_per_node": 64,
    "gpus_per_node": 8, "mem_mb": 512000, "up": True,
}  # fmt: skip


def answers(version: str) -> Answers:
    def text(name: str) -> tuple[int, str, str]:
        return 0, recorded(DATA / "facts" / version / f"{name}.txt"), ""

    return Answers(
        {
            "sinfo": text("sinfo"),
            "scontrol show": text("config"),
            "sacctmgr show": lambda argv: text("assoc" if "assoc" in argv else "qos"),
        }
    )


def scheduler(runner: Answers, cluster: str | None = None) -> SlurmScheduler:
    return SlurmScheduler(name="alpha", cluster=cluster, runner=runner, environ={"USER": "lab1"})


@pytest.mark.parametrize("version", VERSIONS)
def test_facts_of_both_versions(version: str) -> None:
    facts = scheduler(answers(version)).facts()
    assert facts["version"].startswith(version)
    assert (facts["reachable"], facts["accounting"], facts["requeue"]) == (True, True, True)
    assert facts["partitions"]["low"] == {**LOW, "nodes": 4 if version == "22.05" else 3}
    assert facts["partitions"]["short"]["max_time_s"] == 300
    assert facts["partitions"]["tiny"]["max_nodes"] == 1
    assert facts["accounts"] == ["lab", "robots"]
    assert facts["qos"] == ["capped", "normal", "urgent"]
    assert facts["limits"] == {
        "max_job_count": 20000, "max_array_size": 10001, "max_submit_jobs": None,
        "max_jobs": None, "by_qos": {"capped": 3},
    }  # fmt: skip
    assert facts["preemption"] == "partition_prio (requeue)"
    assert (facts["kill_wait_s"], facts["message_timeout_s"]) == (5, 10)
    assert facts["problems"] == []


@pytest.mark.parametrize(
    ("missing", "absent"),
    [
        ("sinfo", {"partitions"}),
        ("scontrol show", {"version", "preemption", "requeue", "kill_wait_s", "message_timeout_s"}),
        ("sacctmgr show", {"accounts", "qos"}),
    ],
)
def test_what_does_not_answer_is_named_and_the_rest_is_there(missing: str, absent: set) -> None:
    runner = answers("22.05")
    whole = set(scheduler(runner).facts())
    del runner.replies[missing]
    facts = scheduler(runner).facts()
    assert whole - set(facts) == absent
    assert len(facts["problems"]) == 1
    assert missing.split()[0] in facts["problems"][0]


def test_a_cluster_without_accounting_says_so() -> None:
    runner = answers("22.05")
    config = recorded(DATA / "facts/22.05/config.txt").replace("accounting_storage/slurmdbd", "(null)")
    runner.replies["scontrol show"] = (0, config, "")
    facts = scheduler(runner).facts()
    assert facts["accounting"] is False
    assert "accounting is off" in facts["problems"][0]
    assert not runner.named("sacctmgr")


def test_another_cluster_is_asked_for_with_its_name() -> None:
    runner = answers("24.11")
    scheduler(runner, "beta").facts()
    assert [argv[1:3] for argv in runner.calls if argv[0] != "sacctmgr"] == [["-M", "beta"]] * 2
    (associations, qos) = runner.named("sacctmgr")
    assert "cluster=beta" in associations and "-M" not in associations + qos


@pytest.mark.parametrize(
    ("gres", "count"),
    [("(null)", 0), ("gpu:8", 8), ("gpu:8(S:0-1)", 8), ("gpu:a100:4(S:0),gpu:h100:2(S:1)", 6),
     ("shard:16,gpu:tesla:2", 2), ("nic:2", 0), ("mygpu:3", 0)],
)  # fmt: skip
def test_gpus_of_a_node(gres: str, count: int) -> None:
    assert sinfo.gpus(gres) == count


def test_partitions_with_several_kinds_of_nodes_show_the_largest() -> None:
    lines = [
        row("mixed*", "up", "1-00:00:00", "1-8", 3, 32, 100, "gpu:4", "mixed*") + "\x1e\n",
        row("mixed*", "up", "1-00:00:00", "1-8", 2, 128, 50, "(null)", "mixed*") + "\x1e\n",
        row("off", "down", "n/a", "1-infinite", 1, "64+", "9+", "(null)", "off") + "\x1e\n",
        "torn\x1fup",
    ]
    found = sinfo.partitions("".join(lines))
    assert found["mixed"] == {
        "default": True, "nodes": 5, "max_time_s": 86400, "max_nodes": 8, "cpus_per_node": 128,
        "gpus_per_node": 4, "mem_mb": 100, "up": True,
    }  # fmt: skip
    assert (found["off"]["up"], found["off"]["cpus_per_node"]) == (False, 64)
    assert set(found) == {"mixed", "off"}


def test_the_smallest_limit_counts() -> None:
    associations = "lab|me|||50|normal\nlab2|me|9|20|80|normal,big\nbroken\n"
    qos = "normal|5|||\nbig|||7|\nother|1|||\n"
    found = sacctmgr.limits(associations, qos)
    assert found["accounts"] == ["lab", "lab2"]
    assert found["limits"] == {
        "max_submit_jobs": 20, "max_jobs": 9, "by_qos": {"normal": 5, "big": 7},
    }  # fmt: skip


def test_a_node_name_cannot_bring_another_setting_along() -> None:
    with pytest.raises(SchedulerError, match="not a node name"):
        scontrol.exclude("7", ["a1 TimeLimit=99"])
    assert scontrol.exclude("7", ["a1", "a[3-5,7]"])[-1] == "ExcNodeList=a1,a[3-5,7]"
