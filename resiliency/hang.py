"""When ranks that pass no section any more are taken to hang, and which of them holds the others up.

Pure: values in, values out; no clock, no file. How long a section may take is learned from the slowest honest
pass that any rank made of it, so no pass that was ever seen to end well is called a hang. The rank that is
named is the one the others wait *for*, not the one whose time was over first: on a hang all of them are late.
``tests/resiliency/test_hang.py``; share of right answers: ``scripts/bench/bench_hang.py``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any, Final

from .steprecord import Snapshot

_DONE: Final = "done"
_AHEAD: Final = 2  # steps that ranks in step with each other are never apart


@dataclass(frozen=True)
class Settings:
    """``floor``: least limit; ``factor``: times the slowest honest pass; ``first``: without history."""

    detect: bool = True
    floor: float = 60.0
    factor: float = 5.0
    first: float = 900.0

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Settings:
        """Of ``recovery.hang`` in stage.json; what is missing or null has its default."""
        given = {name: data.get(name) for name in ("detect", "floor", "factor", "first")}
        return cls(
            detect=cls.detect if given["detect"] is None else bool(given["detect"]),
            floor=cls.floor if given["floor"] is None else float(given["floor"]),
            factor=cls.factor if given["factor"] is None else float(given["factor"]),
            first=cls.first if given["first"] is None else float(given["first"]),
        )


@dataclass(frozen=True)
class RankView:
    """One rank as the judge sees it. ``age_s``: since its last beat; of them ``stale_s`` since the report.

    ``state``: letter of /proc (R, S, D, T, Z …), "" when there is no such process, "?" unknown. ``slowest``:
    slowest honest pass of each section in this process.
    """

    rank: int
    node: str
    section: str
    step: int | None
    beats: int
    age_s: float
    in_collective: bool = False
    pid: int = 0
    state: str = "?"
    slowest: Mapping[str, float] = field(default_factory=dict)
    collectives: int = 0
    stale_s: float = 0.0


@dataclass
class History:
    """The slowest honest pass of each section by any rank, over all cycles of an attempt."""

    slowest: dict[str, float] = field(default_factory=dict)

    def learn(self, views: Iterable[RankView]) -> None:
        known = self.slowest
        for one in views:
            for section, seconds in one.slowest.items():
                if seconds > known.get(section, -1.0):
                    known[section] = seconds


@dataclass(frozen=True)
class Stall:
    """No progress of ``ranks`` for ``age_s``; ``everyone`` False: the others go on without them.

    ``late_s``: since the last of their limits ran out, ``limit_s`` is that one.
    """

    section: str
    age_s: float
    limit_s: float
    late_s: float
    ranks: tuple[int, ...]
    everyone: bool = True


@dataclass(frozen=True)
class Culprit:
    rank: int
    node: str
    why: str
    confidence: float


def view(snapshot: Snapshot, node: str, now: float, state: str = "?") -> RankView:
    """A record as of ``now``, CLOCK_MONOTONIC of the same node."""
    return RankView(
        rank=snapshot.rank,
        node=node,
        section=snapshot.section,
        step=snapshot.step,
        beats=snapshot.beats,
        age_s=max(0.0, now - snapshot.beat),
        in_collective=snapshot.in_collective,
        pid=snapshot.pid,
        state=state,
        slowest=snapshot.slowest,
        collectives=snapshot.collectives,
    )


# -- whether -----------------------------------------------------------------------------------


def limit(section: str, history: History, settings: Settings, *, passed: bool = True) -> float:
    """Seconds that a section may take. ``passed``: the rank has an honest pass of it behind it.

    One that has not compiles, connects or opens files anew: what others took before is no measure.
    """
    slowest = history.slowest.get(section)
    learned = max(settings.floor, settings.factor * (slowest or 0.0))
    if slowest is None or not passed:
        return max(settings.first, learned)
    return learned


def stalled(views: Sequence[RankView], history: History, settings: Settings) -> Stall | None:
    """Whether the stage stands still, or goes on without some of its ranks.

    A rank that has not used up its limit keeps all others from being called stalled: they may wait for it.
    """
    alive = [one for one in views if one.state not in _GONE]
    working = [one for one in alive if one.section != _DONE] or alive
    if not settings.detect or not working:
        return None
    limits = {
        one.rank: limit(one.section, history, settings, passed=one.section in one.slowest) for one in working
    }
    late = [one for one in working if one.age_s > limits[one.rank]]
    if len(late) == len(working):
        return _stall(late, limits, everyone=True)
    going = [one.step for one in working if one.age_s <= limits[one.rank] and one.step is not None]
    if not late or not going:
        return None
    ahead = median_low(going) - _AHEAD
    # Late by its own report: what was not heard since is no evidence against one rank.
    left = [
        o for o in late if o.age_s - o.stale_s > limits[o.rank] and o.step is not None and o.step <= ahead
    ]
    return _stall(left, limits, everyone=False) if left else None


def _stall(late: Sequence[RankView], limits: Mapping[int, float], *, everyone: bool) -> Stall:
    last = min(late, key=lambda one: one.age_s - limits[one.rank])
    return Stall(
        section=Counter(one.section for one in late).most_common(1)[0][0],
        age_s=min(one.age_s for one in late),
        limit_s=limits[last.rank],
        late_s=last.age_s - limits[last.rank],
        ranks=tuple(sorted(one.rank for one in late)),
        everyone=everyone,
    )


# -- who ---------------------------------------------------------------------------------------

_GONE: Final = frozenset({"", "Z", "X", "x"})
_STOPPED: Final = frozenset({"T", "t"})
_WEAK: Final = 0.6


def culprits(
    views: Sequence[RankView],
    expected: Mapping[int, str] | None = None,
    frames: Mapping[int, str] | None = None,
) -> list[Culprit]:
    """Who holds the others up, the most likely first; empty when nobody stands out.

    ``expected``: rank → node of all ranks; one that has no record never got as far as the others. ``frames``:
    rank → innermost frame of its stack, once they are gathered; they speak where records are weak.
    """
    certain = [
        *(Culprit(o.rank, o.node, "is dead", 0.99) for o in views if o.state in _GONE),
        *(
            Culprit(o.rank, o.node, f"is stopped (state {o.state})", 0.97)
            for o in views
            if o.state in _STOPPED
        ),
    ]
    if certain:
        return certain
    absent = sorted(set(expected or ()) - {one.rank for one in views})
    if absent and expected:
        share = 0.9 / len(absent)
        return [Culprit(rank, expected[rank], "never began to report", share) for rank in absent]
    if not views:
        return []
    if len(views) == 1:
        return [Culprit(views[0].rank, views[0].node, "is the only rank", 0.9)]
    found, why, confidence = _suspects(views)
    if 2 * len(found) > len(views):
        found, confidence = [], 0.0
    if frames and confidence <= _WEAK and (free := _outside(views, frames)):
        found, confidence = free, 0.8
        why = lambda one: f"is in {frames.get(one.rank)}, outside the collective others wait in"  # noqa: E731
    elif frames and confidence <= _WEAK:
        odd, common = _odd(views, lambda one: frames.get(one.rank, ""))
        if odd and common:
            found, confidence = odd, 0.7
            why = lambda one: f"is in {frames.get(one.rank) or '?'}, the others in {common}"  # noqa: E731
    found = sorted(found, key=lambda one: (one.collectives, -one.age_s, one.rank))
    return [Culprit(one.rank, one.node, why(one), confidence / len(found)) for one in found]


#: Frames in which a rank waits for others: torch's collectives and what calls them, Megatron's, and the
#: backward pass, in which DistributedDataParallel reduces gradients out of Python's sight.
_WAITS: Final = re.compile(
    r"torch/distributed/|torch/nn/parallel/distributed\.py|megatron/core/(?:pipeline_parallel|distributed)/"
    r"|_engine_run_backward|\b(?:all_reduce|all_gather|reduce_scatter|all_to_all|broadcast|barrier)\b"
)


def _outside(views: Sequence[RankView], frames: Mapping[int, str]) -> list[RankView]:
    """Ranks whose stack shows them at something else while the stacks of others show a collective."""
    seen = [(one, frames[one.rank]) for one in views if frames.get(one.rank)]
    free = [one for one, frame in seen if not _WAITS.search(frame)]
    return free if len(free) < len(seen) and 2 * len(free) <= len(views) else []


def _suspects(views: Sequence[RankView]) -> tuple[list[RankView], Any, float]:
    """(suspects, why, confidence). Each rule narrows the one before it.

    No rank can wait for one that is further in the same program, so who holds the others up is among those
    that are furthest behind; a waiting rank is in a collective; and of those, in the earliest.
    """
    quit_ = [one for one in views if one.section == _DONE]
    if quit_ and len(quit_) < len(views):
        return quit_, lambda one: "has ended its work while the others go on", 0.85
    top = max((_step(one) for one in views), default=-1)
    low = min((_step(one) for one in views), default=-1)
    last = [one for one in views if _step(one) == low]
    waiting = any(one.in_collective for one in views)
    outside = [one for one in last if not one.in_collective]
    if low < top:
        found = outside if waiting and outside else _fewest(last)
        if 2 * len(found) > len(views):  # most wait at one step: then who is not among them?
            ahead = [one for one in views if _step(one) > low]
            return ahead, lambda one: f"is at {_at(one)}, past the collective the others are in", 0.6
        return found, lambda one: f"is at {_at(one)}, others are at step {top}", 0.95
    if outside and waiting:
        return outside, lambda one: f"is in {_place(one)}, outside the collective the others are in", 0.9
    if waiting:
        found, why, confidence = _odd_collective(views)
    else:
        found, why, confidence = _odd_section(views)
    return (found, why, confidence) if found else _odd_state(views)


def _step(one: RankView) -> int:
    return -1 if one.step is None else one.step


def _at(one: RankView) -> str:
    return "no step yet" if one.step is None else f"step {one.step}"


def _place(one: RankView) -> str:
    return f"{one.section} for {one.age_s:.1f} s"


def _fewest(views: Sequence[RankView]) -> list[RankView]:
    fewest = min(one.collectives for one in views)
    return [one for one in views if one.collectives == fewest]


def _odd(views: Sequence[RankView], key: Any) -> tuple[list[RankView], Any]:
    """Those that differ from what more than half agree on, and what that is; none when nothing is."""
    common, count = Counter(key(one) for one in views).most_common(1)[0]
    if 2 * count <= len(views):
        return [], None
    return [one for one in views if key(one) != common], common


def _odd_collective(views: Sequence[RankView]) -> tuple[list[RankView], Any, float]:
    """All wait: who is in an earlier collective, else who went past the one that the others are in."""
    odd, common = _odd(views, lambda one: one.collectives)
    earlier = [one for one in odd if one.collectives < common]
    if earlier:
        return _fewest(earlier), lambda one: "is in an earlier collective than the others", 0.8
    return odd, lambda one: "went past the collective that the others are in", 0.6


def _odd_section(views: Sequence[RankView]) -> tuple[list[RankView], Any, float]:
    """Nobody marks collectives: who is elsewhere in the program, else who passed fewer sections."""
    odd, common = _odd(views, lambda one: one.section)
    if odd:
        return odd, lambda one: f"is in {_place(one)}, the others in {common}", 0.6
    odd, common = _odd(views, lambda one: one.beats)
    behind = [one for one in odd if one.beats < common]
    return behind, lambda one: f"has passed {one.beats} sections, the others {common}", 0.5


def _odd_state(views: Sequence[RankView]) -> tuple[list[RankView], Any, float]:
    """All at one place: a single process in another state is a hint, no more."""
    odd, common = _odd(views, lambda one: one.state)
    if len(odd) != 1 or len(views) < 3 or odd[0].state == "?" or common == "?":
        return [], None, 0.0
    if odd[0].state == "D":
        return odd, lambda one: "waits for a file system or device (state D), the others do not", 0.6
    words = f"is in state {odd[0].state}, the others in {common}"
    return odd, lambda one: words, 0.4
