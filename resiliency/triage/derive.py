"""Hits that no single line shows: ranks in different collectives, flapping links, a stall, Slurm's own word.

Pure: timeline and case in, further hits out. ``tests/resiliency/triage/test_variants.py``.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from .. import exitcodes
from .case import Case
from .model import AMBIGUOUS, CASCADE, CONTEXT, ROOT, Hit
from .slurmtext import NodeReason, Run
from .timeline import Timeline

FLAP_WINDOW_S = 3600.0
FLAP_BEFORE_S = 900.0
STALL_S = 900.0

#: Start of a ``sinfo -R`` reason (Slurm cuts it to 20 characters) → category, proof.
#: Source: Slurm slurmctld/node_mgr.c, slurmd/slurmd/req.c, job_mgr.c; NHC writes "NHC: <check>".
REASONS: tuple[tuple[str, str, bool], ...] = (
    ("kill task failed", "node_unkillable", True),
    ("prolog error", "node_prolog", True),
    ("prolog failed", "node_prolog", True),
    ("not responding", "node_down", True),
    ("node unexpectedly re", "node_down", True),
    ("low realmemory", "node_down", True),
    ("low tmpdisk", "storage_full", False),
    ("slurmdspooldir is fu", "storage_full", False),
    ("gres/gpu count repor", "gpu_off_bus", True),
    ("gres/gpu count too l", "gpu_off_bus", True),
)


def derive(case: Case, line: Timeline) -> list[Hit]:
    found: list[Hit] = []
    found += _desync(line)
    found += _flaps(case, line)
    found += _scheduler(case, line)
    found += _reasons(case, line)
    found += _stall(case, line)
    found += _exit_codes(case, line)
    return found


def _like(hit: Hit, signature: str, category: str, role: str, **changes: object) -> Hit:
    made = Hit(
        signature,
        category,
        role,
        hit.file,
        hit.line,
        hit.text,
        hit.order,
        hit.kind,
        hit.time,
        hit.timed,
        node=hit.node,
        rank=hit.rank,
        gpu=hit.gpu,
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


# -- collectives -------------------------------------------------------------------------------------------


def _desync(line: Timeline) -> list[Hit]:
    """Different operations at one place in a process group's sequence: ranks took different paths."""
    timeouts = [h for h in line.current if h.signature == "nccl-watchdog-timeout" and h.groups.get("seq")]
    groups: dict[tuple[str, str], list[Hit]] = defaultdict(list)
    for hit in timeouts:
        groups[(_group(hit.text), hit.groups["seq"])].append(hit)
    ranks = {h.rank for h in timeouts}
    for (group, _), hits in groups.items():
        calls = {(h.rank if h.rank is not None else -h.line, h.groups["op"]) for h in hits}
        operations = Counter(op for _, op in calls)
        if len(operations) < 2:
            continue
        # Without the group's name two groups may stand at the same number by chance: then most ranks must.
        if not group and len({h.rank for h in hits}) * 2 < len(ranks):
            continue
        odd = operations.most_common()[-1][0]
        first = [next(h for h in hits if h.groups["op"] == op) for op, _ in operations.most_common()]
        made = _like(first[0], "collective-desync", "code_desync", ROOT, lag_s=first[0].lag_s)
        made.groups = {
            "operations": ", ".join(f"{n} × {op}" for op, n in operations.most_common()),
            "odd": odd,
        }
        made.rank = made.node = made.gpu = None
        return [made, *(_like(h, "collective-desync", "code_desync", ROOT, node=None) for h in first[1:])]
    return []


def _group(text: str) -> str:
    for opening in ("[PG ID ", "[PG GUID "):
        if opening in text:
            inner = text.split(opening, 1)[1].split(" Rank ", 1)[0]
            return inner[:60]
    return ""


# -- links -------------------------------------------------------------------------------------------------


