"""What happened in a cycle, what it is taken for, and what is done about it: journaled in that order.

The verdict is ``resiliency.diagnosis``'s, the decision ``resiliency.policy``'s: here are only the facts
they need, from the agents' words and the run's journal. ``tests/launch/test_incidents.py``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from resiliency import exclusion, exitcodes, policy
from resiliency.diagnosis import AttemptEvidence, Verdict, diagnose
from resiliency.errors import StorageError
from resiliency.health import NodeHealth, Status, settle
from resiliency.redact import redact
from resiliency.state import Attempt, Stage
from resiliency.taxonomy import Action

from . import reading
from .leftover import say
from .outcome import RankEnd, speaker
from .segment import Segment
from .shrink import largest
from .team import Member, Team

#: Lines of evidence that a verdict keeps.
_EVIDENCE: Final = 8


@dataclass(frozen=True)
class Incident:
    """Something in a running cycle that must be decided on. Times are Unix seconds of this host.

    ``onset``: the last sign that all was well, as far as known. ``end``: what it adds to the ends of the
    ranks (a hang has no exit code of its own).
    """

    kind: str  # rank_end, hang, node_lost, straggler
    detail: str
    onset: float
    detected: float
    node: str | None = None
    rank: int | None = None
    step: int | None = None
    end: RankEnd | None = None
    evidence: tuple[str, ...] = ()
    swap: bool = False  # a straggler that is to be replaced


def rank_end(team: Team) -> Incident | None:
    """The cycle's ranks have ended, or one failed; None when all ended well."""
    first = team.first_failed()
    said = speaker([*team.ends(), *([first] if first else [])])
    if said is None or not said.failed:
        return None
    first = first or said
    who = f"rank {first.rank}" if first.rank is not None else "the launcher"
    where = f" on {first.node}" if first.node else ""
    why = f": {first.summary}" if first.summary else ""
    detail = f"{who}{where} ended with {first.code} ({exitcodes.describe(first.code)}){why}"
    return Incident(
        "rank_end", redact(detail), first.at, time.time(), first.node or None, first.rank,
        end=first if first.rank is None else None,  # a launcher or a role: no rank tells of it
    )  # fmt: skip


def node_lost(team: Team) -> Incident:
    member = team.lost_members()[0]
    return Incident("node_lost", str(member.lost), time.time(), time.time(), member.node)


# -- nodes and their checks --------------------------------------------------------------------


def checked(segment: Segment, team: Team, cycle: int, nodes: Sequence[str]) -> None:
    """Journal what the checks found; a node that failed them is barred."""
    told = [(m, m.health) for m in (team.members[node] for node in nodes) if m.health is not None]
    seen = list(zip((m for m, _ in told), settle([health for _, health in told]), strict=True))
    for member, health in seen:
        member.health = health
    notable: list[dict[str, Any]] = []
    worst = Status.OK
    for member, health in seen:
        worst = max(worst, health.worst, key=_severity)
        for check in health.checks:
            if check.status in (Status.WARN, Status.CRITICAL):
                notable.append(
                    {"node": member.node, "check": check.name, "status": check.status.value,
                     "category": check.category, "detail": redact(check.detail)[:300]}
                )  # fmt: skip
        if health.failed and member.barred is None:
            team.bar(member.node, f"{member.node} failed its checks: {health.summary_line()}")
            say(str(member.barred))
    failed = [member.node for member, health in seen if health.failed]
    # A node's checks run side by side, and so do the nodes.
    took = max((check.seconds for _, health in seen for check in health.checks), default=0.0)
    data = {
        "cycle": cycle,
        "status": worst.value,
        "seconds": round(took, 3),
        "checks": notable[:64],
        "failed": failed,
    }
    segment.journal.append("preflight", data, cycle=cycle)


def _severity(status: Status) -> int:
    return (Status.OK, Status.UNKNOWN, Status.WARN, Status.CRITICAL).index(status)


def health_category(member: Member) -> str:
    """The category of a node that failed its checks; empty when they prove none."""
    health = member.health
    return str(getattr(health, "category", "") or "") if isinstance(health, NodeHealth) else ""


# -- evidence ----------------------------------------------------------------------------------


def evidence_dir(segment: Segment, cycle: int) -> Path:
    """Where stacks and records of a cycle are kept."""
    name = f"link-{segment.link:03d}.{segment.allocation.restart_count}.cycle-{cycle}"
    return segment.paths.evidence(segment.config.name) / name


def keep_evidence(segment: Segment, team: Team, incident: Incident, directory: Path) -> None:
    found = [item for member in team.working() for item in (member.evidence or [])]
    data = {
        "cycle": team.cycle,
        "files": str(directory),
        "culprits": [{"rank": incident.rank, "node": incident.node, "why": incident.detail}],
        "records": found[:64],
    }
    segment.journal.append("hang.evidence", data, sync=True, cycle=team.cycle)


