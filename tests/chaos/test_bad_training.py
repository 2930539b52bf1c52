"""Random faults in a real pre-training on the local scheduler: the losses are an undisturbed run's."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from tests.person import Person

from . import invariants

COUNT = max(1, int(os.environ.get("TRAINMASTER_CHAOS", "20")) // 20)
FIRST = int(os.environ.get("TRAINMASTER_CHAOS_SEED", "1"))
STEPS = 40
KINDS = ("sigkill", "exception", "hang-outside", "torn-checkpoint", "bit-flip", "sigstop", "node-crash")

EXPERIMENT = {
    "name": "chaos-training",
    "defaults": {"resources": {"time": "00:15:00"}, "chain": {"startup": "20s", "save_time": "5s"}},
    "stages": {
        "data": {"kind": "text", "inputs": ["text"], "vocab_size": 300},
        "pretrain": {
            "kind": "pretrain",
            "needs": "data",
            "resources": {"nodes": 2, "spare_nodes": 1},
            "model": {"preset": "tiny"},
            "train": {
                "steps": STEPS,
                "global_batch_size": 4,
                "micro_batch_size": 2,
                "seq_length": 32,
                "precision": "fp32",
            },
            "checkpoint": {"interval": 8, "local_interval": 3},
            "recovery": {"unexplained": 8, "hang": {"floor": 4, "factor": 4, "first": 90}},
        },
    },
}


def texts(folder: Path) -> None:
    folder.mkdir()
    for number in range(24):
        dice = random.Random(number)
        words = ("north", "south", "east", "west", "up", "down")
        lines = [" ".join(dice.choices(words, k=12)) for _ in range(60)]
        (folder / f"{number}.txt").write_text("\n".join(lines))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_training_comes_through_a_bad_day(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    faults = [f"{dice.choice(KINDS)}@{step + dice.randrange(5)}:{dice.randrange(2)}" for step in (10, 24)]
    here = f"training{seed}"
    person = Person(tmp_path, dict(os.environ), here, **{here: {"scheduler": "local"}})
    texts(tmp_path / "text")
    wanted = [word for fault in faults for word in ("--fault", fault)]
    done = person.run(
        "drill", str(person.write(EXPERIMENT)), "--cluster", here, "--json", "--baseline",
        "--timeout", "250", *wanted, check=False, timeout_s=560,
    )  # fmt: skip
    assert done.stdout, f"{faults}\n{done.stderr}"
    outcome = json.loads(done.stdout)
    run_dir = person.home / "runs" / outcome["run"]
    events = invariants.events_of(run_dir, "pretrain")
    complaints = [
        *invariants.ended_for_a_reason(outcome, "", events),
        *invariants.cycles_tile(events),
        *invariants.every_fault_was_met(outcome, shrinks=False),
        *invariants.nothing_is_left(outcome["run"], run_dir, events, crashed=False),
    ]
    if outcome["differing"] or not outcome["baseline_run"] or outcome["last_step"] != STEPS:
        complaints.append(f"losses differ at {outcome['differing']}, last step {outcome['last_step']}")
    if done.returncode:
        complaints.append(f"drill: exit code {done.returncode}")
    assert not complaints, "\n".join(
        [str(faults), *complaints, invariants.story(outcome, events), done.stderr[-3000:]]
    )
