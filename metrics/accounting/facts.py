"""What the accounting knows of an attempt: times in integer milliseconds, read from fold and events.

Nothing is judged here, and whatever a journal holds, a fact is a sound number or None.
``tests/metrics/accounting/test_tiling.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from resiliency import exitcodes
from resiliency.attempt import Attempt, Cycle
from resiliency.events import Event
from resiliency.folding import step_of

from .words import Word, ms, word_of

#: Phases of ``workload.timing`` in the order they are gone through → kind.
PHASES: Final = (
    ("python", "imports"),
    ("imports", "imports"),
    ("groups", "init"),
    ("model", "init"),
    ("data", "init"),
    ("load", "load"),
    ("first_step", "warmup"),
)
_CLEAN: Final = frozenset({exitcodes.COMPLETE, exitcodes.PROGRESS_MADE})


@dataclass(frozen=True)
class Stall:
    """Steps waited ``ms`` once ``step`` was done: for a save (``saved``) or a copy in memory."""

    at: int
    step: int
    ms: int
    saved: bool


@dataclass(frozen=True)
class CycleFacts:
    """One cycle. ``run``: when its first role started. ``phases``: (kind, ms) of its start, in order.

    ``reached``: the highest step known of it. ``saved``: the highest step it saved that was not set aside.
    ``clean``: its ranks ended as they should. ``nodes`` empty: not told which took part.
    """

    number: int
    started: int | None = None
    run: int | None = None
    resumed_at: int | None = None
    resumed: int | None = None
    timing_at: int | None = None
    timing_step: int | None = None
    phases: tuple[tuple[str, int], ...] = ()
    onset: int | None = None
    detected: int | None = None
    decided: int | None = None
    waits: bool = False
    ended: int | None = None
    continued: bool = False
    clean: bool = False
    slow: bool = False
    reached: int | None = None
    saved: int | None = None
    last: Word | None = None
    stalls: tuple[Stall, ...] = ()
    nodes: frozenset[str] = frozenset()
    spares: frozenset[str] = frozenset()


@dataclass(frozen=True)
class AttemptFacts:
    """One attempt. ``ended`` None: it goes on. ``heard``: its supervisor spoke, ``finished``: its last word.

    ``decided``: on the attempt as a whole. ``lost``: node → when it was lost. ``foreign``: somebody else
    launched it, and what is known of it was imported.
    """

    stage: str
    id: str
    submitted: int | None = None
    started: int | None = None
    ended: int | None = None
    heard: bool = False
    finished: int | None = None
    drained: int | None = None
    decided: int | None = None
    preflight: tuple[int, int] | None = None
    cycles: tuple[CycleFacts, ...] = ()
    nodes: tuple[str, ...] = ()
    lost: Mapping[str, int] = field(default_factory=dict)
    foreign: bool = False


def set_aside(events: Iterable[Event]) -> frozenset[tuple[str, int]]:
    """Keys of ``checkpoint.committed`` events whose checkpoint was set aside later (events in order)."""
    found: set[tuple[str, int]] = set()
    by_path: dict[tuple[str | None, Any], list[Event]] = {}
    for event in events:
        key = (event.stage, str(event.data.get("path")))
        if event.type == "checkpoint.committed":
            by_path.setdefault(key, []).append(event)
        elif event.type == "checkpoint.quarantined" and by_path.get(key):
            found.add(by_path[key][-1].key)  # of those written there, the newest
    return frozenset(found)


def attempt_facts(
    attempt: Attempt, told: Sequence[Event], nodes: Sequence[str], aside: frozenset[tuple[str, int]]
) -> AttemptFacts:
    """The facts of an attempt from its fold, its events in order and its nodes."""
    record = attempt.record
    submitted, started, ended = (
        (ms(record.submitted_at), ms(record.started_at), ms(record.ended_at)) if record else (None,) * 3
    )
    started = ms(attempt.started_ts) if started is None else started
    if not attempt.ended:
        ended = None
    else:
        times = [at for event in told if (at := ms(event.ts)) is not None]
        ended = ms(attempt.finished_ts) if ended is None else ended
        ended = max(times, default=None) if ended is None else ended
        ended = submitted if ended is None else ended
    by_cycle: dict[int, list[Event]] = {number: [] for number in attempt.cycles}
    for event in told:
        if event.cycle is not None or event.type in ("progress", "checkpoint.committed"):
            by_cycle.setdefault(event.cycle or 0, []).append(event)
    drains = [at for e in told if e.type == "drain.requested" and (at := ms(e.ts)) is not None]
    cycles = tuple(
        cycle_facts(attempt.cycles.get(number, Cycle(number)), events, aside)
        for number, events in sorted(by_cycle.items())
    )
    lost: dict[str, int] = {}
    for event in told:
        if event.type == "node.lost" and (at := ms(event.ts)) is not None:
            lost.setdefault(str(event.data.get("node")), at)
    whole = [at for e in told if e.type == "decision" and e.cycle is None and (at := ms(e.ts)) is not None]
    return AttemptFacts(
        attempt.stage,
        attempt.id,
        submitted,
        started,
        ended,
        heard=attempt.started is not None or bool(cycles),
        finished=ms(attempt.finished_ts),
        drained=min(drains, default=None),
        decided=max(whole, default=None),
        preflight=_preflight(told),
        cycles=cycles,
        nodes=tuple(sorted({*nodes, *lost, *(n for c in cycles for n in (*c.nodes, *c.spares))})),
        lost=lost,
        foreign=bool((attempt.started or {}).get("imported")),
    )


def _preflight(told: Sequence[Event]) -> tuple[int, int] | None:
    """Begin and end of the checks before the first cycle, where the word says how long they took."""
    for event in told:
        if event.type == "preflight" and (event.cycle or 0) == 0:
            at, took = ms(event.ts), ms(event.data.get("seconds"))
            if at is not None and took is not None and took > 0:
                return at - took, at
    return None


def cycle_facts(cycle: Cycle, told: Sequence[Event], aside: frozenset[tuple[str, int]]) -> CycleFacts:
    """The facts of one cycle (``told``: its events in order)."""
    by_type: dict[str, list[Event]] = {}
    for event in told:
        by_type.setdefault(event.type, []).append(event)

    def time(kind: str, pick: Any = min) -> int | None:
        return pick((at for e in by_type.get(kind, ()) if (at := ms(e.ts)) is not None), default=None)

    incident, decision = cycle.incident or {}, cycle.decision or {}
    timing = next(iter(by_type.get("workload.timing", ())), None)
    resumed = [e for e in by_type.get("workload.resumed", ()) if _step(e) is not None]
    stalls = [s for e in by_type.get("checkpoint.committed", ()) if (s := _stall(e, True)) is not None]
    stalls += [s for e in by_type.get("snapshot.taken", ()) if (s := _stall(e, False)) is not None]
    kept = [e for e in by_type.get("checkpoint.committed", ()) if e.key not in aside]
    saved = max((step for e in kept if (step := _step(e)) is not None), default=None)
    last = _last(by_type.get("progress", ()))
    return CycleFacts(
        cycle.number,
        started=ms(cycle.started_ts),
        run=time("role.started"),
        resumed_at=ms(resumed[0].ts) if resumed else None,
        resumed=cycle.resumed_from,
        timing_at=ms(timing.ts) if timing else None,
        timing_step=_step(timing) if timing and timing.data.get("step") is not None else None,
        phases=_phases(timing.data.get("phases")) if timing else (),
        onset=ms(incident.get("onset")),
        detected=ms(incident.get("detected")),
        decided=time("decision", max),
        waits=decision.get("action") == "wait",
        ended=ms(cycle.ended_ts) if cycle.ended_ts is not None else time("role.exited", max),
        continued=cycle.continued,
        clean=_clean(by_type),
        slow=incident.get("kind") == "straggler",
        reached=max((s for s in (cycle.step, last.step if last else None) if s is not None), default=None),
        saved=saved,
        last=last,
        stalls=tuple(sorted(stalls, key=lambda s: (s.step, s.at))),
        nodes=frozenset(cycle.nodes),
        spares=frozenset(cycle.spares),
    )


def _step(event: Event) -> int | None:
    try:
        return step_of(event.data)
    except (TypeError, ValueError, OverflowError):
        return None


def _stall(event: Event, saved: bool) -> Stall | None:
    at, step, took = ms(event.ts), _step(event), ms(event.data.get("stall_s"))
    count = event.data.get("count")
    if not saved and isinstance(count, int) and not isinstance(count, bool) and took is not None:
        took *= min(max(count, 1), 10**6)  # the slowest of so many copies
    return Stall(at, step, max(took or 0, 0), saved) if at is not None and step is not None else None


def _phases(told: Any) -> tuple[tuple[str, int], ...]:
    if not isinstance(told, Mapping):
        return ()
    order = [name for name, _ in PHASES]
    kinds = dict(PHASES)
    names = sorted(map(str, told), key=lambda name: (order.index(name) if name in order else 2, name))
    found = ((kinds.get(name, "init"), ms(told.get(name))) for name in names)
    return tuple((kind, took) for kind, took in found if took is not None and took > 0)


def _clean(by_type: Mapping[str, Sequence[Event]]) -> bool:
    codes = [e.data.get("exit_code") for e in by_type.get("role.exited", ())]
    return bool(codes) and all(isinstance(c, int) and not isinstance(c, bool) and c in _CLEAN for c in codes)


def _last(words: Sequence[Event]) -> Word | None:
    """The furthest word, the latest of equals."""
    found = [word for event in words if (word := word_of(event.ts, event.data)) is not None]
    return max(found, key=lambda word: (word.step, word.at), default=None)
