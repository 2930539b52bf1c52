"""The plan: order, jobs, stage.json, and the same again from ``run.json`` alone."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launch.config import read_stage_config
from orchestrator.clusters import Environment, Profile, builtin
from orchestrator.plan import RunPlan, load_run_record, make_plan, make_record
from orchestrator.record import RunRecord
from orchestrator.schedulers.base import Container
from orchestrator.spec.load import LoadedExperiment
from resiliency import contract
from resiliency.errors import StorageError
from resiliency.policy import Budgets
from tests.orchestrator.spec_files import load

ROOT = Path(__file__).resolve().parents[2]
RUN = "demo-20260101-000000-abcd"
EXP = """\
name: demo
group: lab
env: {A: '1'}
env_from: WANDB_API_KEY
stages:
  test: {kind: eval, needs: train}
  train:
    kind: pretrain
    needs: [data, prepare]
    model: {preset: tiny}
    train: {steps: 20}
    resources: {nodes: 2, gpus_per_node: 4, time: "02:00:00", mem: 64G, exclude: [n9], qos: high}
    chain: {max_links: 3, startup: 90, save_time: 20}
    recovery: {unexplained: 7}
  data: {kind: text}
  prepare:
    kind: command
    run: make -C {stage_dir} all
    progress: {regex: 'step (?P<step>x)'}
    stop_signal: USR1
    grace: 5
