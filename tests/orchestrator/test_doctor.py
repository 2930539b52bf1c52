"""The doctor: each gap has its fix, and a check that cannot run says so."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator import doctor
from orchestrator.clusters import builtin
from orchestrator.home import Home
from resiliency.edges import SystemRunner

FULL: dict[str, Any] = {
    "version": "24.11.5",
    "reachable": True,
    "accounting": True,
    "partitions": {"low": {"default": True, "nodes": 8, "max_time_s": None, "gpus_per_node": 8, "up": True}},
    "accounts": ["lab"],
    "limits": {"max_submit_jobs": 3, "max_jobs": None},
    "preemption": "preempt/partition_prio, REQUEUE",
    "kill_wait_s": 30,
    "problems": [],
}


def examine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, facts: dict[str, Any]
) -> dict[str, doctor.Check]:
    fake = SimpleNamespace(facts=lambda: facts)
    monkeypatch.setattr(doctor, "open_scheduler", lambda profile, home: fake)
    home = Home.at(tmp_path / "home")
    checks = doctor.examine(home, builtin()["slurm"], SystemRunner())
    return {check.name: check for check in checks}


def test_a_cluster_that_has_everything_needs_no_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = examine(monkeypatch, tmp_path, FULL)
    for name in ("python", "home", "scheduler", "partition low", "accounts", "accounting", "KillWait"):
        assert found.get(name) is None or found[name].status == "ok", found[name]
    assert "8 GPUs a node" in found["partition low"].detail
    assert found["limits"].detail == "max_submit_jobs=3"


def test_without_accounting_it_says_how_often_to_tick(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = examine(monkeypatch, tmp_path, {**FULL, "accounting": False})
    assert found["accounting"].status == "warn" and "tick" in found["accounting"].fix


def test_an_unreachable_scheduler_fails_with_its_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = examine(monkeypatch, tmp_path, {"reachable": False, "problems": ["slurmctld does not answer"]})
    assert found["scheduler"].status == "fail"
    assert (
        "slurmctld does not answer" in found["scheduler"].detail and "scontrol ping" in found["scheduler"].fix
    )


def test_a_short_kill_wait_warns_about_checkpoints_on_preemption(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = examine(monkeypatch, tmp_path, {**FULL, "kill_wait_s": 5})
    assert found["KillWait"].status == "warn"


def test_a_damaged_ledger_is_named_with_the_way_to_rebuild_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "ledger.db").write_bytes(b"no database" * 400)
    found = examine(monkeypatch, tmp_path, FULL)
    assert found["ledger"].status == "fail" and "rebuild" in found["ledger"].fix


def test_a_runs_directory_that_cannot_be_written_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check = doctor._runs(Home.at(tmp_path), builtin()["local"])
    assert check.status in ("ok", "warn")
    home = Home.at(tmp_path / "file")
    assert doctor._home(home).status == "fail" and "TRAINMASTER_HOME" in doctor._home(home).fix
