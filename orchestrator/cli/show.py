"""Lines and dictionaries for a person and for scripts, made from the control plane's answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resiliency.attempt import Attempt, Cycle
    from resiliency.state import RunState, Stage

    from .. import advance as adv
    from ..control import Report
    from ..runs import Run

_STYLE = {
    "complete": "green",
    "running": "cyan",
    "queued": "blue",
    "waiting": "dim",
    "uncertain": "yellow",
    "held": "yellow",
    "stopped": "red",
    "cancelled": "magenta",
}


def style(word: str) -> str:
    """Rich style of a status word."""
    return _STYLE.get(word, "")


def duration(seconds: float | None) -> str:
    """``95`` → ``1m35s``; None → ``-``."""
    if seconds is None:
        return "-"
    total = int(seconds)
    days, rest = divmod(total, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    if days:
        return f"{days}d{hours:02d}h"
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{secs:02d}s" if minutes else f"{secs}s"


def clock_time(ts: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ts)) if ts else "-"


def number(value: Any) -> str:
    """A loss as the journal has it: a number, or text such as ``nan``."""
    return f"{value:.4f}" if isinstance(value, (int, float)) else (str(value) if value is not None else "-")


def totals(run: Run) -> dict[str, int]:
    """Stage → steps it is to reach, where its spec says."""
    found = {}
    for stage in run.plan.stages:
        steps = (stage.spec.get("train") or {}).get("steps")
        if isinstance(steps, int):
            found[stage.name] = steps
    return found


def nodes_of(attempt: Attempt) -> str:
    """Slurm's node list of an attempt; empty before it has nodes."""
    known = attempt.record.nodes if attempt.record else ""
    return known or str((attempt.started or {}).get("nodes") or "")


def spares_of(attempt: Attempt) -> int:
    """Idle nodes of an attempt's latest cycle."""
    last = attempt.last_cycle
    return len(last.spares) if last else 0


def restarts_of(attempt: Attempt) -> str:
    """``restarted 2 times: node_down (n2), hang``; empty for an attempt of one cycle."""
    over = [cycle for _, cycle in sorted(attempt.cycles.items()) if cycle.continued]
    if not over:
        return ""
    causes = [f"{cycle.category}{f' ({cycle.node})' if cycle.node else ''}" for cycle in over]
    shown = causes if len(causes) <= 4 else ["…", *causes[-3:]]
    return f"restarted {len(over)} time{'s' if len(over) > 1 else ''}: {', '.join(shown)}"


def cycle_data(cycle: Cycle) -> dict[str, Any]:
    """One cycle for ``--json``."""
    decision = cycle.decision or {}
    return {
        "cycle": cycle.number,
        "nodes": list(cycle.nodes),
        "spares": list(cycle.spares),
        "swapped": dict(cycle.swapped),
        "started_at": cycle.started_ts,
        "ended_at": cycle.ended_ts,
        "resumed_from": cycle.resumed_from,
        "step": cycle.step,
        "checkpoint_step": cycle.saved_step,
        "category": cycle.category or None,
        "cause": cycle.reason or None,
        "node": cycle.node,
        "rank": cycle.rank,
        "action": decision.get("action"),
        "rule": decision.get("rule"),
        "shadow": bool(decision.get("shadow")),
        "continued": cycle.continued,
    }


def attempt_data(attempt: Attempt) -> dict[str, Any]:
    """One attempt for ``--json``."""
    record = attempt.record
    verdict = attempt.verdict() if attempt.ended else None
    finished = attempt.finished or {}
    return {
        "attempt": attempt.id,
        "link": attempt.link,
        "job_id": attempt.job_id,
        "restart_count": attempt.restart_count,
        "state": attempt.state,
        "reason": record.reason if record else "",
        "nodes": nodes_of(attempt),
        "submitted_at": record.submitted_at if record else None,
        "started_at": (record.started_at if record else None) or attempt.started_ts,
        "ended_at": (record.ended_at if record else None) or attempt.finished_ts,
        "exit_code": finished.get("exit_code", record.exit_code if record and record.ended else None),
        "gate": attempt.gate,
        "drain_reason": attempt.drain_reason,
        "category": verdict.category if verdict else None,
        "cause": verdict.reason if verdict else None,
        "resumed_from": attempt.resumed_from,
        "step": attempt.step,
        "loss": attempt.loss,
        "checkpoint_step": attempt.checkpoint_step,
        "cancelled_by_us": attempt.cancelled_by_us,
        "lost_nodes": sorted(attempt.lost),
        "cycles": [cycle_data(cycle) for _, cycle in sorted(attempt.cycles.items())],
    }


