"""Hits of many files on one clock, cut to the current attempt and cycle, each in its place.

Pure. What is done here, in this order: cut attempts and cycles; learn ranks' nodes and pids; put kernel
clocks on the job's clock; drop what lies outside the job; mark what the training outlived.
``tests/resiliency/triage/test_variants.py``.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from statistics import median

from . import clock
from .case import Case
from .model import CONTEXT, Hit
from .progress import Progress
from .scan import FileScan
from .slurmtext import Place

BEFORE_START_S = 60.0
AFTER_END_S = 900.0
OUTLIVED_S = 120.0


@dataclass
class Failure:
    """One entry of a launcher's summary of failed ranks."""

    rank: int | None = None
    host: str | None = None
    time: float | None = None
    code: int | None = None
    pid: int | None = None
    local: int | None = None
    hit: Hit | None = None


@dataclass
class Timeline:
    current: list[Hit] = field(default_factory=list)
    earlier_cycle: list[Hit] = field(default_factory=list)
    earlier_attempt: list[Hit] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    start: float | None = None
    end: float | None = None
    last_progress: Progress | None = None
    last_progress_file: str = ""
    step_s: float | None = None  # usual time between two progress lines
    steps_seen: int = 0
    done: Hit | None = None  # the program said that it finished
    requeued: Hit | None = None
    cycles: int = 0
    skew: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def alive_until(self) -> float | None:
        return self.last_progress.time if self.last_progress else None


def build(case: Case) -> Timeline:
    line = Timeline()
    line.start = case.run.start if case.run else None
    line.end = case.run.end if case.run else None
    _zone(case, line)
    cycle_time: float | None = None
    cuts: dict[str, tuple[int, int]] = {}
    for scan in case.logs:
        attempt, cycle, at = _cuts(scan, line)
        cuts[scan.name] = (attempt, cycle)
        if at is not None:
            cycle_time = max(cycle_time or at, at)
    for scan in case.logs:
        attempt, cycle = cuts[scan.name]
        for hit in scan.hits:
            if hit.order < attempt or _before(hit, line.start):
                line.earlier_attempt.append(hit)
            elif hit.order < cycle or (cycle == attempt and cycle_time and _timed_before(hit, cycle_time)):
                line.earlier_cycle.append(hit)
            else:
                line.current.append(hit)
        _progress(scan, max(attempt, cycle), line)
        done = [b for b in scan.boundaries if b.groups.get("marker") == "done" and b.order >= attempt]
        if done and (line.done is None or (done[-1].time or 0) >= (line.done.time or 0)):
            line.done = done[-1]
    if line.start is None:
        line.start = _first_time(case, cuts)
    if line.end is None:
        times = [s.last_time for s in case.logs if s.last_time is not None and not s.boot_clock]
        line.end = max(times) if times else None
    _failures(line)
    _learn_places(case, line)
    for scan in case.kernels:
        _kernel(case, scan, line, cycle_time)
    line.current += case.extra
    for hit in line.current:
        _place(case, hit, line)
    _untimed(line)
    _outlived(case, line)
    line.current.sort(key=_key)
    return line


def _zone(case: Case, line: Timeline) -> None:
    """Logs written in another zone than the scheduler's: all of it outside the job, by quarter hours."""
    if line.start is None or line.end is None:
        return
    for scan in case.logs:
        first, last = scan.first_time, scan.last_time
        if first is None or last is None or scan.boot_clock:
            continue
        if last >= line.start - BEFORE_START_S and first <= line.end + BEFORE_START_S:
            continue
        marks = [
            b.time for b in scan.boundaries if b.groups.get("marker") == "attempt" and b.time is not None
        ]
        apart = line.start - (marks[-1] if marks else first)
        shift = round(apart / 900.0) * 900.0
        if abs(apart - shift) > 300.0 or abs(shift) > 14 * 3600:
            continue
        line.skew[scan.name] = shift
        for hit in (*scan.hits, *scan.boundaries):
            hit.time = None if hit.time is None else hit.time + shift
            hit.latest = None if hit.latest is None else hit.latest + shift
        for step in scan.progress:
            step.time = None if step.time is None else step.time + shift
        scan.first_time, scan.last_time = first + shift, last + shift


def _key(hit: Hit) -> tuple[float, str, int]:
    return (hit.time if hit.time is not None else float("inf"), hit.file, hit.order)


def _before(hit: Hit, start: float | None) -> bool:
    return start is not None and _timed_before(hit, start - BEFORE_START_S)


def _timed_before(hit: Hit, when: float) -> bool:
    return hit.time is not None and hit.time < when and (hit.timed or hit.kind == "log")


