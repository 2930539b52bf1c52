"""Every experiment file that is shipped loads, plans, and says on its first line what it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.clusters import builtin
from orchestrator.plan import make_plan
from orchestrator.spec.load import load_experiment

ROOT = Path(__file__).resolve().parents[2]
STARTERS = ROOT / "templates" / "experiments"
EXAMPLES = ROOT / "examples"
FILES = sorted([*STARTERS.glob("*.yaml"), *EXAMPLES.glob("*.yaml")])


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_it_loads_and_plans_on_both_schedulers(path: Path) -> None:
    profiles = builtin()
    for cluster in ("local", "slurm"):
        loaded = load_experiment(path, profiles=profiles, cluster=cluster)
        plan = make_plan(
            loaded.resolved,
            profiles[cluster],
            run_id="x-1",
            run_dir=Path("/runs/x-1"),
            python="/usr/bin/python3",
            home=Path("/home/me"),
        )
        assert [s.name for s in plan.stages] == list(loaded.resolved["stages"])
    first = path.read_text().splitlines()[0]
    assert first.startswith("# ") and len(first) < 100


def test_starters_and_examples_of_one_name_do_not_drift_apart() -> None:
    for name in ("quickstart", "slurm-two-nodes"):
        assert (STARTERS / f"{name}.yaml").read_text() == (EXAMPLES / f"{name}.yaml").read_text()


def test_the_documented_override_works_on_the_quickstart() -> None:
    loaded = load_experiment(EXAMPLES / "quickstart.yaml", ["stages.pretrain.train.lr=1e-4"])
    assert loaded.resolved["stages"]["pretrain"]["train"]["lr"] == 1e-4


def test_the_example_program_keeps_its_side_of_the_contract(tmp_path: Path) -> None:
    program = [sys.executable, str(EXAMPLES / "own_training.py"), "--checkpoints", str(tmp_path)]
    long = subprocess.Popen(
        [*program, "--steps", "100000", "--seconds", "0.01"], stdout=subprocess.PIPE, text=True
    )
    assert long.stdout is not None
    for line in long.stdout:
        if line.startswith("step 3 "):
            break
    long.terminate()
    rest = long.stdout.read()
    assert long.wait(timeout=30) == 75
    last = int((rest or line).splitlines()[-1].split()[1])
    short = [*program, "--steps", str(last + 2), "--seconds", "0"]
    done = subprocess.run(short, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0
    assert [int(line.split()[1]) for line in done.stdout.splitlines()] == [last + 1, last + 2]
