"""Cluster profiles: files, defaults, ``auto``, and every fault with its line."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.clusters import (
    ENV_CLUSTERS,
    Environment,
    Profile,
    builtin,
    load_profiles,
    resolve_profile,
    slurm_answers,
)
from orchestrator.schedulers.base import Container
from orchestrator.spec.errors import render
from resiliency.edges import Completed, SystemRunner
from resiliency.errors import SpecError, StorageError

SITE = """\
default: big
big:
  scheduler: slurm
  cluster: alpha
  partition: gpu
  account: proj
  gpus_per_node: 8
  runs_dir: /scratch/me
  container: {runtime: pyxis, image: images.example#team/pytorch, mounts: /scratch:/scratch}
  environment:
    python: /opt/tm/bin/python
    modules: [cuda, gcc/13]
    setup: ['ulimit -l unlimited']
  advance: tick
  srun_args: [--mpi=none]
  extra_directives: [--licenses=x]
  pass_env: HF_TOKEN
  exclude: bad[1-3]
desk: {scheduler: local, max_running: 1}
"""


def answering(code: int | None) -> Any:
    def run(argv: Sequence[str], **options: Any) -> Completed:
        assert argv[0] == "sinfo" and options["timeout_s"] == 5.0
        return Completed(tuple(argv), code, "", "", 0.0)

    return run


def faults(home: Path, text: str) -> list[str]:
    (home / "clusters.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        load_profiles(home, {})
    return [line.replace(f"{home}/", "") for line in render(caught.value.faults)]


def test_without_a_file_there_are_two_profiles(tmp_path: Path) -> None:
    profiles = load_profiles(tmp_path, {})
    assert sorted(profiles) == ["local", "slurm"]
    assert (profiles["local"].signal_early_s, profiles["slurm"].signal_early_s) == (0.0, 45.0)
    assert (profiles["local"].settle_s, profiles["slurm"].settle_s) == (0.0, 30.0)


def test_a_site_file(tmp_path: Path) -> None:
    (tmp_path / "clusters.yaml").write_text(SITE)
    profiles = load_profiles(tmp_path, {})
    big = profiles["big"]
    assert (big.cluster, big.cluster_name, big.partition, big.account) == ("alpha", "alpha", "gpu", "proj")
    assert big.environment == Environment("/opt/tm/bin/python", ("cuda", "gcc/13"), ("ulimit -l unlimited",))
    assert big.container == Container("pyxis", "images.example#team/pytorch", ("/scratch:/scratch",))
    assert (big.pass_env, big.exclude) == (("HF_TOKEN",), ("bad[1-3]",))
    assert (big.advance, big.requeue, big.signal_early_s) == ("tick", False, 45.0)
    desk = profiles["desk"]
    assert (desk.scheduler, desk.signal_early_s, desk.settle_s, desk.max_running) == ("local", 0.0, 0.0, 1)
    assert profiles.default == "big" and sorted(profiles) == ["big", "desk", "local", "slurm"]


def test_a_profile_survives_being_frozen(tmp_path: Path) -> None:
    (tmp_path / "clusters.yaml").write_text(SITE)
    for profile in load_profiles(tmp_path, {}).values():
        assert Profile.from_data(json.loads(json.dumps(profile.to_data()))) == profile
    assert Profile.from_data({"name": "x", "of_a_newer_version": 1}) == Profile("x")
    for wrong in ({}, {"name": "x", "environment": {"y": 1}}, {"name": "x", "container": 3}):
        with pytest.raises(StorageError):
            Profile.from_data(wrong)


def test_the_file_of_the_environment_wins(tmp_path: Path) -> None:
    (tmp_path / "clusters.yaml").write_text("a: {partition: one}\nb: {partition: one}\ndefault: a\n")
    other = tmp_path / "site.yaml"
    other.write_text("b: {partition: two}\ndefault: b\n")
    profiles = load_profiles(tmp_path, {ENV_CLUSTERS: str(other)})
    assert [profiles[n].partition for n in "ab"] == ["one", "two"]
    assert profiles.default == "b"
    with pytest.raises(SpecError) as caught:
        load_profiles(tmp_path, {ENV_CLUSTERS: str(tmp_path / "gone.yaml")})
    assert "does not exist" in render(caught.value.faults)[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a:\n  partion: x\n", "clusters.yaml:2: a.partion: unknown key; did you mean 'partition'?"),
        (
            "a: {scheduler: slrum}",
            "clusters.yaml:1: a.scheduler: 'slrum' is unknown; expected one of local, slurm; did "
            "you mean 'slurm'?",
        ),
        (
            "a:\n  container:\n    image: x\n",
            "clusters.yaml:2: a.container.runtime: is missing; expected what starts containers on this site",
        ),
        (
            "a: {environment: {module: x}}",
            "clusters.yaml:1: a.environment.module: unknown key; did you mean 'modules'?",
        ),
        (
            'a: {partition: "x y"}',
            "clusters.yaml:1: a.partition: 'x y' is not a Slurm name (letters, digits and . _ - + "
            ": @ , / = only)",
        ),
        (
            'a: {extra_directives: "--x\\n--wrap=id"}',
            "clusters.yaml:1: a.extra_directives[0]: must be one line without control characters",
        ),
        (
            "a: {signal_early_s: soon}",
            "clusters.yaml:1: a.signal_early_s: 'soon' is not a length of time; expected "
            'seconds as a number, or "90s", "10m", "2h"',
        ),
        ("a: 3", "clusters.yaml:1: a: is not a profile; expected a mapping (key: value)"),
        ("auto: {}", "clusters.yaml:1: auto: cannot be a profile's name; expected a-z, 0-9, '-' and '_'"),
        (
            "a: {}\ndefault: aa\n",
            "clusters.yaml:2: default: 'aa' is no profile; expected one of a, local, slurm; did "
            "you mean 'a'?",
        ),
        ("- a", "clusters.yaml:1: is not a mapping; expected profile names with their keys"),
        ("a: {}\na: {}\n", "clusters.yaml:2: a: given twice (first on line 1); expected each key once"),
        (
            "a: {max_queued_jobs: 0}",
            "clusters.yaml:1: a.max_queued_jobs: 0 is out of range; expected at least 1",
        ),
        (
            "a: {runs_dir: 3}",
            "clusters.yaml:1: a.runs_dir: 3 has the wrong type; expected text: put it in quotes, '3'",
        ),
    ],
)
def test_faults_name_file_line_and_key(tmp_path: Path, text: str, said: str) -> None:
    assert said in faults(tmp_path, text)


def test_all_faults_of_all_files_at_once(tmp_path: Path) -> None:
    other = tmp_path / "site.yaml"
    other.write_text("c: {z: 1}\n")
    (tmp_path / "clusters.yaml").write_text("a: {x: 1}\nb: {y: 1}\n")
    with pytest.raises(SpecError) as caught:
        load_profiles(tmp_path, {ENV_CLUSTERS: str(other)})
    assert [Path(f.file).name for f in caught.value.faults] == ["clusters.yaml"] * 2 + ["site.yaml"]


def test_an_unreadable_file_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "clusters.yaml").mkdir()
    with pytest.raises(StorageError):
        load_profiles(tmp_path, {})


@pytest.mark.parametrize(("code", "name"), [(0, "slurm"), (1, "local"), (127, "local"), (None, "local")])
def test_auto_is_slurm_where_it_answers(code: int | None, name: str) -> None:
    assert resolve_profile("auto", builtin(), answering(code)).name == name


def test_auto_is_the_default_of_the_file_without_asking(tmp_path: Path) -> None:
    (tmp_path / "clusters.yaml").write_text("mine: {scheduler: local}\ndefault: mine\n")

    def never(*args: Any, **kwargs: Any) -> Completed:
        raise AssertionError("asked")

    profiles = load_profiles(tmp_path, {})
    assert resolve_profile("auto", profiles, never).name == "mine"
    assert resolve_profile("slurm", profiles, never).name == "slurm"


@pytest.mark.parametrize(("body", "answers"), [("exit 0", True), ("exit 1", False), ("sleep 60", False)])
def test_a_real_sinfo_is_asked_with_a_deadline(
    tmp_path: Path, body: str, answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.clusters._PROBE_S", 0.5)
    sinfo = tmp_path / "sinfo"
    sinfo.write_text(f"#!/bin/sh\nexec {body}\n" if body.startswith("sleep") else f"#!/bin/sh\n{body}\n")
    sinfo.chmod(sinfo.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert slurm_answers(SystemRunner()) is answers


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(SpecError) as caught:
        resolve_profile("locl", builtin())
    (line,) = render(caught.value.faults)
    assert line.endswith("'locl' is no cluster profile; expected auto, local, slurm; did you mean 'local'?")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=80), st.text(max_size=80).map(str.encode)))
def test_any_bytes_are_profiles_or_a_spec_error(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "clusters.yaml").write_bytes(raw)
    try:
        load_profiles(tmp_path, {})
    except SpecError as error:
        assert error.faults