# -- attempts and cycles -----------------------------------------------------------------------------------


def _cuts(scan: FileScan, line: Timeline) -> tuple[int, int, float | None]:
    """Offsets where the current attempt and the current cycle begin, and when the latter did."""
    attempt, cycle, at = 0, 0, None
    last_activity = max(
        [h.order for h in scan.hits if h.role != CONTEXT or h.signature.startswith("elastic-exit")]
        + [p.order for p in scan.progress]
        + [b.order for b in scan.boundaries if b.groups.get("marker") in ("attempt", "done")],
        default=-1,
    )
    for mark in scan.boundaries:
        kind = mark.groups.get("marker")
        if kind == "attempt" and (mark.order > 0 or attempt == 0):
            attempt, cycle, at = mark.order, mark.order, None
            line.requeued = None
        elif kind == "requeue":
            if last_activity > mark.order:
                attempt, cycle, at = mark.order + 1, mark.order + 1, None
            else:
                line.requeued = mark
        elif kind == "cycle":
            # The last restart counts only if something happened after it.
            cycle, at = mark.order + 1, mark.time
            line.cycles += 1
    return attempt, max(attempt, cycle), at


def _first_time(case: Case, cuts: dict[str, tuple[int, int]]) -> float | None:
    found = []
    for scan in case.logs:
        attempt = cuts[scan.name][0]
        marks = [
            b.time
            for b in scan.boundaries
            if b.order >= attempt and b.groups.get("marker") == "attempt" and b.time
        ]
        if marks:
            found.append(marks[-1])
        elif attempt == 0 and scan.first_time is not None and not scan.boot_clock:
            found.append(scan.first_time)
    return min(found) if found else None


def _progress(scan: FileScan, cut: int, line: Timeline) -> None:
    rows = [p for p in scan.progress if p.order >= cut]
    if not rows:
        return
    line.steps_seen += len(rows)
    last = rows[-1]
    if line.last_progress is None or (last.time or 0) > (line.last_progress.time or 0):
        line.last_progress, line.last_progress_file = last, scan.name
        gaps = []
        for one, two in itertools.pairwise(rows):
            if (
                one.time is not None
                and two.time is not None
                and one.step is not None
                and two.step is not None
            ) and two.step > one.step:
                gaps.append((two.time - one.time) / (two.step - one.step))
        if gaps:
            line.step_s = median(gaps)


# -- places ------------------------------------------------------------------------------------------------


def _failures(line: Timeline) -> None:
    current: Failure | None = None
    for hit in sorted(
        (h for h in line.current if h.signature.startswith("elastic-")), key=lambda h: (h.file, h.order)
    ):
        if hit.signature == "elastic-summary-time":
            stamp = clock.find(hit.groups.get("when", ""))
            current = Failure(time=stamp.seconds if stamp else None, hit=hit)
            line.failures.append(current)
        elif current is not None and hit.signature == "elastic-summary-host":
            current.host = hit.groups.get("host")
        elif current is not None and hit.signature == "elastic-summary-rank":
            current.rank, current.local = hit.rank, _number(hit.groups.get("local"))
        elif current is not None and hit.signature == "elastic-summary-exit":
            current.code, current.pid, current.hit = _number(hit.groups.get("code")), hit.pid, hit
        elif hit.signature == "elastic-exit":
            line.failures.append(
                Failure(
                    None,
                    hit.node,
                    hit.time,
                    _number(hit.groups.get("code")),
                    hit.pid,
                    _number(hit.groups.get("local")),
                    hit,
                )
            )


