"""stage.json as the allocation reads it."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from launch.config import BadStageConfig, read_stage_config
from resiliency.errors import StorageError

from .conftest import RunDir


def changed(run_dir: RunDir, **launch: Any) -> Path:
    config = run_dir.stage(argv=["true"])
    config["launch"].update(launch)
    path = run_dir.paths.stage_config("work")
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("TERM", signal.SIGTERM), ("SIGUSR1", signal.SIGUSR1), ("int", signal.SIGINT), (None, None)],
)
def test_stop_signals(run_dir: RunDir, text: str | None, wanted: signal.Signals | None) -> None:
    assert read_stage_config(changed(run_dir, stop_signal=text)).launch.stop_signal == wanted


@pytest.mark.parametrize(
    "launch",
    [{"argv": None}, {"program": ["-m", "x"]}, {"launcher": "mpirun"}, {"stop_signal": "NOPE"},
     {"nodes": "many"}],
)  # fmt: skip
def test_what_cannot_be_used_names_the_file(run_dir: RunDir, launch: dict[str, Any]) -> None:
    path = changed(run_dir, **launch)
    with pytest.raises(BadStageConfig, match=r"stage\.json cannot be used") as caught:
        read_stage_config(path)
    assert caught.value.hint


def test_a_missing_or_torn_file(run_dir: RunDir) -> None:
    path = run_dir.paths.stage_config("work")
    with pytest.raises(StorageError):
        read_stage_config(path)
    path.parent.mkdir(parents=True)
    path.write_text('{"v": 1,')
    with pytest.raises(StorageError, match="not valid JSON"):
        read_stage_config(path)


def test_unknown_keys_of_a_newer_version_are_passed_over(run_dir: RunDir) -> None:
    config = run_dir.stage(argv=["true"])
    config["budgets"]["invented_later"] = 1
    config["launch"]["invented_later"] = 1
    path = run_dir.paths.stage_config("work")
    path.write_text(json.dumps(config))
    assert read_stage_config(path).budgets.unexplained == 3
