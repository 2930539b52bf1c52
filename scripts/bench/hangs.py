"""Seeded hangs of a simulated training: what every rank's record says when all have come to a stand.

Ranks in tensor pairs, data-parallel groups and the world, with jitter, checkpoints written by rank 0 and
evaluations in between. One rank fails in one of several ways; the others run on until they wait for it.
Used by ``bench_hang.py`` and ``tests/resiliency/test_hang.py``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from resiliency.hang import RankView

RANKS = 8
#: How a rank fails, and how often that is drawn. "inside" (its network fails in a collective) and
#: "skips" (it leaves one out and waits in the next) can seldom be told from records: all wait alike.
KINDS = {
    "compute": 26, "stopped": 22, "data": 14, "checkpoint": 10, "eval": 8,
    "dead": 8, "left": 8, "skips": 2, "inside": 2,
}  # fmt: skip
_PAIRS = [{0, 1}, {2, 3}, {4, 5}, {6, 7}]
_DATA_PARALLEL = [{0, 2, 4, 6}, {1, 3, 5, 7}]
_WORLD = [set(range(RANKS))]


@dataclass
class _Rank:
    time: float = 0.0
    section: str = "step"
    step: int = 0
    beats: int = 1
    beat: float = 0.0
    entered: float = 0.0
    in_collective: bool = False
    collectives: int = 0
    state: str = "S"
    frozen: bool = False
    slowest: dict[str, float] = field(default_factory=dict)

    def enter(self, section: str) -> None:
        took = self.time - self.entered
        self.slowest[self.section] = max(took, self.slowest.get(self.section, 0.0))
        self.section, self.entered, self.beat = section, self.time, self.time
        self.beats += 1


@dataclass(frozen=True)
class Case:
    kind: str
    culprit: int
    views: list[RankView]


def _program(step: int) -> list[tuple[str, object]]:
    """One step: (what, argument)."""
    ops: list[tuple[str, object]] = [("enter", "data"), ("work", 0.02), ("enter", "step")]
    for groups in (_PAIRS, _PAIRS, _DATA_PARALLEL, _WORLD):
        ops += [("work", 0.05), ("collective", groups)]
    ops.append(("step", None))
    if step % 5 == 0:
        ops += [
            ("enter", "checkpoint"),
            ("first", 1.0),
            ("work", 0.01),
            ("collective", _WORLD),
            ("enter", "step"),
        ]
    if step % 4 == 0:
        for _ in range(3):
            ops += [("enter", "eval"), ("work", 0.1)]
        ops += [("collective", _WORLD), ("enter", "step")]
    return ops


def _fits(kind: str, op: str, section: str) -> bool:
    """Whether a rank can fail like that in this operation."""
    if kind in ("data", "checkpoint", "eval"):
        return op in ("work", "first") and section == kind
    if kind in ("inside", "skips"):
        return op == "collective"
    if kind == "compute":
        return op == "work" and section == "step"
    if kind == "left":
        return op == "step"
    return op in ("work", "collective")


def simulate(seed: int, *, marked: bool = True, kind: str | None = None) -> Case:
    """The case of a seed. ``marked``: the program marks its collectives."""
    rng = random.Random(seed)
    kind = kind or rng.choices(list(KINDS), list(KINDS.values()))[0]
    at_step = rng.randrange(10, 16)
    culprit = 0 if kind == "checkpoint" and rng.random() < 0.7 else rng.randrange(RANKS)
    waits = rng.choice("SR")  # gloo sleeps in a collective, NCCL spins
    ranks = [_Rank(slowest={}) for _ in range(RANKS)]
    sections: list[str] = []
    section = "step"
    for step in range(at_step, at_step + 20):
        for op, argument in _program(step):
            section = str(argument) if op == "enter" else section
            if _fits(kind, op, section):
                sections.append(f"{op}/{section}")
    target, seen = rng.randrange(min(6, len(sections))), 0
    skipping = False
    step = 0
    while not all(rank.frozen for rank in ranks) and step < at_step + 40:
        step += 1
        for op, argument in _program(step):
            here = ranks[culprit]
            if step >= at_step and not here.frozen and not skipping and _fits(kind, op, here.section):
                if seen == target:
                    if kind == "skips":
                        skipping = True
                        _advance(ranks, op, argument, rng, waits, marked, without=culprit)
                        continue
                    here.frozen = True
                    here.state = {"stopped": "T", "dead": "Z"}.get(
                        kind, waits if kind == "inside" else rng.choice("RSSD")
                    )
                    if op == "collective" and (kind == "inside" or rng.random() < 0.5):
                        here.in_collective, here.collectives = marked, here.collectives + marked
                    if kind == "left":
                        here.step += 1
                        here.enter("done")
                seen += 1
            _advance(ranks, op, argument, rng, waits, marked)
    now = max(rank.time for rank in ranks) + 60 + rng.random()
    views = [
        RankView(
            n, f"n{n // 4}", r.section, r.step, r.beats, now - r.beat, r.in_collective, 100 + n, r.state,
            dict(r.slowest), r.collectives,
        )
        for n, r in enumerate(ranks)
    ]  # fmt: skip
    return Case(kind, culprit, views)


def _advance(
    ranks: list[_Rank],
    op: str,
    argument: object,
    rng: random.Random,
    waits: str,
    marked: bool,
    without: int = -1,
) -> None:
    """Every rank that can does this operation; one that must wait for a frozen one freezes in it."""
    going = [(n, rank) for n, rank in enumerate(ranks) if not rank.frozen]
    if op == "collective":
        for group in argument:  # type: ignore[attr-defined]
            blocked = without in group or any(ranks[n].frozen for n in group)
            until = max(ranks[n].time for n in group)
            for n, rank in going:
                if n not in group or n == without:
                    continue
                rank.collectives += marked
                if blocked:
                    rank.frozen, rank.in_collective, rank.state = True, marked, waits
                else:
                    rank.time = until + 0.001
        return
    for n, rank in going:
        if op == "work" or (op == "first" and n == 0):
            rank.time += float(argument) * rng.lognormvariate(0, 0.3)  # type: ignore[arg-type]
        elif op == "enter":
            rank.enter(str(argument))
        elif op == "step":
            rank.step += 1
            rank.enter("step")