# -- verdict and decision ----------------------------------------------------------------------


def decide(
    segment: Segment, team: Team, incident: Incident, ends: Sequence[RankEnd], step: int | None
) -> policy.Decision:
    """The policy's word on an incident; journaled with all that led to it."""
    journal, cycle = segment.journal, team.cycle
    steps = [member.step for member in team.members.values() if member.step is not None]
    reached = max([*steps, *([step] if step is not None else [])], default=None)
    journal.append("incident", _incident_data(incident, cycle, reached), sync=True, cycle=cycle)
    try:
        stage = segment.state().stage(segment.config.name)
    except StorageError as error:
        say(f"{error}; ending without a decision")
        return policy.Decision(Action.REQUEUE, "journal-unreadable", error.message)
    attempt = stage.attempts.get(segment.attempt)
    mine = attempt.cycles.get(cycle) if attempt is not None else None
    if mine is not None and mine.step is not None:  # of this cycle: an earlier one may have got further
        reached = max(reached or 0, mine.step)
    verdict = _verdict(segment, incident, ends, attempt, cycle)
    if verdict.category == "unknown":
        verdict = _read(verdict, segment, team)
    past = _past(segment, verdict, attempt, cycle, reached)
    history = [*_history(stage, attempt), past]
    decision = policy.decide(verdict, history, segment.config.budgets, capacity(segment, team, incident))
    shadow = bool(segment.config.recovery.get("shadow"))
    _say(segment, cycle, verdict, decision, shadow)
    if shadow:
        decision = policy.shadowed(decision)
    ended = {
        **_codes(cycle, ends),
        "category": verdict.category,
        "signature": verdict.signature,
        "reason": redact(verdict.reason),
        "step": reached,
        "saved_step": attempt.checkpoint_step if attempt else None,
        "node": verdict.node,
        "rank": verdict.rank,
        "continued": decision.stays,
    }
    journal.append("cycle.ended", ended, sync=True, cycle=cycle)
    return decision


def worth_a_restart(segment: Segment, team: Team, incident: Incident) -> bool:
    """Whether the policy ends a cycle for a slow rank. If not, its word is journaled and the cycle goes on.

    In shadow nothing is done, as without us: a slow rank ends nothing by itself.
    """
    verdict = Verdict("straggler", redact(incident.detail), node=incident.node, rank=incident.rank)
    decision = policy.decide(verdict, (), segment.config.budgets, capacity(segment, team, incident))
    shadow = bool(segment.config.recovery.get("shadow"))
    if decision.action is Action.SWAP_NODE and not shadow:
        return True
    data = {**decision.as_data(), "in_job": True, "shadow": shadow}
    segment.journal.append("decision", data, sync=True, cycle=team.cycle)
    return False


def over(segment: Segment, team: Team, ends: Sequence[RankEnd], step: int | None) -> None:
    """Journal the end of a cycle that needs no decision of its own: the attempt's follows."""
    said = speaker(ends)
    steps = [member.step for member in team.members.values() if member.step is not None]
    data = {
        **_codes(team.cycle, ends),
        "category": said.category if said else "",
        "reason": redact(said.summary) if said else "",
        "step": max([*steps, *([step] if step is not None else [])], default=None),
        "continued": False,
    }
    segment.journal.append("cycle.ended", data, sync=True, cycle=team.cycle)


def _codes(cycle: int, ends: Sequence[RankEnd]) -> dict[str, Any]:
    """How the ranks ended: exit code → how many; those that failed in full, as far as there is room."""
    codes = Counter(str(end.code) for end in ends)
    failed = sorted((end for end in ends if end.failed), key=lambda end: end.at)
    shown = [{**end.as_data(), "summary": redact(end.summary)} for end in failed[:16]]
    return {"cycle": cycle, "codes": dict(codes), "failed": shown}


def _incident_data(incident: Incident, cycle: int, step: int | None) -> dict[str, Any]:
    return {
        "cycle": cycle,
        "kind": incident.kind,
        "onset": round(incident.onset, 3),
        "detected": round(incident.detected, 3),
        "node": incident.node,
        "rank": incident.rank,
        "step": incident.step if incident.step is not None else step,
        "detail": incident.detail,
        "evidence": list(incident.evidence[:_EVIDENCE]),
    }