def _number(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def _learn_places(case: Case, line: Timeline) -> None:
    for failure in line.failures:
        if failure.rank is not None and failure.host:
            place = case.places.setdefault(failure.rank, Place())
            host = failure.host
            if case.nodes and host not in case.nodes:
                short = host.split(".")[0]
                host = short if short in case.nodes else host
            place.node = place.node or host
            place.gpu = place.gpu if place.gpu is not None else failure.local


def _place(case: Case, hit: Hit, line: Timeline) -> None:
    if hit.node is None and hit.groups.get("ip"):
        hit.node = next((p.node for p in case.places.values() if p.ip == hit.groups["ip"]), None)
    if hit.rank is None and hit.pid is not None:
        match = [f.rank for f in line.failures if f.pid == hit.pid and f.rank is not None]
        hit.rank = match[0] if match else None
    if hit.rank is None and hit.groups.get("task") is not None:
        task = int(hit.groups["task"])
        scan = next((s for s in case.scans if s.name == hit.file), None)
        if scan is not None and case.nodes and scan.max_task < len(case.nodes):
            hit.groups["task_node"] = case.nodes[task] if task < len(case.nodes) else ""
        else:
            hit.rank = task
    if hit.pci and hit.rank is None:
        wanted = _pci(hit.pci)
        for rank, place in case.places.items():
            if place.pci and _pci(place.pci) == wanted and (hit.node is None or place.node == hit.node):
                hit.rank, hit.gpu, hit.node = rank, place.gpu, place.node
    if hit.rank is not None and hit.rank in case.places:
        place = case.places[hit.rank]
        hit.node = hit.node or place.node
        hit.gpu = hit.gpu if hit.gpu is not None else place.gpu
    elif hit.node is not None and hit.gpu is not None and hit.kind == "log":
        for rank, place in case.places.items():
            if place.node == hit.node and place.gpu == hit.gpu:
                hit.rank = rank


def _pci(text: str) -> str:
    parts = text.lower().split(".")[0].split(":")
    return ":".join(p[-4:].lstrip("0") or "0" for p in parts[-3:])


# -- kernel clocks -----------------------------------------------------------------------------------------


def _kernel(case: Case, scan: FileScan, line: Timeline, cycle_time: float | None) -> None:
    node = scan.node or next((h.node for h in scan.hits if h.node), None)
    if case.nodes and node and not _is_ours(node, case.nodes):
        line.notes.append(f"{scan.name}: {node} is not a node of the job")
        return
    offset = _shared_offset(scan, line)
    if offset is None and scan.boot_clock:
        offset = _assumed_offset(scan, line)
    if offset:
        line.skew[scan.name] = offset
    for hit in scan.hits:
        hit.node = hit.node or node
        if hit.time is not None:
            if scan.boot_clock and offset is None:
                hit.time = None
            else:
                hit.time += offset or 0.0
        if hit.groups.get("job") and case.job_id and hit.groups["job"] != case.job_id:
            continue
        if _outside(hit, line):
            line.earlier_attempt.append(hit)
        else:
            line.current.append(hit)


def _is_ours(node: str, nodes: list[str]) -> bool:
    return node in nodes or node.split(".")[0] in {n.split(".")[0] for n in nodes}


def _shared_offset(scan: FileScan, line: Timeline) -> float | None:
    """Job clock minus this clock, from processes that both name (the launcher a few seconds later)."""
    pids = {f.pid: f.time for f in line.failures if f.pid is not None and f.time is not None}
    offsets = [pids[h.pid] - h.time for h in scan.hits if h.pid in pids and h.time is not None]
    if not offsets:
        return None
    offset = min(offsets, key=abs)
    # A wall clock that is nearly right is left alone: the launcher notices a dead process seconds later.
    return 0.0 if not scan.boot_clock and abs(offset) < 90 else offset


def _assumed_offset(scan: FileScan, line: Timeline) -> float | None:
    """Kernel logs are taken when a job has failed: their last line belongs to the end of the job."""
    if line.end is None or scan.last_time is None:
        return None
    times = [h.time for h in scan.hits if h.time is not None]
    latest = max([*times, scan.last_time]) if times else scan.last_time
    return line.end - latest


def _outside(hit: Hit, line: Timeline) -> bool:
    if hit.time is None:
        return False
    if line.start is not None and hit.time < line.start - BEFORE_START_S:
        return True
    return line.end is not None and hit.time > line.end + AFTER_END_S


# -- the rest ----------------------------------------------------------------------------------------------


def _untimed(line: Timeline) -> None:
    """A hit without any time gets that of its rank's end, else the time of the end."""
    by_rank = {f.rank: f.time for f in line.failures if f.rank is not None and f.time is not None}
    first = min((f.time for f in line.failures if f.time is not None), default=None)
    for hit in line.current:
        if hit.time is None and hit.kind == "log":
            known = by_rank.get(hit.rank) if hit.rank is not None else None
            base = known if known is not None else first if first is not None else line.end
            hit.time = base - 5.0 if base is not None else None


def _outlived(case: Case, line: Timeline) -> None:
    """The training went on after it: not what ended it."""
    orders = {s.name: [p.order for p in s.progress] for s in case.logs}
    last = line.alive_until
    for hit in line.current:
        after = sum(1 for o in orders.get(hit.file, ()) if o > hit.order)
        if (hit.kind == "log" and after >= 2 and hit.signature != "planned-exit") or (
            last is not None and hit.time is not None and hit.time + OUTLIVED_S < last and hit.timed
        ):
            hit.survived = True
