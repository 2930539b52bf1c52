"""A number that is none, looked at twice: hardware or result (exit codes 16 and 17).

That a result which stays wrong ends with 17 is in ``test_pretrain.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models.programs import Pair
from tests.models.test_saving import faulty

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("saving")]


def test_a_loss_that_is_right_the_second_time_names_the_rank_and_its_node(
    tmp_path: Path, dataset: Path
) -> None:
    program = faulty("arithmetic", tmp_path / "stage", dataset)
    codes, _, error = Pair(program, tmp_path).run("wrong")
    assert codes == [16, 16], error
    (told,) = program.told("workload.error")
    assert (told["category"], told["node"], told["rank"]) == ("sdc_suspected", "node-b", 1)
    assert "at step 30 on 1 of 2 ranks" in told["message"]
    assert "rank 1 on node-b: inf then " in told["message"]
    # What was being saved is from before it, and good.
    assert program.told("checkpoint.committed")[-1]["step"] == 20


def test_a_gradient_that_nobody_owns_proves_nothing_against_a_node(tmp_path: Path, dataset: Path) -> None:
    program = faulty("gradient", tmp_path / "stage", dataset)
    done = program.run(**program.journal_env("wrong"))
    assert done.returncode == 16, done.stderr
    (told,) = program.told("workload.error")
    assert told["category"] == "gpu_fault"
    assert told.get("node") is None
    assert "the gradient norm is" in told["message"]
    assert "not the same when computed again" in told["message"]
