"""A run's rows from its folded state: a pure function, so live and rebuilt ledgers agree.

Words, states and verdicts are those of ``resiliency.state``; nothing is decided here. Only
``stage.json``, written once per stage, adds what no event says (total steps).
``tests/metrics/test_project.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from metrics.accounting.words import Told, Words
from resiliency.attempt import Attempt, Submission
from resiliency.contract import RunPaths, parse_attempt_id
from resiliency.events import Event
from resiliency.state import RunState, Stage

from . import causes, spans
from .accounts import Accounts
from .nodes import names
from .plain import Row, number, whole, word

_ENDS_A_RUN = ("stage.completed", "stage.stopped", "run.cancelled")


def rows(
    run_dir: Path, events: Iterable[Event], state: RunState, words: Words | None = None
) -> dict[str, list[Row]]:
    """Table name → rows of the run in ``run_dir``. ``events`` are those that ``state`` was folded
    from. ``words``: where the run's progress is looked up; None: ``events`` hold all of it.
    """
    events = sorted(events, key=lambda event: event.order)
    words = Told(events) if words is None else words
    run_id = run_dir.name
    tables: dict[str, list[Row]] = {"run": [_run(run_dir, events, state)]}
    by_attempt: dict[tuple[str, str], list[Event]] = {}
    last_of_stage: dict[str, float] = {}
    for event in events:
        if event.stage:
            last_of_stage[event.stage] = max(last_of_stage.get(event.stage, 0.0), event.ts)
            if event.attempt:
                by_attempt.setdefault((event.stage, event.attempt), []).append(event)
    for ordinal, stage in enumerate(_in_order(state)):
        extra = _declared(run_dir, state, stage.name)
        add(tables, "stage", _stage(run_id, ordinal, stage, state, extra, last_of_stage))
        for link in stage.links():
            add(tables, "submission", _submission(run_id, link))
        told = {a.id: by_attempt.get((stage.name, a.id), []) for a in stage.chain()}
        listed = {a.id: _listed(a) for a in stage.chain()}
        needs = [state.stages[name] for name in stage.needs if name in state.stages]
        accounts = Accounts(stage, told, listed, words, needs)
        for place, attempt in enumerate(stage.chain()):
            _attempt(tables, run_id, place, attempt, told[attempt.id], listed[attempt.id], accounts)
    for row in causes.nodes(run_id, state):
        add(tables, "node_evidence", row)
    tables |= causes.orders(run_id, events, rehearsal=state.rehearsal)
    for event in events:
        if event.stage in state.stages:
            _checkpoint(tables, run_id, event)
            _evaluation(tables, run_id, event)
    return tables


def add(tables: dict[str, list[Row]], table: str, row: Row) -> None:
    tables.setdefault(table, []).append(row)


def _run(run_dir: Path, events: Sequence[Event], state: RunState) -> Row:
    told = state.created or {}
    ends = [event.ts for event in events if event.type in _ENDS_A_RUN]
    return {
        "run_id": run_dir.name,
        "name": word(told.get("name")),
        "status": state.status,
        "cluster": word(told.get("cluster")),
        "user": word(told.get("user")),
        "created_at": state.created_ts,
        "finished_at": max(ends, default=None) if state.finished else None,
        "last_event_at": state.last_ts or None,
        "experiment": word(told.get("experiment")),
        "spec_digest": word(told.get("spec_digest")),
        "version": word(told.get("version")),
        "run_dir": str(run_dir),
        "rehearsal": int(state.rehearsal),
    }


def _in_order(state: RunState) -> list[Stage]:
    """Stages as the experiment lists them; others after those, by name."""
    listed = [
        item["name"]
        for item in (state.created or {}).get("stages", ())
        if isinstance(item, Mapping) and item.get("name") in state.stages
    ]
    rest = sorted(set(state.stages) - set(listed))
    return [state.stages[name] for name in dict.fromkeys([*listed, *rest])]


def _declared(run_dir: Path, state: RunState, name: str) -> Row:
    """``links_max``, ``total_steps`` and ``gpus_per_node`` of a stage, as far as ``run.created`` or
    ``stage.json`` say.
    """
    found: Row = {"links_max": None, "total_steps": None, "gpus_per_node": None}
    for item in (state.created or {}).get("stages", ()):
        if isinstance(item, Mapping) and item.get("name") == name:
            found["links_max"] = whole(item.get("max_links"))
            found["total_steps"] = whole(item.get("total_steps"))
    try:
        text = RunPaths(run_dir).stage_config(name).read_text(encoding="utf-8")
        config = json.loads(text)
    except (OSError, ValueError):
        return found  # no ledger depends on this file
    found["gpus_per_node"] = whole(_inside(config, "launch", "gpus_per_node"))
    if found["total_steps"] is None:
        found["total_steps"] = whole(_inside(config, "stage", "train", "steps"))
    return found


def _inside(config: Any, *path: str) -> Any:
    for name in path:
        config = config.get(name) if isinstance(config, Mapping) else None
    return config


def _current(stage: Stage) -> Attempt | None:
    """The attempt to show for a stage: the running one, else the first not ended, else the last."""
    chain = stage.chain()
    for attempt in chain:
        if attempt.state in ("RUNNING", "COMPLETING") and not attempt.ended:
            return attempt
    for attempt in chain:
        if not attempt.ended:
            return attempt
    real = [a for a in chain if not a.cancelled_by_us and not a.duplicate]
    last = real or chain
    return last[-1] if last else None


def _why(stage: Stage, state: RunState, current: Attempt | None) -> tuple[Any, Any, Any]:
    """``(category, rule, reason)`` of where a stage is."""
    if stage.completed is not None:
        return None, None, None
    said = stage.stopped or stage.held
    if said is not None:
        return word(said.get("category")), word(said.get("rule")), word(said.get("reason"))
    blocked = state.blocked(stage)
    if blocked:
        return None, None, f"stage {blocked} stopped"
    unsettled = [s for s in stage.links() if s.outcome in ("intent", "uncertain", "rejected")]
    if current is None:
        return None, None, (unsettled[-1].reason or None) if unsettled else None
    if current.ended:
        verdict = current.verdict()
        return verdict.category, None, verdict.reason
    if current.record is not None and current.state != "RUNNING":
        return None, None, word(current.record.reason) or None
    return None, None, None


def _stage(
    run_id: str,
    ordinal: int,
    stage: Stage,
    state: RunState,
    declared: Row,
    last: Mapping[str, float],
) -> Row:
    current = _current(stage)
    live = stage.live_links()
    told = max(
        (a for a in stage.chain() if a.loss is not None),
        key=lambda a: (a.loss_step, a.last_progress_ts or 0.0),
        default=None,
    )
    saved = [a.checkpoint_step for a in stage.attempts.values() if a.checkpoint_step is not None]
    category, rule, reason = _why(stage, state, current)
    queued = live[0] if live and current is None else None
    nodes = current.record.nodes if current and current.record else None
    return {
        "run_id": run_id,
        "stage": stage.name,
        "ordinal": ordinal,
        "kind": word(stage.kind),
        "needs": json.dumps(list(stage.needs)),
        "status": stage.status,
        "epoch": whole(stage.epoch) or 0,
        "link": current.link if current else (queued.link if queued else None),
        "links_max": declared["links_max"],
        "links_submitted": len(stage.submissions),
        "attempts": len(stage.attempts),
        "attempt_id": current.id if current else None,
        "job_id": current.job_id if current else (queued.job_id if queued else None),
        "state": current.state if current else None,
        "nodes": word(nodes) or None,
        "step": whole(stage.last_step()),
        "total_steps": declared["total_steps"],
        "gpus_per_node": declared["gpus_per_node"],
        "loss": number(told.loss) if told else None,
        "tokens": max((t for a in stage.attempts.values() if (t := whole(a.tokens))), default=None),
        "section": (current.section or None) if current else None,
        "checkpoint_step": max(saved, default=None),
        "last_event_at": last.get(stage.name),
        "completed_at": stage.completed_ts,
        "category": category,
        "rule": rule,
        "reason": reason,
        "results": json.dumps(stage.results, sort_keys=True) if stage.results else None,
    }


def _submission(run_id: str, link: Submission) -> Row:
    return {
        "token": link.token,
        "run_id": run_id,
        "stage": link.stage,
        "link": link.link,
        "epoch": whole(link.epoch) or 0,
        "cluster": link.cluster or None,
        "outcome": link.outcome,
        "job_id": link.job_id,
        "jobs": len(link.job_ids),
        "tries": len(link.intents),
        "first_intent_at": min(link.intents, default=None),
        "last_intent_at": max(link.intents, default=None),
        "cancelled": int(link.cancelled),
        "reason": link.reason or None,
    }


def _listed(attempt: Attempt) -> list[str]:
    """Nodes of the allocation, as the scheduler or the supervisor names them."""
    listed = names(attempt.record.nodes) if attempt.record else []
    return listed or names((attempt.started or {}).get("nodes"))


def _attempt(
    tables: dict[str, list[Row]],
    run_id: str,
    place: int,
    attempt: Attempt,
    told: Sequence[Event],
    listed: Sequence[str],
    accounts: Accounts,
) -> None:
    parts = parse_attempt_id(attempt.id)
    key: Row = {"run_id": run_id, "stage": attempt.stage, "attempt_id": attempt.id}
    record, evidence = attempt.record, attempt.evidence()
    verdict = attempt.verdict() if attempt.ended else None
    rule = (attempt.finished or {}).get("rule")
    for event in told:
        if event.type == "decision":
            rule = event.data.get("rule", rule)
    add(
        tables,
        "attempt",
        {
            **key,
            "cluster": parts[0] if parts else "",
            "job_id": attempt.job_id,
            "restart_count": attempt.restart_count,
            "token": attempt.token or None,
            "link": attempt.link,
            "ordinal": place,
            "state": attempt.state,
            "ended": int(attempt.ended),
            "gate": attempt.gate,
            "submitted_at": record.submitted_at if record else None,
            "started_at": record.started_at if record else None,
            "ended_at": record.ended_at if record else None,
            "supervisor_started_at": attempt.started_ts,
            "supervisor_finished_at": attempt.finished_ts,
            "wall_s": attempt.wall_s(),
            "nodes": ",".join(listed) or None,
            "node_count": len(listed) or None,
            "exit_code": whole(evidence.exit_code),
            "signal": whole(evidence.signal),
            "scheduler_reason": word(evidence.scheduler_reason) or None,
            "drain_reason": attempt.drain_reason,
            "cancelled_by_us": int(attempt.cancelled_by_us),
            "duplicate": int(attempt.duplicate),
            "resumed_from": attempt.resumed_from,
            "step": attempt.step,
            "checkpoint_step": attempt.checkpoint_step,
            "loss": number(attempt.loss),
            "tokens": whole(attempt.tokens),
            "section": attempt.section or None,
            "last_progress_at": attempt.last_progress_ts,
            "last_event_at": max((event.ts for event in told), default=None),
            "category": verdict.category if verdict else None,
            "reason": verdict.reason if verdict else None,
            "rule": word(rule),
        },
    )
    verdicts = list(causes.verdicts(key, attempt, verdict))
    tracks = accounts.tracks(attempt.id)
    cycles = [{**row, **accounts.cycle(attempt.id, row["cycle"])} for row in spans.cycles(key, attempt, told)]
    for table, found in (
        ("verdict", verdicts),
        ("attempt_node", spans.nodes(key, tracks, told)),
        ("cycle", cycles),
        ("interval", accounts.intervals(key)),
        ("outage", accounts.outages(verdicts)),
    ):
        for row_ in found:
            add(tables, table, row_)


def _checkpoint(tables: dict[str, list[Row]], run_id: str, event: Event) -> None:
    data = event.data
    if event.type == "checkpoint.committed":
        row: Row = {
            "run_id": run_id,
            "stage": event.stage,
            "writer": event.writer,
            "seq": event.seq,
            "attempt_id": event.attempt,
            "step": whole(data.get("step")),
            "path": word(data.get("path")),
            "at": event.ts,
            "bytes": whole(data.get("bytes")),
            "seconds": number(data.get("seconds")),
            "stall_s": number(data.get("stall_s")),
            "quarantined_at": None,
            "quarantine_reason": None,
        }
        add(tables, "checkpoint", row)
    elif event.type == "checkpoint.quarantined":
        # Of the checkpoints written to this path, the newest one before was set aside.
        for row in reversed(tables.get("checkpoint", [])):
            if row["path"] == word(data.get("path")) and row["stage"] == event.stage:
                row["quarantined_at"] = row["quarantined_at"] or event.ts
                row["quarantine_reason"] = row["quarantine_reason"] or word(data.get("reason"))
                break


def _evaluation(tables: dict[str, list[Row]], run_id: str, event: Event) -> None:
    metrics = event.data.get("metrics") if event.type == "eval.result" else None
    if not isinstance(metrics, Mapping):
        return
    for name, value in sorted(_flat(metrics)):
        if number(value) is None:
            continue
        row = {
            "run_id": run_id,
            "stage": event.stage,
            "writer": event.writer,
            "seq": event.seq,
            "metric": name,
            "value": number(value),
            "at": event.ts,
            "attempt_id": event.attempt,
        }
        add(tables, "evaluation", row)


def _flat(metrics: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested figures under dotted names."""
    found: list[tuple[str, Any]] = []
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", value))
    return found
