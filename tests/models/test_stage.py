"""models.stage: outcomes become exit codes, artifacts appear whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from models.settings import ConfigFault, ResultRejected
from models.stage import Stage, main, read_stage
from resiliency import artifact
from resiliency.errors import StorageError


def stage_file(tmp_path: Path, **inputs: str) -> Path:
    config = tmp_path / "stage.json"
    directory = tmp_path / "stage"
    config.write_text(
        json.dumps({"stage": {"kind": "x"}, "stage_dir": str(directory), "inputs": inputs, "later": 1})
    )
    return config


def outcome(tmp_path: Path, error: Exception | None, code: int = 0) -> int:
    def program(stage: Stage) -> int:
        if error:
            raise error
        return code

    return main(program, "test", ["--config", str(stage_file(tmp_path))])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigFault("wrong", hint="do this"), 76),
        (ResultRejected("nan"), 17),
        (StorageError("disk full", hint="free space"), 5),
    ],
)
def test_errors_become_exit_codes_and_a_sentence(
    tmp_path: Path, error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(tmp_path, error) == code
    assert f"error: {error}" in capsys.readouterr().err


def test_other_codes_pass_and_crashes_stay_crashes(tmp_path: Path) -> None:
    assert outcome(tmp_path, None, 75) == 75
    with pytest.raises(ZeroDivisionError):
        outcome(tmp_path, ZeroDivisionError())


def test_a_file_that_is_no_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "stage.json"
    for content in ("{", "[]", '{"stage": {}}'):
        config.write_text(content)
        assert main(lambda _: 0, "test", ["--config", str(config)]) == 76
    assert "is not a stage file" in capsys.readouterr().err


def test_an_artifact_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    stage = read_stage(stage_file(tmp_path))
    meta: dict = {}
    with pytest.raises(RuntimeError), stage.new_artifact("thing", meta) as directory:
        (directory / "half").write_text("half")
        raise RuntimeError
    assert not stage.complete("thing")
    with stage.new_artifact("thing", meta) as directory:
        assert not (directory / "half").exists()
        (directory / "whole").write_text("whole")
        meta["count"] = 1
    assert stage.complete("thing")
    assert artifact.load(stage.artifact).meta == {"count": 1}


def test_a_damaged_artifact_is_set_aside(tmp_path: Path) -> None:
    stage = read_stage(stage_file(tmp_path))
    with stage.new_artifact("thing", {}) as directory:
        (directory / "file").write_text("content")
    (stage.artifact / "file").write_text("CONTENT")
    assert not stage.complete("thing")
    assert (stage.directory / "artifact.corrupt" / "file").exists()


def test_inputs_are_found_by_what_they_are(tmp_path: Path) -> None:
    for name, kind in (("a", "dataset"), ("b", "checkpoint")):
        (tmp_path / name).mkdir()
        artifact.seal(tmp_path / name, kind, {"name": name})
    stage = read_stage(stage_file(tmp_path, one=str(tmp_path / "a"), two=str(tmp_path / "b")))
    assert stage.input_of_kind("checkpoint")[1].meta["name"] == "b"
    with pytest.raises(ConfigFault, match="exactly one input of kind 'evaluation', it has 0"):
        stage.input_of_kind("evaluation")
    two = read_stage(stage_file(tmp_path, one=str(tmp_path / "a"), two=str(tmp_path / "a")))
    with pytest.raises(ConfigFault, match="it has 2"):
        two.input_of_kind("dataset")