def _flaps(case: Case, line: Timeline) -> list[Hit]:
    """A link that went down repeatedly, or stayed down, shortly before the end."""
    found: list[Hit] = []
    by_device: dict[tuple[str | None, str], list[Hit]] = defaultdict(list)
    for hit in line.current:
        if hit.signature in ("mlx5-link-down", "mlx5-link-up"):
            by_device[(hit.node, hit.groups.get("device") or hit.pci or "")].append(hit)
    reporters = {h.node for h in line.current if h.signature == "nccl-ib-port-error"}
    trouble = _first_trouble(line)
    for (node, device), hits in by_device.items():
        hits.sort(key=lambda h: (h.time or 0.0, h.order))
        downs = [h for h in hits if h.signature == "mlx5-link-down"]
        if not downs:
            continue
        last = downs[-1]
        recent = [
            h for h in downs if h.time is None or last.time is None or last.time - h.time <= FLAP_WINDOW_S
        ]
        near = trouble is None or last.time is None or abs(trouble - last.time) <= FLAP_BEFORE_S
        total = sum(h.count for h in recent)
        stays_down = hits[-1] is last and last.count == 1 and not last.survived
        if near and (total >= 2 or node in reporters or stays_down):
            made = _like(recent[0], "link-flap", "ib_link", ROOT, proof=True, time=last.time, timed=True)
            made.count = total
            made.groups = {"device": device, "downs": str(total)}
            found.append(made)
    by_node: dict[str, list[Hit]] = defaultdict(list)
    for hit in line.current:
        if hit.signature == "nccl-ib-port-error" and hit.node and hit.time is not None and hit.timed:
            by_node[hit.node].append(hit)
    for hits in by_node.values():
        times = sorted({round((h.time or 0.0) / 10) for h in hits})
        if len(times) >= 3:
            found.append(_like(hits[0], "link-flap", "ib_link", ROOT, proof=True, time=hits[-1].time))
    return found


def _first_trouble(line: Timeline) -> float | None:
    """When the job began to fail: its first live sign of trouble in a log, else its end."""
    times = [
        h.time
        for h in line.current
        if h.kind == "log" and h.role in (ROOT, AMBIGUOUS, CASCADE) and not h.survived and h.time is not None
    ]
    return min(times) if times else line.end


# -- Slurm -------------------------------------------------------------------------------------------------


def _row(case: Case, run: Run, category: str, role: str, **changes: object) -> Hit:
    hit = Hit(
        f"slurm-{category}",
        category,
        role,
        case.sacct_name,
        run.line,
        run.text,
        kind="scheduler",
        time=run.end,
    )
    for name, value in changes.items():
        setattr(hit, name, value)
    return hit


def _scheduler(case: Case, line: Timeline) -> list[Hit]:
    run = case.run
    if run is None:
        return []
    found: list[Hit] = []
    state = run.state
    if state == "TIMEOUT" or state == "DEADLINE":
        found.append(_row(case, run, "time_limit", ROOT))
    elif state == "PREEMPTED":
        found.append(_row(case, run, "preempted", ROOT))
    elif state == "NODE_FAIL" or state == "BOOT_FAIL":
        found.append(_row(case, run, "node_down", ROOT, lag_s=600.0))
    elif state == "OUT_OF_MEMORY":
        found.append(_row(case, run, "host_oom", ROOT, lag_s=600.0))
    elif state == "CANCELLED":
        found.append(_cancelled(case, run))
    elif state in ("REQUEUED", "REVOKED") and case.held is None:
        found.append(_row(case, run, "requeued", AMBIGUOUS))
    if run.exit_code == 0 and run.signal == 125 and state != "OUT_OF_MEMORY":
        found.append(_row(case, run, "host_oom", ROOT, lag_s=600.0))
    if _never_ran(case, line, run):
        found.append(_row(case, run, "launch_failed", AMBIGUOUS, time=run.end or run.start, generic=True))
    if case.held is not None:
        reason = case.held.reason.lower()
        if "launch fail" in reason or "prolog" in reason:
            found.append(_row(case, case.held, "launch_failed", AMBIGUOUS, time=run.end, generic=True))
        else:
            found.append(_row(case, case.held, "requeued", AMBIGUOUS, time=run.end))
    return found


def _cancelled(case: Case, run: Run) -> Hit:
    if run.cancelled_by == "0" and not run.steps and run.nodes and not case.logs:
        return _row(case, run, "launch_failed", ROOT)
    return _row(case, run, "user_cancelled", ROOT)


def _never_ran(case: Case, line: Timeline, run: Run) -> bool:
    """0:53 and its kin: the batch script itself could not be started."""
    if run.state not in ("FAILED", "REQUEUED", "BOOT_FAIL"):
        return False
    silent = not any(s.lines for s in case.logs)
    short = run.start is not None and run.end is not None and run.end - run.start < 30
    return (
        (run.signal == 53 and silent)
        or (run.signal == 53 and short)
        or (silent and short and run.exit_code in (0, None))
    )


