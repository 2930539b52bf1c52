"""Training warm is training cold: the same losses to the last digit, and nothing is imported late."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from launch import processes, rank, warm
from launch.config import StageConfig, read_stage_config
from launch.roles import Place, build, role_environment, warm_environment, warm_modules
from tests.models.programs import MODEL, ROOT, TRAIN

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pretrain")]


def test_nothing_decided_and_no_thread_by_importing_it() -> None:
    body = """
import os, sys, torch
before = torch.get_num_threads(), torch.empty, torch.cuda.current_device
import models.warm
assert (torch.get_num_threads(), torch.empty, torch.cuda.current_device) == before
assert not torch.cuda.is_initialized() and not torch.distributed.is_initialized()
assert len(os.listdir("/proc/self/task")) == 1, os.listdir("/proc/self/task")
assert "models.pretrain" in sys.modules and "models.prepare_text" in sys.modules
"""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", body], check=True, cwd=ROOT, env=env)


class Cycles:
    """A pretrain stage of one node and two ranks as the agent starts it, cycle by cycle."""

    def __init__(self, directory: Path, dataset: Path, launcher: str) -> None:
        self.directory = directory
        stage = directory / "stages" / "pretrain"
        stage.mkdir(parents=True)
        content = {
            "run": "test", "name": "pretrain", "kind": "pretrain", "cluster": "c", "scheduler": "local",
            "stage": {"kind": "pretrain", "model": MODEL, "train": {**TRAIN, "steps": 6},
                      "checkpoint": {"interval": 3, "keep": 2}},
            "stage_dir": str(stage), "artifact_dir": str(stage / "artifact"),
            "inputs": {"text": str(dataset)}, "artifact_kind": "checkpoint", "budgets": {},
            "launch": {"ranks_per_node": 2, "launcher": launcher, "program": ["-m", "tests.models.late"],
                       "python": sys.executable, "warm": ["models.warm"], "workdir": str(ROOT)},
        }  # fmt: skip
        (stage / "stage.json").write_text(json.dumps(content))
        self.config: StageConfig = read_stage_config(stage / "stage.json")
        self.base = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINMASTER_", "PYTEST_"))}
        self.base["PYTHONPATH"] = str(ROOT)
        self.server: subprocess.Popen[bytes] | None = None
        self.socket = directory / "warm.sock"

    def open(self) -> None:
        env = warm_environment(self.config, self.base)
        self.server = warm.start(sys.executable, self.socket, warm_modules(self.config), env, str(ROOT))
        assert warm.wait_ready(self.socket, 120, self.server)

    def start(self, cycle: int) -> tuple[subprocess.Popen[str], Path]:
        shutil.rmtree(self.config.stage_dir / "checkpoints", ignore_errors=True)
        shutil.rmtree(self.config.stage_dir / "artifact", ignore_errors=True)
        local = self.directory / f"cycle-{cycle}"
        local.mkdir()
        own = {
            "TRAINMASTER_CYCLE": str(cycle), "TRAINMASTER_ATTEMPT": f"test/{cycle}.0",
            "TRAINMASTER_RUN_DIR": str(self.directory), rank.ENV_DIR: str(local),
        }  # fmt: skip
        if self.server is not None:
            own["TRAINMASTER_WARM"] = str(self.socket)
        env = role_environment(self.config, self.base, own)
        place = Place("n0", 0, 1, "127.0.0.1", 1)
        (process,) = build(self.config, place, env, run_dir=self.directory, link=1, local_dir=local)
        popen = subprocess.Popen(
            list(process.argv), env=dict(process.env), cwd=ROOT, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return popen, local

    def losses(self, cycle: int) -> dict[int, float]:
        (path,) = (self.config.stage_dir / "metrics").glob(f"train-test*{cycle}.0.jsonl")
        return {row["step"]: row["loss"] for row in map(json.loads, path.read_text().splitlines())}


def records(directory: Path, word: str) -> dict[int, Any]:
    found = [json.loads(path.read_text()) for path in directory.glob(f"*.{word}")]
    return {record["rank"]: record for record in found}


@pytest.fixture
def cycles(request: pytest.FixtureRequest, tmp_path: Path, dataset: Path) -> Iterator[Cycles]:
    it = Cycles(tmp_path, dataset, request.param)
    yield it
    if it.server is not None:
        it.server.kill()
        it.server.wait()


@pytest.mark.skipif(find_spec("nvidia_resiliency_ext") is None, reason="NVRx is not installed")
@pytest.mark.parametrize("cycles", ["ft_launcher"], indirect=True)
def test_losses_are_the_same_and_nothing_is_imported_late(cycles: Cycles) -> None:
    found = {}
    for cycle in (0, 1, 2):
        if cycle == 1:
            cycles.open()
        popen, local = cycles.start(cycle)
        said, _ = popen.communicate(timeout=240)
        assert popen.returncode == 0, said
        found[cycle] = cycles.losses(cycle)
        ends = records(local, "end")
        assert {number: end["code"] for number, end in ends.items()} == {0: 0, 1: 0}
        if cycle:
            late = {
                word for line in said.splitlines() if line.startswith("LATE ") for word in line.split()[1:]
            }
            assert {name for name in late if name.partition(".")[0] not in sys.stdlib_module_names} == set()
            starts = records(local, "start")
            assert all(starts[n]["shim"] != starts[n]["pid"] == ends[n]["pid"] for n in (0, 1))
    assert sorted(found[0]) == [1, 2, 3, 4, 5, 6]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("cycles", ["torchrun"], indirect=True)
def test_a_killed_rank_ends_the_launcher_and_a_killed_launcher_its_ranks(cycles: Cycles) -> None:
    cycles.open()
    for cycle, victim in ((0, "rank"), (1, "launcher")):
        popen, local = cycles.start(cycle)
        assert popen.stdout is not None
        for line in popen.stdout:
            if "iteration        1/" in line:
                break
        pids = {number: start["pid"] for number, start in records(local, "start").items()}
        if victim == "rank":
            os.kill(pids[1], signal.SIGKILL)
            popen.communicate(timeout=60)
            assert popen.returncode == 1 and records(local, "end")[1]["code"] == 137
        else:
            popen.kill()
            popen.communicate(timeout=60)  # nothing holds its output any more
        assert not [pid for pid in pids.values() if processes.alive(pid)]
