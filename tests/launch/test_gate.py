"""One row per outcome of the gate."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from launch import gate
from launch.gate import decide_gate, faults_of
from resiliency import artifact
from resiliency.events import Event
from resiliency.state import RunState, fold


def state(*items: tuple[str, str | None, dict[str, object]]) -> RunState:
    stages = [
        {"name": "data", "kind": "text", "needs": []},
        {"name": "work", "kind": "pretrain", "needs": ["data"]},
    ]
    facts = [("run.created", None, {"stages": stages}), *items]
    now = time.time()
    return fold(
        Event(type=t, run="r", writer="w", seq=n, ts=now + n, mono=n, stage=s, data=d)
        for n, (t, s, d) in enumerate(facts, 1)
    )


STOP = {"epoch": 0, "category": "numeric", "rule": "x", "reason": "loss is nan"}


@pytest.mark.parametrize(
    ("facts", "faults", "complete", "verdict", "word"),
    [
        ([], [], False, "go", ""),
        ([], [], True, "complete", ""),
        ([("stage.completed", "work", {"epoch": 0})], ["gone"], False, "complete", ""),
        ([], ["no manifest"], False, "wait", "data: no manifest"),
        ([("stage.stopped", "work", STOP)], [], False, "stopped", "loss is nan"),
        ([("stage.held", "work", STOP)], [], False, "stopped", "held"),
        ([("stage.stopped", "data", STOP)], ["no manifest"], False, "stopped", "stage data"),
        ([("run.cancelled", None, {"stages": {"work": 0}})], [], False, "stopped", "cancelled"),
        # a stop of an earlier epoch does not count after a resume
        ([("stage.stopped", "work", STOP), ("run.resumed", None, {"stages": {"work": 1}})],
         [], False, "go", ""),
        # complete wins over stopped: another job may have finished the work meanwhile
        ([("stage.stopped", "work", STOP)], [], True, "complete", ""),
    ],
)  # fmt: skip
def test_verdict(facts, faults, complete, verdict, word) -> None:  # type: ignore[no-untyped-def]
    found = decide_gate(state(*facts), "work", {"data": faults}, complete=complete)
    assert found.verdict == verdict
    assert word in found.detail


def test_a_damaged_artifact_of_a_completed_stage_is_not_waited_for() -> None:
    done = state(("stage.completed", "data", {"epoch": 0}))
    found = decide_gate(done, "work", {"data": ["a.bin: 3 bytes instead of 4"]}, complete=False)
    assert (found.verdict, found.damaged) == ("stopped", ("data",))


def test_small_artifacts_are_read_and_large_ones_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.bin").write_bytes(b"good")
    artifact.seal(tmp_path, "dataset")
    assert faults_of(tmp_path, "dataset") == []
    assert faults_of(tmp_path, "model") == ["is a dataset, not a model"]
    (tmp_path / "a.bin").write_bytes(b"evil")
    assert "checksum" in faults_of(tmp_path, "dataset")[0]
    monkeypatch.setattr(gate, "DEEP_BYTES", 3)
    assert faults_of(tmp_path, "dataset") == []
    (tmp_path / "a.bin").write_bytes(b"short"[:3])
    assert "3 bytes instead of 4" in faults_of(tmp_path, "dataset")[0]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"v": 1, "kind": "x", "meta": {}, "files": {"a": 3}}'])
def test_a_broken_manifest_is_a_fault_not_a_crash(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    assert faults_of(tmp_path, None)