def _reasons(case: Case, line: Timeline) -> list[Hit]:
    """Reasons of drained nodes that are this job's and were given after it started."""
    found: list[Hit] = []
    nodes = set(case.nodes) | {n for r in case.earlier_runs[-1:] for n in r.nodes}
    if case.run is not None:
        nodes |= set(case.run.nodes)
    for row in case.reasons:
        ours = [n for n in row.nodes if n in nodes]
        if not ours or (nodes and len(ours) == len(nodes) and len(nodes) > 1):
            continue
        if row.time is not None and line.start is not None and row.time < line.start - 60:
            continue
        for prefix, category, proof in REASONS:
            if row.reason.lower().startswith(prefix):
                found.append(_reason(case, row, ours, category, proof))
                break
        else:
            found.append(_reason(case, row, ours, "unknown", False, role=CONTEXT))
    return found


def _reason(
    case: Case, row: NodeReason, nodes: list[str], category: str, proof: bool, role: str = ROOT
) -> Hit:
    alone = len(nodes) == 1
    return Hit(
        f"sinfo-{category}",
        category,
        role,
        case.sinfo_name,
        row.line,
        row.text,
        kind="scheduler",
        time=row.time,
        timed=row.time is not None,
        lag_s=900.0 if category != "node_prolog" else 0.0,
        node=nodes[0] if alone else None,
        proof=proof and alone,
    )


# -- no progress, and ends that only a number tells
# ------------------------------------------------------------


def _stall(case: Case, line: Timeline) -> list[Hit]:
    last = line.last_progress
    if last is None or last.time is None or line.end is None or line.done is not None:
        return []
    patience = max(STALL_S, 20 * (line.step_s or 0.0))
    if line.end - last.time < patience:
        return []
    step = f", step {last.step}" if last.step is not None else ""
    text = f"last progress{step}; nothing for {line.end - last.time:.0f} s"
    return [
        Hit(
            "no-progress",
            "hang",
            AMBIGUOUS,
            line.last_progress_file,
            last.line,
            text,
            last.order,
            time=line.end,
            lag_s=line.end - last.time,
            generic=True,
        )
    ]


_CODE = {
    exitcodes.RERUN_ELSEWHERE: ("sdc_suspected", AMBIGUOUS),
    exitcodes.RESULT_REJECTED: ("numeric", AMBIGUOUS),
    exitcodes.PROGRESS_MADE: ("planned_rollover", ROOT),
    exitcodes.NEEDS_HUMAN: ("config_error", AMBIGUOUS),
    exitcodes.DO_NOT_RESTART: ("code_error", AMBIGUOUS),
    exitcodes.WATCHDOG: ("hang", AMBIGUOUS),
    exitcodes.NOT_EXECUTABLE: ("config_error", AMBIGUOUS),
    exitcodes.NOT_FOUND: ("config_error", AMBIGUOUS),
}
_SIGNAL = {11: "framework_crash", 7: "shm_exhausted", 4: "framework_crash", 8: "framework_crash"}


def _exit_codes(case: Case, line: Timeline) -> list[Hit]:
    """What an exit code or a signal alone allows to say. Codes 6, 9 and 15 follow from something: nothing."""
    found: list[Hit] = []
    seen: set[tuple[str, str]] = set()
    for failure in line.failures:
        if failure.hit is not None and failure.code is not None:
            _add_code(found, seen, failure.hit, failure.code, failure.rank, failure.host)
    for hit in line.current:
        if hit.signature == "task-exit" and hit.groups.get("code"):
            _add_code(found, seen, hit, int(hit.groups["code"]), None, hit.node)
    run = case.run
    if run is not None and run.state in ("FAILED", "COMPLETED", "NODE_FAIL"):
        for code in filter(None, (run.exit_code, *(s.exit_code for s in run.steps))):
            _add_code(found, seen, _row(case, run, "exit", CONTEXT), code, None, None)
        for signal in filter(None, (run.signal, *(s.signal for s in run.steps))):
            if signal in _SIGNAL:
                _add_code(found, seen, _row(case, run, "exit", CONTEXT), 128 + signal, None, None)
    return found


def _add_code(
    found: list[Hit], seen: set[tuple[str, str]], hit: Hit, code: int, rank: int | None, node: str | None
) -> None:
    signal = exitcodes.signal_of(code)
    if signal is not None:
        category, role = _SIGNAL.get(signal, ""), AMBIGUOUS
    else:
        category, role = _CODE.get(code, ("", ""))
    if not category or (category, hit.file) in seen:
        return
    seen.add((category, hit.file))
    made = _like(hit, f"exit-{code if signal is None else f'signal-{signal}'}", category, role)
    made.rank = rank if rank is not None else hit.rank
    made.node = node or hit.node
    made.generic = True
    found.append(made)