"""
SITE = Profile(
    "site",
    cluster="alpha",
    partition="gpu",
    qos="low",
    exclude=("n1", "n9"),
    environment=Environment("/opt/tm/python", ("cuda",), ("umask 027",)),
    container=Container("pyxis", "base", ("/s:/s",)),
    pass_env=("HF_TOKEN",),
    srun_args=("--mpi=none",),
    extra_directives=("--licenses=x",),
)


def record(loaded: LoadedExperiment, profile: Profile = SITE) -> RunRecord:
    return make_record(
        loaded,
        profile,
        run_id=RUN,
        created=1000.5,
        version="0.1",
        python="/usr/bin/python3",
        home=Path("/home/me/.trainmaster"),
    )


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedExperiment:
    return load(tmp_path, EXP)


@pytest.fixture
def plan(loaded: LoadedExperiment) -> RunPlan:
    return record(loaded).plan(Path("/runs") / RUN)


def test_stages_come_after_what_they_need(plan: RunPlan) -> None:
    assert [s.name for s in plan.stages] == ["data", "prepare", "train", "test"]
    assert [s.artifact_kind for s in plan.stages] == ["dataset", "command", "checkpoint", "evaluation"]
    assert (plan.cluster, plan.settle_s, plan.group) == ("alpha", 30.0, "lab")
    with pytest.raises(KeyError):
        plan.stage("nope")


def test_inputs_are_the_artifacts_a_stage_reads(plan: RunPlan) -> None:
    inputs = {s.name: dict(s.input_kinds) for s in plan.stages}
    assert inputs == {
        "data": {},
        "prepare": {},
        "train": {"data": "dataset", "prepare": "command"},
        "test": {"data": "dataset", "train": "checkpoint"},
    }
    assert plan.stage("test").needs == ("train",)


def test_the_job_of_a_link(plan: RunPlan) -> None:
    job = plan.job("train", 3)
    paths = contract.RunPaths(Path("/runs") / RUN)
    assert job.token == f"{RUN}.train.003" and contract.parse_token(job.token) == (RUN, "train", 3)
    assert job.argv == (
        "/opt/tm/python", "-m", "orchestrator.segment", "--run-dir", str(paths.root),
        "--stage", "train", "--link", "3", "--home", "/home/me/.trainmaster",
    )  # fmt: skip
    assert (job.chdir, job.output) == (paths.stage("train"), paths.job_log("train", 3))
    assert (job.nodes, job.gpus_per_node, job.cpus_per_node, job.mem_per_node) == (2, 4, None, "64G")
    assert (job.time_limit_s, job.signal_lead_s) == (7200, 50)
    assert (job.partition, job.qos, job.account) == ("gpu", "high", None)
    assert job.exclude == ("n1", "n9")
    assert job.env_from == ("WANDB_API_KEY", "HF_TOKEN")
    assert (job.modules, job.setup, job.extra_directives) == (("cuda",), ("umask 027",), ("--licenses=x",))
    assert job.container == SITE.container and not job.requeue
    assert dict(job.env) == {"PYTHONPATH": str(ROOT)}  # of Trainmaster; the stage's own env is not here


def test_links_differ_in_their_number_alone(plan: RunPlan) -> None:
    a, b = plan.job("data", 1), plan.job("data", 12)
    changed = {f.name for f in dataclasses.fields(a) if getattr(a, f.name) != getattr(b, f.name)}
    assert changed == {"token", "argv", "output", "about"}


def test_without_gpus_every_rank_gets_a_core(tmp_path: Path) -> None:
    text = "name: d\nstages:\n  c: {kind: command, run: x, resources: {ranks_per_node: 3}}\n"
    job = record(load(tmp_path, text)).plan(Path("/r")).job("c", 1)
    assert job.cpus_per_node == 3


def test_stage_json_is_what_the_launcher_reads(plan: RunPlan, tmp_path: Path) -> None:
    # The user's command runs where their file is; our own programs in the stage's directory.
    workdirs = {s.name: s.stage_config["launch"]["workdir"] for s in plan.stages}
    assert workdirs == {"data": None, "train": None, "test": None, "prepare": str(tmp_path)}
    for stage in plan.stages:
        path = tmp_path / f"{stage.name}.json"
        path.write_text(json.dumps(stage.stage_config))
        config = read_stage_config(path)
        assert (config.run, config.name, config.kind) == (RUN, stage.name, stage.kind)
        assert (config.cluster, config.scheduler) == ("alpha", "slurm")
        assert config.artifact_kind == stage.artifact_kind
        assert dict(config.input_kinds) == dict(stage.input_kinds)
        assert set(config.inputs) == set(stage.input_kinds)
        assert config.budgets == stage.budgets
        assert config.launch.env == {"A": "1"}
        assert config.launch.python == "/opt/tm/python"
        assert config.launch.workdir == workdirs[stage.name]
    train = plan.stage("train").stage_config
    assert train["launch"]["program"] == ["-m", "models.pretrain"] and train["launch"]["argv"] is None
    assert (train["launch"]["ranks_per_node"], train["launch"]["startup_s"]) == (4, 90)
    assert train["stage"]["train"]["steps"] == 20
    assert train["advance"] == "ahead"
    command = plan.stage("prepare").stage_config["launch"]
    assert command["argv"] == ["make", "-C", "{stage_dir}", "all"] and command["program"] is None
    assert command["progress"] == {"regex": "step (?P<step>x)"}
    assert (command["stop_signal"], command["grace_s"], command["launcher"]) == ("USR1", 5, "none")


def test_a_format_is_passed_on_by_name(tmp_path: Path) -> None:
    text = "name: d\nstages:\n  c: {kind: command, run: x, progress: megatron-log}\n"
    stage = record(load(tmp_path, text)).plan(Path("/r")).stages[0]
    assert stage.stage_config["launch"]["progress"] == "megatron-log"


def test_budgets(plan: RunPlan, tmp_path: Path) -> None:
    assert plan.stage("train").budgets == Budgets(unexplained=7, max_links=3)
    text = "name: d\nstages:\n  c: {kind: command, run: x, chain: {total_time: 5h}}\n"
    stage = record(load(tmp_path, text)).plan(Path("/r")).stages[0]
    assert stage.budgets.total_wall_s == 18000


def test_node_hours_are_upper_bounds(plan: RunPlan, tmp_path: Path) -> None:
    train = plan.stage("train")
    assert (train.node_hours_per_link, train.node_hours_at_most) == (4.0, 12.0)
    assert plan.node_hours_at_most == 12.0 + 3 + 10 + 3
    text = (
        "name: d\nstages:\n  c: {kind: command, run: x, chain: {total_time: 150m}, resources: {nodes: 2}}\n"
    )
    capped = record(load(tmp_path, text)).plan(Path("/r")).stages[0]
    assert capped.node_hours_at_most == 2 * 2.5 + 2


def test_the_plan_comes_back_from_run_json_alone(loaded: LoadedExperiment, tmp_path: Path) -> None:
    made = record(loaded)
    path = tmp_path / "run.json"
    path.write_text(made.to_json())
    again = load_run_record(path)
    assert again == made
    directory = Path("/runs") / RUN
    assert again.plan(directory) == made.plan(directory)
    direct = make_plan(
        loaded.experiment,
        SITE,
        run_id=RUN,
        run_dir=directory,
        python="/usr/bin/python3",
        home=Path("/home/me/.trainmaster"),
        import_root=str(ROOT),
    )
    assert again.plan(directory) == direct
    assert json.dumps(again.plan(directory).to_json())
    assert again.profile() == SITE
    assert (again.name, again.group, again.profile_key == made.profile_key) == ("demo", "lab", True)


def test_rebuilding_needs_neither_pydantic_nor_yaml(loaded: LoadedExperiment, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(record(loaded).to_json())
    code = (
        "import sys; from pathlib import Path; from orchestrator.plan import load_run_record\n"
        f"plan = load_run_record(Path({str(path)!r})).plan(Path('/r'))\n"
        "plan.job('train', 1), plan.stage('train').stage_config\n"
        "print(sorted({'pydantic', 'yaml', 'omegaconf', 'rich', 'typer'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_digest_is_of_what_would_run(loaded: LoadedExperiment, tmp_path: Path) -> None:
    first = record(loaded).spec_digest
    (tmp_path / "again").mkdir()
    commented = load(tmp_path / "again", "# another comment\n" + EXP)
    # The same experiment from another directory: a command's workdir is part of what would run.
    resolved = json.loads(json.dumps(commented.resolved).replace(f"{tmp_path}/again", str(tmp_path)))
    same = dataclasses.replace(commented, resolved=resolved)
    assert record(same).spec_digest == first
    assert record(load(tmp_path, EXP, "stages.train.train.steps=21")).spec_digest != first
    assert record(loaded, builtin()["local"]).spec_digest != first


def test_no_secret_is_in_the_record(
    loaded: LoadedExperiment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "swordfish")
    made = record(load(tmp_path, EXP))
    assert "swordfish" not in made.to_json()
    assert "swordfish" not in repr(made.plan(Path("/r")).job("train", 1))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not valid JSON"),
        ('{"v": 1, "run_id": "x"', "not valid JSON"),
        ("[]", "not a run record"),
        ("{}", "not a run record"),
        ('{"v": 1}', "not a run record"),
        ('{"v": 1, "run_id": "x", "experiment": 3, "profile": {}}', "not a run record"),
        ('{"v": 99, "version": "7.1"}', "newer version of Trainmaster"),
    ],
)
def test_what_is_no_record_is_said_so(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(StorageError, match=said) as caught:
        load_run_record(path)
    assert "run.json" in caught.value.message
    with pytest.raises(StorageError):
        load_run_record(tmp_path / "gone.json")


def test_keys_added_within_a_version_are_ignored(loaded: LoadedExperiment, tmp_path: Path) -> None:
    data: dict[str, Any] = json.loads(record(loaded).to_json())
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**data, "added_later": 1}))
    assert load_run_record(path) == record(loaded)


def test_a_record_changed_by_hand_is_said_so(loaded: LoadedExperiment) -> None:
    made = record(loaded)
    broken = json.loads(json.dumps(made.experiment))
    del broken["stages"]["train"]["needs"]
    with pytest.raises(StorageError, match="lacks what a plan needs"):
        dataclasses.replace(made, experiment=broken).plan(Path("/r"))


def test_a_run_id_is_checked(loaded: LoadedExperiment) -> None:
    with pytest.raises(ValueError):
        make_record(loaded, SITE, run_id="../x", created=0, version="", python="", home=Path("/h"))