def stage_data(stage: Stage) -> dict[str, Any]:
    """One stage for ``--json``."""
    stop = stage.stopped or stage.held
    return {
        "stage": stage.name,
        "kind": stage.kind,
        "status": stage.status,
        "needs": list(stage.needs),
        "epoch": stage.epoch,
        "reason": (stop or {}).get("reason", ""),
        "rule": (stop or {}).get("rule", ""),
        "category": (stop or {}).get("category", ""),
        "step": stage.last_step(),
        "links": [
            {
                "link": s.link,
                "token": s.token,
                "outcome": s.outcome,
                "job_ids": s.job_ids,
                "reason": s.reason,
                "exclude": list(s.exclude),
            }
            for s in stage.links()
        ],
        "attempts": [attempt_data(a) for a in stage.chain()],
        "results": stage.results,
    }


def run_data(state: RunState) -> dict[str, Any]:
    """One run for ``--json``."""
    created = state.created or {}
    return {
        "run": state.run,
        "name": created.get("name", ""),
        "status": state.status,
        "cluster": created.get("cluster", ""),
        "user": created.get("user", ""),
        "created_at": state.created_ts,
        "run_dir": created.get("run_dir", ""),
        "stages": [stage_data(s) for s in state.stages.values()],
    }


def act_line(act: adv.Act) -> str:
    """One act in words."""
    from .. import advance as adv

    if isinstance(act, adv.SubmitLink):
        return f"submit {act.stage} link {act.link}"
    if isinstance(act, adv.CancelLink):
        return f"cancel job {', '.join(act.job_ids)} ({act.token}): {act.reason}"
    if isinstance(act, adv.ReleaseJob):
        return f"release job {act.job_id}: {act.reason}"
    if isinstance(act, adv.ExcludeNodes):
        return f"keep job {', '.join(act.job_ids)} off {', '.join(act.nodes) or 'no node'} ({act.token})"
    if isinstance(act, adv.CompleteStage):
        return f"stage {act.stage} is complete"
    if isinstance(act, adv.HoldStage):
        return f"hold stage {act.stage}: {act.reason} [{act.rule}]"
    if isinstance(act, adv.StopStage):
        return f"stop stage {act.stage}: {act.reason} [{act.rule}]"
    return (
        f"{act.stage} {act.attempt}: {act.decision.action.value}: {act.decision.reason} [{act.decision.rule}]"
    )


def report_lines(report: Report) -> Iterator[str]:
    """A reconcile in lines."""
    from .. import advance as adv

    for one in report.runs:
        status = one.state.status if one.state else "unknown"
        yield f"{one.run_id}: {status}"
        for act in one.acts:
            if not isinstance(act, adv.SubmitLink):
                yield f"  {act_line(act)}"
        for outcome in one.outcomes:
            job = f" job {outcome.job_id}" if outcome.job_id else ""
            yield f"  submit {outcome.token}: {outcome.word}{job}"
        for text in one.notes:
            yield f"  note: {text}"
    if not report.runs:
        yield "no unfinished runs"


def report_data(report: Report) -> dict[str, Any]:
    """A reconcile for ``--json``."""
    return {
        "seconds": round(report.seconds, 3),
        "problems": list(report.problems),
        "runs": [
            {
                "run": one.run_id,
                "status": one.state.status if one.state else None,
                "acts": [act_line(a) for a in one.acts],
                "submissions": [vars(o) for o in one.outcomes],
                "notes": one.notes,
            }
            for one in report.runs
        ],
    }
