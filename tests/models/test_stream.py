"""models.data.stream: the sample at a position is the same however one got there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.models.programs import ROOT

pytestmark = pytest.mark.slow

CODE = """
import json, sys
from pathlib import Path
from models import runtime
from models.settings import DataFault, Parallel
ranks = runtime.prepare(1); runtime.connect(ranks); runtime.split(Parallel(), 1)
from models.data.stream import TokenIds, TrainingStream
data, cache = Path(sys.argv[1]), Path(sys.argv[2])
def stream(length=64):
    return TrainingStream([data / "train"], TokenIds(320, 0, "x"), length, 5, cache / str(length))
def row(s, i):
    s.prepare(i, 1)
    return s.sample(i)["tokens"].tolist()
first = stream(); size = first.samples_per_epoch
walked = [row(first, i) for i in range(2 * size + 3)]
# A process killed while writing an index leaves a directory without its marker.
torn = cache / "64" / "epoch-00001"
(torn / "complete").unlink()
for file in torn.glob("*.npy"): file.write_bytes(file.read_bytes()[:40])
jumped = stream()
sample = first.sample(2 * size)
try:
    stream(10**6); short = ""
except DataFault as error:
    short = error.message
print("RESULT " + json.dumps({
    "size": size, "same": [row(jumped, i) == walked[i] for i in (2 * size + 2, size, size + 7, 0)],
    "reshuffled": walked[:size] != walked[size:2 * size],
    "shift": sample["labels"][:-1].tolist() == sample["tokens"][1:].tolist(), "short": short}))
"""


def test_samples_depend_on_their_position_only(tmp_path: Path, dataset: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE, str(dataset), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    result = json.loads(line.removeprefix("RESULT "))
    assert result["size"] > 10
    assert result["same"] == [True] * 4
    assert result["reshuffled"], "each epoch has an order of its own"
    assert result["shift"]
    assert "shorter than one sequence of 1000000 tokens" in result["short"]
