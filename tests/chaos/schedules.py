"""Random bad days: which faults meet a short run, and how it is set up. All of it follows from the seed."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resiliency.faultkinds import ENDS, KINDS

ROOT = Path(__file__).resolve().parents[2]
REDUCER = ROOT / "tests" / "workloads" / "reducer.py"
STEPS, EVERY, STEP_S = 40, 8, 0.05
#: Between two faults, so that the second meets a run that goes on again.
APART = 7

#: kind → how often, on the local scheduler.
LOCAL = {
    "exception": 3, "sigkill": 4, "sigsegv": 1, "sigstop": 2, "hang": 1, "hang-outside": 2, "slow": 1,
    "torn-checkpoint": 2, "bit-flip": 2, "node-crash": 3, "agent-kill": 2, "preempt": 2, "time-limit": 2,
    "supervisor-freeze": 1, "xid": 1,
}  # fmt: skip
#: On a real Slurm: what is about jobs, nodes and daemons.
SLURM = {
    "sigkill": 1, "sigstop": 1, "node-crash": 3, "preempt": 2, "time-limit": 2, "agent-kill": 1,
    "controller-freeze": 1, "node-drain": 1, "prolog-failure": 1, "supervisor-freeze": 1,
}  # fmt: skip
#: Kinds after which a run ends for a reason: at most one, and last.
FATAL = ("oom", "nan", "full-disk")


@dataclass(frozen=True)
class Schedule:
    """``faults``: as typed after --fault. ``fatal``: the one that the run should end for, if any."""

    seed: int
    nodes: int
    spares: int
    ranks: int
    restarts: int
    min_nodes: int | None
    faults: tuple[str, ...]
    fatal: str = ""

    @property
    def text(self) -> str:
        layout = f"{self.nodes}+{self.spares} nodes of {self.ranks}, {self.restarts} restarts"
        return f"seed {self.seed}: {layout}, at least {self.min_nodes} nodes: {' '.join(self.faults)}"

    @property
    def shrinks(self) -> bool:
        return self.min_nodes is not None

    def experiment(self, time_limit: str = "00:05:00") -> dict[str, Any]:
        command = [sys.executable, str(REDUCER), "--steps", str(STEPS), "--every", str(EVERY)]
        return {
            "name": f"chaos-{self.seed}",
            "stages": {
                "train": {
                    "kind": "command",
                    "run": [*command, "--step-s", str(STEP_S), "--stage-dir", "{stage_dir}"],
                    "env": {"PYTHONPATH": str(ROOT)},
                    "resources": {
                        "nodes": self.nodes,
                        "spare_nodes": self.spares,
                        "ranks_per_node": self.ranks,
                        "time": time_limit,
                        "mem": "200M",
                    },
                    "chain": {"startup": "5s", "save_time": "2s", "signal_lead": "10s", "max_links": 12},
                    "recovery": {
                        "restarts_in_job": self.restarts,
                        "min_nodes": self.min_nodes,
                        # Every fault is another one; what is rehearsed is not how soon one gives up.
                        "unexplained": 8,
                        "hang": {"floor": 2, "factor": 3, "first": 30},
                    },
                }
            },
        }


def make(seed: int, weights: dict[str, int] | None = None) -> Schedule:
    dice = random.Random(seed)
    kinds = LOCAL if weights is None else weights
    nodes = dice.choice([1, 2, 2, 2, 3])
    ranks = 2 if nodes == 1 else dice.choice([1, 1, 2])
    count = dice.choice([1, 1, 2, 2, 3])
    steps = sorted(dice.sample(range(3, STEPS - 4, APART), count))
    chosen = dice.choices(list(kinds), weights=list(kinds.values()), k=count)
    fatal = dice.choice(FATAL) if weights is None and dice.random() < 0.15 else ""
    if fatal:
        chosen[-1] = fatal
    world = nodes * ranks
    faults = tuple(_text(kind, step, world, dice) for kind, step in zip(chosen, steps, strict=True))
    return Schedule(
        seed,
        nodes,
        dice.choice([0, 0, 1]) if nodes > 1 else 0,
        ranks,
        dice.choice([0, 2, 5, 5]),
        dice.choice([None, None, None, 1]) if nodes > 1 else None,
        faults,
        fatal,
    )


def _text(kind: str, step: int, world: int, dice: random.Random) -> str:
    row = KINDS[kind]
    if kind == "oom":
        return f"{kind}@{step}:0"  # of a plain command, only rank 0 has a journal to tell its cause in
    if row.expect == ENDS:
        return f"{kind}@{step}"
    seconds = "+3" if row.seconds > 1 else ""
    if row.by == "rank":
        return f"{kind}@{step}:{dice.randrange(world)}{seconds}"
    return f"{kind}@{step}{seconds}"
