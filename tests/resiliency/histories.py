"""Random histories of a run, for hypothesis: every event type, ties of time, nonsense now and then."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from resiliency import contract
from resiliency.events import TYPES, Event

RUN = "demo-20260101-000000-abcd"
WRITERS = ("login-a", "login-b", "job-1", "rank-0")
STAGES = ("prepare", "train")

_STATES = ("PENDING", "RUNNING", "COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "CANCELLED")
_STATE_WORDS = st.sampled_from(_STATES)


def job(number: int) -> tuple[str, str, str, int]:
    """``(stage, attempt id, token, link)`` of a job: consistent, as in a real history."""
    stage = STAGES[number % 2]
    link = number // 2 + 1
    restart = number % 3 == 2
    return (
        stage,
        contract.attempt_id("local", str(8 + number), int(restart)),
        contract.token(RUN, stage, link),
        link,
    )


@st.composite
def drafts(draw: st.DrawFn) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """One event without writer and time: ``(type, fields, data)``."""
    kind = draw(st.sampled_from([*TYPES, *["progress"] * 20, *["job.observed"] * 4, "from.later"]))
    stage, attempt, token, link = job(draw(st.integers(0, 5)))
    epoch, step = draw(st.integers(0, 1)), draw(st.integers(0, 9))
    reason = draw(st.sampled_from(["", "why", "λ"]))
    data: dict[str, Any] = {"token": token, "reason": reason, "epoch": epoch}
    fields: dict[str, Any] = {"stage": stage}
    if kind == "run.created":
        data = {"name": draw(st.sampled_from(["demo", "other"])), "cluster": "local"}
        data["stages"] = [
            {"name": "prepare", "kind": "text"},
            {"name": "train", "kind": "pretrain", "needs": ["prepare"], "max_links": 9},
        ]
        fields = {}
    elif kind in ("run.resumed", "run.cancelled"):
        data, fields = {"stages": {stage: epoch}}, {}
    elif kind.startswith("submission."):
        data |= {"cluster": "local", "link": link, "job_id": str(8 + draw(st.integers(0, 5)))}
        data["looked_up"] = draw(st.booleans())
    elif not kind.startswith(("stage.", "link.")) and kind != "data.built":
        fields |= {"attempt": attempt, "cycle": epoch, "node": draw(st.sampled_from(["n1", "n2"]))}
        data |= {"step": step, "exit_code": draw(st.sampled_from([0, 1, 75, 137]))}
        data |= {"verdict": "go", "category": "code_error", "message": reason, "role": "trainer"}
        data["path"] = f"step-{step}"
        if kind == "progress":
            data = {
                "step": step,
                "loss": draw(st.sampled_from([None, 1.5, 2.0, "nan"])),
                "tokens": draw(st.sampled_from([None, 10, 20])),
                "section": draw(st.sampled_from(["step", "save"])),
            }
        if kind == "job.observed":
            data["state"] = draw(_STATE_WORDS)
            data["nodes"] = draw(st.sampled_from(["", "n[1-2]"]))
            data["submitted_at"], data["started_at"] = 1.0, draw(st.sampled_from([None, 2.0]))
            data["ended_at"] = draw(st.sampled_from([None, 3.0, 9.0]))
        if kind.startswith(("cycle.", "node.")) or kind in ("incident", "verdict", "decision", "preflight"):
            data |= {"node": draw(st.sampled_from([None, "n1", "n2"])), "cluster": "local"}
            data |= {"category": draw(st.sampled_from(["hang", "node_down", "code_error"]))}
            data |= {"signature": reason, "continued": draw(st.booleans()), "nodes": ["n1", "n2"]}
            data |= {"until": float(step * 10), "out": "n1", "in": draw(st.sampled_from(["n2", "n3"]))}
            data |= {"exclude": draw(st.sampled_from([[], ["n1"]])), "failed": ["n2"], "confidence": 0.5}
        if kind == "eval.result":
            data = {"metrics": {"bpb": draw(st.floats(0, 9)), "more": {"n": step}}}
    if kind == "link.excluding":
        data["nodes"] = draw(st.sampled_from([[], ["n1"]]))
    if draw(st.integers(0, 19)) == 0:
        name = draw(st.sampled_from(["step", "epoch", "stages", "job_id", "metrics", "token"]))
        data[name] = draw(st.sampled_from([None, "x", [], {"a": []}, -1, 2**70, [1], 1.5]))
    return kind, fields, data


@st.composite
def histories(draw: st.DrawFn, *, max_size: int = 40) -> list[Event]:
    """Events of several writers, each numbered from 1; clocks go wrong and times coincide."""
    counts = dict.fromkeys(WRITERS, 0)
    events: list[Event] = []
    for kind, fields, data in draw(st.lists(drafts(), max_size=max_size)):
        writer = draw(st.sampled_from(WRITERS))
        counts[writer] += 1
        ts = float(draw(st.integers(1, 12)))
        events.append(Event(kind, RUN, writer, counts[writer], ts, ts, data=data, **fields))
    return events
