"""models.te_guard and models.cpu_shim, each in a process of its own (they patch torch)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.models.programs import ROOT

pytestmark = pytest.mark.slow


def python(code: str, path: Path | None = None) -> str:
    places = [str(ROOT)] + ([str(path)] if path else [])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_transformer_engine_that_raises_does_not_break_megatron(tmp_path: Path) -> None:
    package = tmp_path / "transformer_engine"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('empty meta package')\n")
    # What we guard against, shown: without the guard the import dies.
    code = "import megatron.core.models.gpt"
    bare = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert "empty meta package" in bare.stderr
    # With CUDA it is tried and its error told; without, it is not even tried.
    said = python(
        "import torch; torch.cuda.is_available = lambda: True\n"
        "from models import te_guard; print(*te_guard.choose())\n"
        f"{code}; print('imported')",
        tmp_path,
    )
    assert "False Transformer Engine does not import (RuntimeError: empty meta package)" in said
    assert "imported" in said
    said = python(f"from models import te_guard; print(*te_guard.choose())\n{code}", tmp_path)
    assert "False no CUDA" in said


def test_the_shim_does_nothing_where_there_is_cuda() -> None:
    said = python(
        "import torch; torch.cuda.is_available = lambda: True\n"
        "before = (torch.zeros, torch.Tensor.type, torch.cuda.current_device, torch.Tensor.cuda)\n"
        "from models import cpu_shim; print(cpu_shim.install())\n"
        "after = (torch.zeros, torch.Tensor.type, torch.cuda.current_device, torch.Tensor.cuda)\n"
        "print(before == after)"
    )
    assert said.split() == ["False", "True"]


def test_the_shim_maps_cuda_to_cpu_and_changes_no_values() -> None:
    said = python(
        "import torch; torch.manual_seed(1); plain = torch.randn(4)\n"
        "from models import runtime; runtime.prepare(1)\n"
        "torch.manual_seed(1); print(torch.equal(plain, torch.randn(4, device='cuda')))\n"
        "print(torch.zeros(2, device='cuda', pin_memory=True).device, torch.ones(1).cuda().device)\n"
        "print(torch.ones(1).type(), torch.ones(1).type(torch.int64).dtype)\n"
        "from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed, random\n"
        "t = random.CudaRNGStatesTracker(); t.add('a', 5)\n"
        "s = torch.get_rng_state()\n"
        "with t.fork('a'): one = torch.rand(1)\n"
        "with t.fork('a'): two = torch.rand(1)\n"
        "print(torch.equal(s, torch.get_rng_state()), bool(one != two))"
    )
    assert said.split() == ["True", "cpu", "cpu", "torch.cuda.FloatTensor", "torch.int64", "True", "True"]
