"""A rehearsal's faults, done to real processes: once, said before, and free of cost without a plan."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from resiliency import contract, faults, journal
from resiliency.faultkinds import ENDS, KINDS, OUTSIDE, RANK

ROOT = Path(__file__).resolve().parents[2]

#: A training loop of ten steps that saves at each; prints what it did.
PROGRAM = """
import sys, time
from resiliency import faults
for step in range(1, 11):
    began = time.monotonic()
    faults.at_step(step)
    loss = faults.loss(1.0 / step)
    faults.at_point("checkpoint.write")
    print(step, loss, round(time.monotonic() - began, 2), flush=True)
"""


class Rehearsal:
    """A run directory with a plan, and ranks that meet it."""

    def __init__(self, root: Path) -> None:
        self.paths = contract.RunPaths(root)
        self.plan = root / "faults.json"
        self.environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            contract.ENV_FAULTS: str(self.plan),
            contract.ENV_RUN: "drill-1",
            contract.ENV_RUN_DIR: str(root),
            contract.ENV_STAGE: "train",
            contract.ENV_ATTEMPT: "local/7.0",
            contract.ENV_NODE: "local-0",
        }

    def write(self, *entries: dict[str, Any]) -> None:
        self.plan.write_text(json.dumps([{"id": f"f{n}", **entry} for n, entry in enumerate(entries, 1)]))

    def start(self, rank: int = 0, cycle: int = 0) -> subprocess.Popen[str]:
        env = {**self.environ, "RANK": str(rank), contract.ENV_CYCLE: str(cycle)}
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, rank: int = 0, cycle: int = 0) -> tuple[int, list[str], str]:
        """(exit code or minus the signal, the steps' lines, standard error)."""
        process = self.start(rank, cycle)
        out, err = process.communicate(timeout=60)
        return process.returncode, out.splitlines(), err

    def injected(self) -> list[Any]:
        return [e for e in journal.read_run(self.paths.journal)[0] if e.type == "fault.injected"]

    def checkpoint(self, step: int, last: str = "manifest.json") -> Path:
        path = self.paths.checkpoints("train") / f"iter_{step:07d}"
        path.mkdir(parents=True)
        (path / "weights").write_bytes(bytes(range(200)))
        (path / "small").write_bytes(b"x")
        (path / last).write_text("{}")
        return path


@pytest.fixture
def rehearsal(tmp_path: Path) -> Rehearsal:
    return Rehearsal(tmp_path)


ENDINGS = {
    "exception": (1, "InjectedFault: injected by a rehearsal at step 4"),
    "oom": (1, "MemoryError: injected by a rehearsal at step 4"),
    "full-disk": (1, "FakeFullDisk: [Errno 28]"),
    "sigkill": (-signal.SIGKILL, ""),
    "sigsegv": (-signal.SIGSEGV, ""),
}


@pytest.mark.parametrize("kind", ENDINGS)
def test_a_rank_ends_as_the_fault_says_once_and_it_is_said_before(rehearsal: Rehearsal, kind: str) -> None:
    rehearsal.write({"kind": kind, "step": 4, "rank": 1})
    assert rehearsal.run(rank=0)[0] == 0, "another rank was meant"
    code, steps, said = rehearsal.run(rank=1)
    assert code == ENDINGS[kind][0]
    assert ENDINGS[kind][1] in said
    assert [line.split()[0] for line in steps] == ["1", "2", "3"]
    (event,) = rehearsal.injected()
    assert (event.data["kind"], event.data["step"], event.data["id"]) == (kind, 4, "f1")
    assert (event.rank, event.node, event.attempt, event.stage) == (1, "local-0", "local/7.0", "train")
    fired = faults.marked(rehearsal.plan, "f1", faults.FIRED)
    assert fired is not None and fired["time"] <= event.ts
    code, steps, _ = rehearsal.run(rank=1, cycle=1)
    assert code == 0 and len(steps) == 10, "the restart meets it again"
    assert len(rehearsal.injected()) == 1


@pytest.mark.parametrize(("kind", "letter"), [("sigstop", "T"), ("hang", "R"), ("hang-outside", "S")])
def test_a_rank_stands_still_in_its_own_way(rehearsal: Rehearsal, kind: str, letter: str) -> None:
    rehearsal.write({"kind": kind, "step": 2})
    process = rehearsal.start()
    try:
        end = time.monotonic() + 20
        while not rehearsal.injected() or _state(process) != letter:
            assert process.poll() is None and time.monotonic() < end, _state(process)
            time.sleep(0.05)
        if kind == "hang-outside":
            process.terminate()
            assert process.wait(10) == -signal.SIGTERM
    finally:
        process.kill()
        process.communicate()


def _state(process: subprocess.Popen[str]) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_slow_rank_is_slow_for_its_window(rehearsal: Rehearsal) -> None:
    rehearsal.write({"kind": "slow", "step": 3, "steps": 2, "seconds": 0.2})
    code, steps, _ = rehearsal.run()
    took = [float(line.split()[2]) for line in steps]
    assert code == 0
    assert [step for step, seconds in enumerate(took, 1) if seconds >= 0.2] == [3, 4]


def test_a_loss_is_not_a_number_for_one_step(rehearsal: Rehearsal) -> None:
    rehearsal.write({"kind": "nan", "step": 5})
    losses = [line.split()[1] for line in rehearsal.run()[1]]
    assert losses.index("nan") == 4 and losses.count("nan") == 1


@pytest.mark.parametrize("last", ["manifest.json", ".metadata"])
@pytest.mark.parametrize("kind", ["torn-checkpoint", "bit-flip"])
def test_the_newest_committed_checkpoint_is_damaged_and_the_rank_dies(
    rehearsal: Rehearsal, kind: str, last: str
) -> None:
    rehearsal.write({"kind": kind, "step": 2})
    assert rehearsal.run()[0] == 0, "there was nothing to damage yet"
    assert not rehearsal.injected()
    old, new = rehearsal.checkpoint(9, last), rehearsal.checkpoint(10, last)
    half_saved = rehearsal.paths.checkpoints("train") / "iter_0000011"
    half_saved.mkdir()
    assert rehearsal.run()[0] == -signal.SIGKILL
    whole = (old / "weights").read_bytes()
    harmed = (new / "weights").read_bytes()
    if kind == "torn-checkpoint":
        assert harmed == whole[:100]
    else:
        changed = [a ^ b for a, b in zip(whole, harmed, strict=True) if a != b]
        assert changed == [1]
    assert (new / last).read_text() == "{}"


def test_a_point_can_be_named_and_a_step_with_it(rehearsal: Rehearsal) -> None:
    rehearsal.write({"kind": "exception", "point": "checkpoint.write", "step": 6})
    code, steps, _ = rehearsal.run()
    assert code == 1 and len(steps) == 5


def test_of_all_ranks_one_does_it(rehearsal: Rehearsal) -> None:
    rehearsal.write({"kind": "exception", "step": 2})
    ranks = [rehearsal.start(rank) for rank in range(4)]
    for process in ranks:
        process.communicate(timeout=60)
    assert sorted(process.returncode for process in ranks) == [0, 0, 0, 1]


def test_a_node_can_be_named(rehearsal: Rehearsal) -> None:
    rehearsal.write({"kind": "exception", "step": 2, "node": "local-1"})
    assert rehearsal.run()[0] == 0
    rehearsal.environ[contract.ENV_NODE] = "local-1"
    assert rehearsal.run()[0] == 1


def test_a_fault_that_comes_back_needs_no_marker_to_be_gone(rehearsal: Rehearsal) -> None:
    rehearsal.write({"kind": "exception", "step": 3, "once": False})
    assert [rehearsal.run(cycle=cycle)[0] for cycle in range(3)] == [1, 1, 1]
    assert [event.cycle for event in rehearsal.injected()] == [0, 1, 2]


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS.values() if kind.by == OUTSIDE], ids=lambda k: k.name
)
def test_what_others_have_to_do_is_only_marked_as_reached(rehearsal: Rehearsal, kind: Any) -> None:
    rehearsal.write({"kind": kind.name, "step": 3})
    assert rehearsal.run()[0] == 0
    reached = faults.marked(rehearsal.plan, "f1", faults.REACHED)
    assert reached is not None and reached["step"] == 3
    assert faults.marked(rehearsal.plan, "f1", faults.FIRED) is None and not rehearsal.injected()


