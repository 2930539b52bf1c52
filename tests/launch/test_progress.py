"""Progress of programs that do not know us."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launch.progress import Watcher
from resiliency.errors import TrainmasterError


def watcher(spec: Any, tmp_path: Path = Path()) -> Watcher:
    return Watcher(spec, resolve=lambda text: tmp_path / text, interval_s=0.0)


@pytest.mark.parametrize(
    ("line", "step", "loss"),
    [
        (b" iteration       20/     100 | consumed samples: 160 | lm loss: 1.234567E+00 | loss scale: 1.0 |",
         20, 1.234567),
        (b"1: [12:00:00] iteration        7/ 10 | elapsed: 1.0 | lm loss: nan | skipped: 1 |", 7, "nan"),
        (b" iteration       30/     100 | consumed samples: 240 |", 30, None),
    ],
)  # fmt: skip
def test_megatron_lm(line: bytes, step: int, loss: float | str | None) -> None:
    it = watcher("megatron-log")
    it.line(line)
    word = it.due()
    assert word is not None and (word["step"], word["loss"]) == (step, loss)
    assert it.due() is None, "the same word is not said twice"


@pytest.mark.parametrize("line", [b"", b"iteration x/y | lm loss: 1", b"\xff\xfe\x00", b"iteration 1" * 9999])
def test_other_lines_are_not_progress(line: bytes) -> None:
    it = watcher("megatron-log")
    it.line(line)
    assert it.due(final=True) is None


def test_a_regex_of_ones_own() -> None:
    it = watcher({"regex": r"epoch=(?P<step>[\d.]+)(?: l=(?P<loss>\S+))?"})
    it.line(b"epoch=3.0 l=oops")
    assert it.due() == {"step": 3, "loss": None, "tokens": None, "section": "step", "steps_per_s": None}


def test_a_file(tmp_path: Path) -> None:
    it = watcher({"file": "step.txt"}, tmp_path)
    assert it.due() is None
    (tmp_path / "step.txt").write_text("step 41\n")
    word = it.due()
    assert word is not None and word["step"] == 41


@pytest.mark.parametrize("spec", ["megatron-checkpoint", {"checkpoint": "{checkpoint_dir}"}])
def test_megatron_checkpoints(tmp_path: Path, spec: Any) -> None:
    directory = tmp_path / "{checkpoint_dir}"
    directory.mkdir()
    tracker = directory / "latest_checkpointed_iteration.txt"
    tracker.write_text("100")
    it = watcher(spec, tmp_path)
    assert it.active and it.saved() is None, "it was there before"
    word = it.due()
    assert word is not None and (word["step"], word["section"]) == (100, "checkpoint")
    for torn in ("", "release"):
        tracker.write_text(torn)
        assert (it.saved(), it.due()) == (None, None)
    tracker.write_text("200\n")
    saved, word = it.saved(), it.due()
    assert saved is not None and (saved["step"], saved["path"]) == (200, str(directory))
    assert word is not None and word["step"] == 200 and it.saved() is None


def test_the_first_checkpoint_is_one(tmp_path: Path) -> None:
    it = watcher({"checkpoint": "."}, tmp_path)
    assert it.saved() is None
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("5")
    saved = it.saved()
    assert saved is not None and saved["step"] == 5


def test_other_progress_tells_of_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "step.txt").write_text("41")
    it = watcher({"file": "step.txt"}, tmp_path)
    assert it.due() is not None and it.saved() is None


def test_it_is_said_at_most_every_interval() -> None:
    it = Watcher("megatron-log", resolve=Path, interval_s=1000.0)
    it.line(b" iteration 1/ 2 |")
    assert it.due() is None
    assert it.due(final=True) is not None


@pytest.mark.parametrize("spec", ["tensorboard", {"regex": "("}, {"what": 1}, 3])
def test_what_it_cannot_be(spec: Any) -> None:
    with pytest.raises(TrainmasterError, match="progress"):
        watcher(spec)


def test_nothing_to_follow() -> None:
    assert not watcher(None).active
