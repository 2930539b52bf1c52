"""Which hit is the root: chronology first, then what explains what.

The first event that can be a root wins. An ambiguous one gives way to a root that explains it, a cascade
to both. A scheduler that ends a job which was making progress is the root of whatever follows. Pure;
``tests/resiliency/triage/test_variants.py`` has a case per rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .case import Case
from .model import AMBIGUOUS, CASCADE, CONTEXT, ROOT, Hit
from .timeline import Timeline

SAME_MOMENT_S = 10.0  # between two ranks or nodes: less than their clocks' and pipes' delays
KERNEL_SLACK_S = 120.0  # a kernel's clock against the job's, when no shared event aligned them
RERUN_S = 900.0  # a step that is repeated to check a result
EXTERNAL = frozenset({"time_limit", "preempted", "user_cancelled"})
#: What the fault of a node's hardware explains in the program that ran on it.
SYMPTOMS = frozenset(
    {
        "gpu_fault",
        "comm_timeout",
        "hang",
        "framework_crash",
        "ib_transport",
        "net_other",
        "rendezvous",
        "straggler",
        "code_error",
        "config_error",
        "unknown",
    }
)
#: Reported by one part of a program only after another has gone on for a while.
LATE = frozenset({"storage_full", "storage_quota", "storage_io", "storage_stale", "checkpoint_corrupt"})


@dataclass
class Choice:
    hit: Hit | None
    supporting: list[Hit] = field(default_factory=list)
    rivals: list[Hit] = field(default_factory=list)
    why: str = ""
    weak: bool = False


def choose(case: Case, line: Timeline, derived: list[Hit]) -> Choice:
    hits = [h for h in [*line.current, *derived] if h.role != CONTEXT]
    live = [h for h in hits if not h.survived or h.kind == "scheduler"]
    choice = _from(case, line, live)
    if choice.hit is None or choice.weak or choice.hit.generic or choice.hit.role == AMBIGUOUS:
        late = _late(line, hits, choice.hit)
        if late is not None:
            return _complete(Choice(late, why="the first error of the kind, noticed later"), live)
    if choice.hit is None or choice.weak:
        older = _older_cycle(line)
        if older is not None:
            return _complete(
                Choice(older, why="from the cycle before; the last one shows consequences only", weak=True),
                live,
            )
    return _complete(choice, live)


def _from(case: Case, line: Timeline, live: list[Hit]) -> Choice:
    roots = sorted((h for h in live if h.role == ROOT), key=_reported)
    ambiguous = sorted((h for h in live if h.role == AMBIGUOUS), key=_reported)
    cascades = sorted((h for h in live if h.role == CASCADE and h.category != "unknown"), key=_reported)
    external = [h for h in roots if h.category in EXTERNAL]
    inner = [h for h in roots if h.category not in EXTERNAL]
    root = _first_root(inner, line)
    if external:
        first = _prefer_log(external)
        choice = _against_external(case, line, first, root, ambiguous, [*inner, *ambiguous, *cascades])
        if choice is not None:
            return choice
    if root is not None and ambiguous:
        early = ambiguous[0]
        if _explains(root, early) or not _specific_enough(early):
            return Choice(root, why=f"explains {early.category} seen about the same time")
        if _reported(root) <= _reported(early):
            return Choice(root, why="the first event that can be a root")
        return Choice(_best_ambiguous(ambiguous), why="came before anything that could explain it")
    if root is not None:
        return Choice(root, why="the first event that can be a root")
    if ambiguous:
        return Choice(_best_ambiguous(ambiguous), why="nothing earlier explains it")
    if cascades:
        return Choice(cascades[0], why="only consequences are visible", weak=True)
    return Choice(None, why="nothing in the files explains the end", weak=True)


def _reported(hit: Hit) -> tuple[float, int]:
    return (hit.time if hit.time is not None else float("inf"), hit.order)


def _when(hit: Hit) -> float:
    return hit.time if hit.time is not None else float("inf")


def _specific_enough(hit: Hit) -> bool:
    return not hit.generic


def _first_root(roots: list[Hit], line: Timeline) -> Hit | None:
    """The first root; of several at about the same moment the one that says most."""
    if not roots:
        return None
    first = roots[0]
    for late in roots:
        # A line that reports what began earlier takes the place of a vague one in between.
        if first.generic and not late.generic and _when(late) - late.lag_s <= _when(first):
            first = late
            break
    if first.category == "numeric":
        # The program looks for the reason itself: what its rerun says about this result counts.
        reruns = [h for h in roots if h.category == "sdc_suspected" and _when(h) <= _when(first) + RERUN_S]
        if reruns:
            return reruns[0]
    window = _when(first) + SAME_MOMENT_S
    close = [h for h in roots if _when(h) <= window]
    hardware = [
        h for h in roots if h.kind == "kernel" and h.proof and _when(h) <= first.at_latest + KERNEL_SLACK_S
    ]
    if (
        first.kind != "kernel"
        and hardware
        and (first.category in SYMPTOMS or hardware[0].category == first.category)
    ):
        return hardware[0]
    if first.category == "node_down" and hardware:
        return hardware[0]
    return min(close, key=lambda h: (h.generic, not h.proof and h.kind == "scheduler", _reported(h)))


def _explains(root: Hit, symptom: Hit) -> bool:
    """Whether ``root`` can have caused ``symptom`` although it may have been reported later."""
    slack = KERNEL_SLACK_S if root.kind == "kernel" else SAME_MOMENT_S
    if root.category in EXTERNAL:
        slack = 1.0
    begun = _when(root) - root.lag_s
    if begun > symptom.at_latest + slack:
        return False
    if _when(root) <= _when(symptom):
        return True
    if root.generic and not symptom.generic:
        return False
    if root.kind == "kernel" or root.proof or root.lag_s:
        return symptom.category in SYMPTOMS or symptom.category == root.category or symptom.generic
    return True


def _best_ambiguous(ambiguous: list[Hit]) -> Hit:
    """The first; of several at the same moment the one that says most."""
    first = ambiguous[0]
    begun = min(_when(h) for h in ambiguous)
    close = [h for h in ambiguous if _when(h) <= begun + SAME_MOMENT_S]
    order = {
        "gpu_off_bus": 0,
        "ib_link": 1,
        "storage_io": 1,
        "gpu_nvlink": 1,
        "gpu_firmware": 1,
        "numeric": 2,
        "host_oom": 2,
        "gpu_fault": 3,
        "framework_crash": 4,
        "ib_transport": 4,
    }
    if len(close) == 1:
        return first
    return min(close, key=lambda h: (h.generic, order.get(h.category, 5), _reported(h)))


def _prefer_log(hits: list[Hit]) -> Hit:
    logs = [h for h in hits if h.kind == "log"]
    return (logs or hits)[0]


def _against_external(
    case: Case, line: Timeline, external: Hit, root: Hit | None, ambiguous: list[Hit], others: list[Hit]
) -> Choice | None:
    """The scheduler's end against what happened before it. None: something else came first."""
    end = min(_when(external), line.end if line.end is not None else float("inf"))
    state = case.run.state if case.run is not None else ""
    if external.category == "user_cancelled" and state in ("FAILED", "NODE_FAIL", "OUT_OF_MEMORY"):
        return None
    before = [h for h in others if _when(h) - 2.0 < end and _when(h) < end - 2.0 and h.role != CASCADE]
    before = [
        h for h in before if not (h.signature == "no-progress" and external.category == "user_cancelled")
    ]
    before = [h for h in before if h.signature != "no-progress" or h.lag_s >= 1800.0]
    if external.category != "time_limit":
        before = [h for h in before if not h.signature.startswith("exit-")]
    if external.category in ("preempted", "user_cancelled"):
        # Asked to stop, it saved and left: that is how such an end looks.
        before = [h for h in before if h.signature != "planned-exit"]
    stalled = [h for h in others if h.signature == "no-progress" and h.lag_s >= 1800.0]
    if (
        external.category == "time_limit"
        and stalled
        and not [h for h in before if h.signature != "no-progress"]
    ):
        return Choice(stalled[0], why="no progress for long before the limit", rivals=[external])
    alive = line.alive_until
    if alive is not None and end - alive < max(60.0, 3 * (line.step_s or 0.0)):
        before = [h for h in before if _when(h) >= alive and h.order]
    before = [h for h in before if h.signature != "no-progress" and not h.signature.startswith("slurm-")]
    if before:
        return None
    return Choice(external, why="the job was alive when the scheduler ended it")