def test_without_a_plan_nothing_happens_and_the_answer_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_active", faults._unread)
    monkeypatch.delenv(contract.ENV_FAULTS, raising=False)
    faults.at_step(1)
    assert faults._active is None
    monkeypatch.setenv(contract.ENV_FAULTS, "/nowhere")
    faults.at_step(2)
    faults.at_point("checkpoint.write")
    assert faults.loss(2.5) == 2.5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "cannot be used"),
        ("{}", "not a list"),
        ('[{"id": "a", "kind": "gremlin"}]', "no kind 'gremlin' (there are: exception"),
        ('[{"id": "a", "kind": "hang"}, {"id": "a", "kind": "hang"}]', "'a' is not a name of its own"),
        ('[{"kind": "hang"}]', "fault 1"),
    ],
)
def test_a_plan_that_cannot_be_used_is_said(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "faults.json"
    path.write_text(text)
    with pytest.raises(faults.BadPlan) as caught:
        faults.read_plan(path)
    assert says in caught.value.message and str(path) in caught.value.message


def test_every_kind_of_a_rank_has_its_harm() -> None:
    mine = {kind.name for kind in KINDS.values() if kind.by == RANK}
    assert mine == faults._HARM.keys() | faults._DAMAGE.keys() | {"slow", "nan"}
    assert all(kind.categories for kind in KINDS.values() if kind.expect == ENDS)
