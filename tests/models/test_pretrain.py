"""models.pretrain as a process: exact resume, draining, damage, and refusals.

Losses are compared as Python floats read back from the metrics files: every digit counts.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.models.programs import MODEL, TRAIN, Program, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pretrain")]


def pretrain(directory: Path, dataset: Path, train: dict[str, Any] | None = None, **sections: Any) -> Program:
    spec = {
        "kind": "pretrain",
        "needs": "text",
        "model": MODEL,
        "train": {**TRAIN, **(train or {})},
        # At 20 it is there before 21 is trained: what is killed soon after resumes from it.
        "checkpoint": {"interval": 20, "keep": 3, "async": False},
        **sections,
    }
    return Program("pretrain", directory, spec, {"text": dataset})


def kill_after(program: Program, step: int, attempt: str, ranks: int = 1) -> None:
    """Start, wait for a step's log line, and kill -9 the launcher and every rank.

    That the output then ends also shows that no process is left behind (the pipe would stay open).
    """
    process = program.start(ranks, **program.journal_env(attempt))
    wait_for(process, lambda line: f"iteration {step:8d}/" in line)
    victims = program.processes()
    assert len(victims) >= ranks
    for victim in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    process.communicate(timeout=60)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, dataset: Path) -> Program:
    """40 steps without interruption on one rank, without any launcher."""
    program = pretrain(tmp_path_factory.mktemp("straight"), dataset)
    done = program.run(**program.journal_env("straight"))
    assert done.returncode == 0, done.stderr
    assert "lm loss: " in done.stdout
    return program


def copy_of(program: Program, to: Path, **changes: Any) -> Program:
    """The same stage in another place, as if it had run there."""
    shutil.copytree(program.directory, to, dirs_exist_ok=True)
    spec = {**program.spec, **changes}
    return Program(program.name, to, spec, program.inputs)


def test_learns_and_leaves_a_sealed_artifact(straight: Program, dataset: Path) -> None:
    losses = straight.losses("straight")
    assert sorted(losses) == list(range(1, 41))
    assert sum(losses[s] for s in range(36, 41)) / 5 < losses[1] - 0.5
    manifest = json.loads((straight.artifact / "manifest.json").read_text())
    meta = manifest["meta"]
    assert (manifest["kind"], meta["step"], meta["consumed_samples"]) == ("checkpoint", 40, 160)
    assert meta["model"]["hidden_size"] == 32
    assert (straight.artifact / "tokenizer.json").read_bytes() == (dataset / "tokenizer.json").read_bytes()
    committed = [e["data"]["step"] for e in straight.events() if e["type"] == "checkpoint.committed"]
    assert committed == [20, 40]


def test_a_complete_stage_ends_at_once(straight: Program) -> None:
    done = straight.run()
    assert done.returncode == 0
    assert "complete already" in done.stdout


def test_killed_and_drained_and_resumed_gives_the_same_losses(
    straight: Program, tmp_path: Path, dataset: Path
) -> None:
    program = pretrain(tmp_path / "stage", dataset)
    kill_after(program, 23, "killed")

    # Goes on from 20; asked to stop somewhere after 26, it saves the step it is at and says so.
    stop = tmp_path / "stop"
    env = program.journal_env("drained")
    process = program.start(TRAINMASTER_STOP_FILE=str(stop), **env)
    said = wait_for(process, lambda line: f"iteration {26:8d}/" in line)
    assert "resumed at step 20" in said
    stop.touch()
    rest, error = process.communicate()
    assert process.returncode == 75, error
    drained = program.losses("drained")
    assert max(drained) < 40
    assert f"step {max(drained)} is saved" in rest

    done = program.run(**program.journal_env("finished"))
    assert done.returncode == 0, done.stderr
    finished = program.losses("finished")
    assert min(finished) == max(drained) + 1
    want = straight.losses("straight")
    assert {**drained, **finished} == {step: want[step] for step in range(21, 41)}
    before = program.losses("killed")  # what was flushed with the checkpoint at 20
    assert {step: before[step] for step in range(1, 21)} == {step: want[step] for step in range(1, 21)}


def test_two_ranks_with_distributed_optimizer_resume_exactly(tmp_path: Path, dataset: Path) -> None:
    settings: dict[str, Any] = {
        "parallel": {"distributed_optimizer": True},
        "model": {**MODEL, "hidden_dropout": 0.1},  # random streams matter
    }
    whole = pretrain(tmp_path / "whole", dataset, {"precision": "bf16"}, **settings)
    done = whole.run(ranks=2, **whole.journal_env("whole"))
    assert done.returncode == 0, done.stderr
    broken = pretrain(tmp_path / "broken", dataset, {"precision": "bf16"}, **settings)
    kill_after(broken, 22, "killed", ranks=2)
    done = broken.run(ranks=2, **broken.journal_env("resumed"))
    assert done.returncode == 0, done.stderr
    assert "resumed at step 20" in done.stdout
    want = whole.losses("whole")
    assert broken.losses("resumed") == {step: want[step] for step in range(21, 41)}
    assert want[40] < want[1]


def test_a_corrupt_checkpoint_is_set_aside_and_the_one_before_is_used(
    straight: Program, tmp_path: Path
) -> None:
    program = copy_of(straight, tmp_path / "stage")
    shutil.rmtree(program.artifact)
    newest = program.directory / "checkpoints" / "iter_0000040"
    victim = max(newest.glob("*.distcp"), key=lambda path: path.stat().st_size)
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.unlink()  # a copy may be a hard link
    victim.write_bytes(content)
    done = program.run(**program.journal_env("again"))
    assert done.returncode == 0, done.stderr
    assert "set aside as iter_0000040.corrupt" in done.stdout
    assert "resumed at step 20" in done.stdout
    want = straight.losses("straight")
    assert program.losses("again") == {step: want[step] for step in range(21, 41)}
    quarantined = [e for e in program.events() if e["type"] == "checkpoint.quarantined"]
    assert "checksum" in quarantined[0]["data"]["reason"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {**MODEL, "hidden_size": 64}}, "model.hidden_size is 32 there, 64 here"),
        ({"train": {**TRAIN, "steps": 60, "seq_length": 64}}, "train.seq_length is 32 there, 64 here"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused_by_key(
    straight: Program, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    program = copy_of(straight, tmp_path / "stage", **changes)
    shutil.rmtree(program.artifact)
    done = program.run(**program.journal_env("other"))
    assert done.returncode == 76
    assert message in done.stderr
    assert "next: " in done.stderr
    errors = [e["data"]["category"] for e in program.events() if e["type"] == "workload.error"]
    assert errors == ["checkpoint_mismatch"]
    assert (program.directory / "checkpoints" / "iter_0000040").is_dir()


def test_more_steps_go_on_where_training_ended(straight: Program, tmp_path: Path) -> None:
    waited_for = {"interval": 3, "async": False}
    program = copy_of(straight, tmp_path / "stage", train={**TRAIN, "steps": 44}, checkpoint=waited_for)
    shutil.rmtree(program.artifact)
    done = program.run(**program.journal_env("longer"))
    assert done.returncode == 0, done.stderr
    assert sorted(program.losses("longer")) == [41, 42, 43, 44]
    told = {one["step"]: one for one in program.told("checkpoint.committed")}
    assert sorted(told) == [20, 40, 42, 44]
    assert told[42]["stall_s"] >= told[42]["seconds"] * 0.9  # all of it was waited for


def test_a_loss_that_is_no_number_is_rejected_with_evidence(tmp_path: Path, dataset: Path) -> None:
    train = {"lr": 1e30, "warmup_steps": 0, "clip_grad": 0.0}
    program = pretrain(tmp_path / "stage", dataset, train, checkpoint={"interval": 1})
    done = program.run(**program.journal_env("wild"))
    assert done.returncode == 17, done.stderr
    assert " at step " in done.stderr
    assert "samples " in done.stderr
    assert [e["data"]["category"] for e in program.events() if e["type"] == "workload.error"] == ["numeric"]


def test_settings_that_cannot_work_are_all_named_without_loading_torch(tmp_path: Path, dataset: Path) -> None:
    program = pretrain(tmp_path / "stage", dataset, {"lr": -1, "precision": "fp8", "stpes": 3})
    done = program.run()
    assert done.returncode == 76
    for part in ("train.lr must be over 0", "fp32 or bf16", "train.stpes is unknown"):
        assert part in done.stderr
    program = pretrain(tmp_path / "stage", dataset, parallel={"tensor": 4})
    done = program.run()
    assert done.returncode == 76
    assert "query_groups 2 is not divisible by parallel.tensor 4" in done.stderr
    assert "1 ranks are not divisible" in done.stderr


def test_a_missing_dataset_names_the_stage_to_run(tmp_path: Path) -> None:
    program = pretrain(tmp_path / "stage", tmp_path / "nothing")
    done = program.run()
    assert done.returncode == 76
    assert "run stage 'text' again" in done.stderr
