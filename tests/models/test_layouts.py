"""The same losses and gradient norms however the work is split over ranks.

These are the silent traps: a wrong gradient at a layout raises nothing, it only trains worse.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.models.programs import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("layouts")]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, dataset: Path) -> dict[str, Any]:
    worker = ROOT / "tests" / "models" / "layouts_worker.py"
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*run, str(worker), str(dataset), str(tmp_path_factory.mktemp("layouts"))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULTS "))
    return json.loads(line.removeprefix("RESULTS "))


@pytest.mark.parametrize(
    "layout",
    ["tensor", "tensor and sequence", "pipeline", "interleaved pipeline", "context"],
)
def test_layouts_agree_to_five_digits(results: dict[str, Any], layout: str) -> None:
    want, got = results["data parallel"], results[layout]
    assert got["losses"] == pytest.approx(want["losses"], rel=1e-5)
    assert got["norms"] == pytest.approx(want["norms"], rel=1e-4)


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        ("data parallel", "again"),
        ("data parallel", "again, ours"),
        ("distributed optimizer", "distributed optimizer, loaded"),
        ("distributed optimizer", "distributed optimizer, loaded, ours"),
    ],
)
def test_a_load_on_the_same_layout_is_exact(results: dict[str, Any], saved: str, loaded: str) -> None:
    assert results[loaded]["losses"] == results[saved]["losses"]
    assert results[loaded]["norms"] == results[saved]["norms"]


def test_the_distributed_optimizer_changes_nothing(results: dict[str, Any]) -> None:
    for layout in ("distributed optimizer", "distributed optimizer, tensor"):
        want, got = results["data parallel"], results[layout]
        assert got["losses"] == pytest.approx(want["losses"], rel=1e-5)
        assert got["norms"] == pytest.approx(want["norms"], rel=1e-4)


def test_experts_split_over_ranks_agree(results: dict[str, Any]) -> None:
    # Their optimizer state cannot be resharded by Megatron: pretrain refuses that, weights can.
    want, got = results["experts, weights only"], results["experts split, weights only"]
    assert got["losses"] == pytest.approx(want["losses"], rel=1e-5)
    assert got["norms"] == pytest.approx(want["norms"], rel=1e-4)


def test_step_counters_are_unshared_after_a_load(results: dict[str, Any]) -> None:
    """Megatron's load puts one tensor in all states; AdamW would count it up once a parameter."""
    loaded = results["distributed optimizer, loaded"]
    assert loaded["shared_after_load"] > 0, "the trap is gone from Megatron: unshare_steps can go too"
    for layout, result in results.items():
        assert result["distinct"], layout
        assert result["steps"] == [3.0 if "weights only" in layout else 5.0], layout


def test_our_files_hold_what_megatrons_hold(results: dict[str, Any]) -> None:
    """Written without gathering anything, each rank its share; read back by Megatron."""
    compared = {name for name, result in results.items() if result["same_files"] is not None}
    assert compared >= {"data parallel", "pipeline", "context", "distributed optimizer", "experts"}
    assert [name for name in compared if not results[name]["same_files"]] == []
