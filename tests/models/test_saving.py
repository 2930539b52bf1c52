"""Saving beside training when something goes wrong: said by all ranks, at once, and nothing good is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.models.programs import MODEL, TRAIN, Faulty, Pair

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("saving")]


def faulty(fault: str, directory: Path, dataset: Path, **checkpoint: Any) -> Faulty:
    spec = {
        "kind": "pretrain",
        "needs": "text",
        "model": MODEL,
        "train": TRAIN,
        "checkpoint": {"interval": 10, "keep": 3, **checkpoint},
    }
    return Faulty(fault, directory, spec, {"text": dataset})


def test_a_full_disk_on_one_rank_ends_all_with_the_cause(tmp_path: Path, dataset: Path) -> None:
    program = faulty("disk", tmp_path / "stage", dataset)
    codes, said, error = Pair(program, tmp_path).run("full")
    assert codes == [5, 5], error
    assert "checkpoint at step 10" in said
    (told,) = program.told("workload.error")
    assert told["category"] == "storage_full"
    assert "step 20 could not be written: rank 1" in told["message"]
    assert "free space" in told["hint"]
    # What was there stays, what was half-written is gone: it would only fill the disk.
    assert [path.name for path in (program.directory / "checkpoints").iterdir()] == ["iter_0000010"]


def test_saves_never_pile_up_and_training_goes_on_meanwhile(tmp_path: Path, dataset: Path) -> None:
    program = faulty("slow-disk", tmp_path / "stage", dataset, interval=3)
    done = program.run(**program.journal_env("slow"))
    assert done.returncode == 0, done.stderr
    committed = program.told("checkpoint.committed")
    assert committed[-1]["step"] == 40
    assert 2 <= len(committed) < 13
    # A save takes a second, which none of the steps but the last one waited for.
    assert all(one["seconds"] > 1.0 for one in committed)
    assert all(one["stall_s"] < 0.5 for one in committed)
    assert done.stdout.count("waits for the one that is being written") == 1


def test_who_was_overtaken_commits_nothing(tmp_path: Path, dataset: Path) -> None:
    program = faulty("successor", tmp_path / "stage", dataset)
    env = {**program.journal_env("stale"), "TRAINMASTER_TOKEN": "test.pretrain.001"}
    done = program.run(**env)
    assert done.returncode == 93, done.stderr
    assert "test.pretrain.002 has taken over" in done.stderr
    assert [one["category"] for one in program.told("workload.error")] == ["requeued"]
    assert [path.name for path in (program.directory / "checkpoints").iterdir()] == ["iter_0000010"]