def _late(line: Timeline, hits: list[Hit], chosen: Hit | None) -> Hit | None:
    """An error that a background writer met while the training still went on, up to ten minutes before."""
    limit = _when(chosen) if chosen is not None else (line.end or float("inf"))
    if chosen is not None and chosen.category not in SYMPTOMS:
        return None
    found = [
        h
        for h in hits
        if h.survived
        and h.role == ROOT
        and h.category in LATE
        and not h.generic
        and h.kind == "log"
        and limit - 600.0 <= _when(h) <= limit
    ]
    return min(found, key=_reported) if found else None


def _older_cycle(line: Timeline) -> Hit | None:
    roots = [h for h in line.earlier_cycle if h.role == ROOT and not h.generic]
    return min(roots, key=_reported) if roots else None


def _complete(choice: Choice, live: list[Hit]) -> Choice:
    """Add what says the same, and what else might have been the root."""
    chosen = choice.hit
    if chosen is None:
        return choice
    same = [
        h for h in live if h is not chosen and h.category == chosen.category and h.role in (ROOT, AMBIGUOUS)
    ]
    choice.supporting = sorted(same, key=lambda h: (h.role != ROOT, h.generic, _reported(h)))
    rivals: dict[str, Hit] = {}
    for hit in sorted([*choice.rivals, *live], key=_reported):
        if hit.category not in (chosen.category, "unknown") and hit.role in (ROOT, AMBIGUOUS):
            rivals.setdefault(hit.category, hit)
    choice.rivals = list(rivals.values())
    return choice