def _verdict(
    segment: Segment, incident: Incident, ends: Sequence[RankEnd], attempt: Attempt | None, cycle: int
) -> Verdict:
    said = speaker(ends) or RankEnd(None, 1, time.time(), "nothing is known of any rank")
    category, message = said.category or None, said.summary
    error = attempt.error_of(cycle) if attempt is not None else None
    if error is not None and incident.kind == "rank_end":
        category, message = str(error.get("category")), str(error.get("message", ""))
    found = diagnose(
        AttemptEvidence(
            exit_code=said.code, error_category=category, error_message=message, started=True, gate="go"
        )
    )
    node = said.node or incident.node
    rank = said.rank if said.rank is not None else incident.rank
    if error is not None and incident.kind == "rank_end" and error.get("node"):
        # The program itself knows whose fault it was (a wrong result, say); who ended first does not matter.
        node, rank = str(error["node"]), error.get("rank")
    signature = found.signature
    if found.category == "unknown":
        # Two unexplained ends are the same only if they read the same.
        signature = f"unknown:{said.code}:{said.summary[:200]}"
    reason = (
        found.reason
        if not said.summary or said.summary in found.reason
        else (f"{found.reason} ({said.summary})")
    )
    evidence = tuple(dict.fromkeys([*found.evidence, *incident.evidence]))[:_EVIDENCE]
    return replace(found, node=node, rank=rank, signature=signature, reason=redact(reason), evidence=evidence)


def _read(verdict: Verdict, segment: Segment, team: Team) -> Verdict:
    """An end that explains nothing: what the logs say of it."""
    ranks = team.places(segment.config.launch.ranks_per_node)
    words = {member.node: member.last_words for member in team.working()}
    found = reading.read(words, evidence_dir(segment, team.cycle), ranks=ranks)
    if found is None:
        return verdict
    lines = tuple(dict.fromkeys([*found.evidence, *verdict.evidence]))[:_EVIDENCE]
    reason = f"{verdict.reason}; the logs show {found.words}"
    if not found.category:
        return replace(verdict, reason=reason, evidence=lines)
    return replace(
        verdict,
        category=found.category,
        reason=reason,
        evidence=lines,
        confidence=found.confidence,
        node=found.node or verdict.node,
        rank=found.rank if found.rank is not None else verdict.rank,
        signature=f"{found.category}:{verdict.signature}",
    )


def _past(
    segment: Segment, verdict: Verdict, attempt: Attempt | None, cycle: int, step: int | None
) -> policy.PastAttempt:
    return policy.PastAttempt(
        category=verdict.category,
        signature=verdict.signature,
        step=step,
        progressed=attempt.progressed_in(cycle) if attempt else False,
        node=verdict.node,
        in_job=True,
    )


def _history(stage: Stage, attempt: Attempt | None) -> list[policy.PastAttempt]:
    """What came before: ended attempts, and this one's earlier cycles."""
    mine = attempt.past_cycles() if attempt is not None and not attempt.ended else []
    return [*stage.history(), *mine]


def capacity(segment: Segment, team: Team, incident: Incident) -> policy.Capacity:
    """What this allocation still offers."""
    launch, allocation = segment.config.launch, segment.allocation
    left: float | None = None
    if allocation.time_limit_s is not None:
        left = allocation.time_limit_s - (time.time() - segment.started_at) - launch.signal_lead_s
    usable = [node for node in team.usable() if node != incident.node]
    fewer = largest(segment.config, len(usable))
    return policy.Capacity(
        in_job=True,
        restarts_left=max(0, launch.restarts_in_job - team.cycle),
        spares=len(team.spares()),
        can_shrink=fewer is not None and fewer < len(team.training),
        time_left_s=left,
        restart_cost_s=launch.startup_s,
        straggler_swap=incident.swap,
    )


def _say(segment: Segment, cycle: int, verdict: Verdict, decision: policy.Decision, shadow: bool) -> None:
    segment.journal.append(
        "verdict",
        {
            "category": verdict.category,
            "role": verdict.role,
            "confidence": verdict.confidence,
            "reason": redact(verdict.reason),
            "node": verdict.node,
            "rank": verdict.rank,
            "signature": redact(verdict.signature),
            "evidence": [redact(line) for line in verdict.evidence],
            "source": "supervisor",
        },
        cycle=cycle,
    )
    data = {**decision.as_data(), "reason": redact(decision.reason), "in_job": True, "shadow": shadow}
    data["evidence"] = [redact(line) for line in decision.evidence]
    segment.journal.append("decision", data, sync=True, cycle=cycle)
    if shadow:
        return
    settings = exclusion.Settings.read(segment.config.recovery.get("exclusion"))
    for order in exclusion.ordered(
        decision, verdict, cluster=segment.config.cluster, settings=settings, now=time.time()
    ):
        told = {**order.as_data(), "reason": redact(order.reason), "evidence": data["evidence"]}
        segment.journal.append("node.excluded", told, sync=True, cycle=cycle, node=order.node)
