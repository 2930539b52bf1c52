"""From the chosen hit to a verdict: place, action, confidence, chain, alternatives.

The rule that costs most when broken is here: a node is named for exclusion only if a line proves its
fault, it is this job's, and it is not every node's fault. ``tests/resiliency/triage/test_variants.py``.
"""

from __future__ import annotations

from ..taxonomy import Action, category
from . import ended, words
from .case import Case
from .choose import Choice
from .model import AMBIGUOUS, CASCADE, ROOT, Hit, TriageVerdict
from .timeline import Timeline

#: Categories with no place: a node may be known and still says nothing.
PLACELESS = frozenset(
    {
        "code_error",
        "config_error",
        "data_error",
        "checkpoint_mismatch",
        "code_desync",
        "storage_full",
        "storage_quota",
        "storage_stale",
        "checkpoint_corrupt",
        "container_image",
        "time_limit",
        "preempted",
        "requeued",
        "user_cancelled",
        "planned_rollover",
        "submit_uncertain",
        "healthy",
        "unknown",
        "comm_timeout",
        "rendezvous",
        "shm_exhausted",
    }
)
AFTERWARDS = frozenset(
    {
        Action.NONE,
        Action.RESTART_IN_JOB,
        Action.REQUEUE,
        Action.REQUEUE_EXCLUDING,
        Action.ROLLBACK_CHECKPOINT,
        Action.HOLD,
        Action.STOP,
    }
)
#: Failures at the start, which srun reports per node even where the lines themselves name none.
BY_EXIT = frozenset({"container_node", "driver_mismatch", "fabric_manager"})
#: Findings about one rank, whatever their category.
NAMED = frozenset({"flight-missing-rank", "stacks-odd-one-out", "monitored-barrier", "hang-culprit"})
MANY = {"driver_mismatch": Action.STOP, "fabric_manager": Action.HOLD, "container_node": Action.STOP}
EVERYONES = frozenset({"driver_mismatch", "fabric_manager", "container_node", "gpu_firmware"})
#: Lines that show a fault of the node itself even in a job of one node.
LOCAL_BY_ITSELF = (
    "Driver/library version mismatch",
    "couldn't communicate with the NVIDIA driver",
    "API mismatch",
)


def conclude(case: Case, line: Timeline, choice: Choice, derived: list[Hit]) -> TriageVerdict:
    healthy = ended.healthy(case, line, choice)
    if healthy is not None:
        return healthy
    hit = choice.hit
    if hit is None:
        return ended.unknown(case, line, choice)
    row = category(hit.category)
    name = hit.category
    everyone, affected = _everyone(case, line, choice)
    node, rank, gpu = _where(case, line, choice, everyone)
    if name == "container_image" and _one_node_only(case, choice) and not _registry(hit):
        name, node = "container_node", _one_node_only(case, choice)
        row = category(name)
    action = _action(case, hit, name, node, everyone, choice)
    verdict = TriageVerdict(
        name,
        row.domain,
        action,
        node=node,
        rank=rank,
        gpu=gpu,
        confidence=_confidence(case, choice, node, everyone),
        reason=words.reason(hit, row.phrase, choice.why),
        evidence=words.evidence(choice, line),
        chain=words.chain(line, derived, choice),
        alternatives=words.alternatives(choice),
        signature=words.signature(hit),
        step=words.step(hit, line),
        notes=[*line.notes],
    )
    if everyone:
        verdict.notes.append(f"{len(affected)} nodes show it: not one node's fault")
    return verdict


# -- place -------------------------------------------------------------------------------------------------


def _everyone(case: Case, line: Timeline, choice: Choice) -> tuple[bool, set[str]]:
    """Whether the fault shows on so many of the job's nodes that it is not one node's; and on which."""
    assert choice.hit is not None
    same = [choice.hit, *(h for h in choice.supporting if h.role == ROOT or choice.hit.role == AMBIGUOUS)]
    nodes = {h.node or h.groups.get("task_node") or "" for h in same} - {""}
    total = len(case.nodes)
    if choice.hit.category in BY_EXIT and not nodes:
        nodes = _exits(line)
    if choice.hit.kind == "scheduler" and choice.hit.category in (
        "node_down",
        "node_prolog",
        "node_unkillable",
    ):
        return False, nodes
    return (len(nodes) >= 2 and (total == 0 or len(nodes) * 2 > total)), nodes


def _where(
    case: Case, line: Timeline, choice: Choice, everyone: bool
) -> tuple[str | None, int | None, int | None]:
    hit = choice.hit
    assert hit is not None
    rank, gpu, node = hit.rank, hit.gpu, hit.node
    support = [h for h in choice.supporting if h.role == ROOT or hit.role != ROOT]
    if node is None:
        named = {h.node for h in support if h.node}
        if len(named) == 1:
            node = named.pop()
    if node is None and hit.category in BY_EXIT:
        node = _only_exit(case, line)
    if node is None and hit.category in ("node_down",):
        named = {h.node for h in line.current if h.signature == "node-failure" and h.node}
        node = named.pop() if len(named) == 1 else None
    if rank is None and node is not None and hit.kind == "kernel":
        rank = _rank_of(case, line, hit, node)
    if hit.category in ("numeric",) and hit.signature != "rerun-first-reproducible":
        node = None
    if hit.category in ("ib_link", "hca_failure", "node_down", "node_prolog", "node_unkillable", "host_oom"):
        rank = None if hit.kind == "kernel" or hit.category != "host_oom" else rank
    if hit.category in ("ib_transport", "net_other"):
        node, rank, gpu = _peer_or_none(choice), None, None
    if hit.signature in NAMED and rank is not None:
        return node, rank, gpu
    if hit.category in PLACELESS or everyone:
        fan_out = {h.rank for h in [hit, *support] if h.rank is not None}
        if len(fan_out) > 1 and hit.category != "data_error":
            rank = None
        return None, rank if not everyone else None, None
    if hit.category in ("gpu_firmware", "fabric_manager", "driver_mismatch"):
        rank = None if hit.kind == "kernel" else rank
        ranks = {h.rank for h in [hit, *support]}
        rank = rank if len(ranks) == 1 else None
    return node, rank, gpu


def _rank_of(case: Case, line: Timeline, hit: Hit, node: str) -> int | None:
    """The rank on this node that failed first: the one that used the broken GPU, as far as anything says."""
    first = sorted(
        (
            h
            for h in line.current
            if h.rank is not None and h.kind == "log" and h.role in (ROOT, AMBIGUOUS) and not h.survived
        ),
        key=lambda h: (h.time if h.time is not None else float("inf"), h.order),
    )
    for other in first:
        if other.category in ("comm_timeout", "hang", "rendezvous"):
            continue
        if other.node in (None, node) or other.pid == hit.pid:
            return (
                other.rank
                if other.node == node or (other.node is None and _plausible(case, other.rank, node))
                else None
            )
    return None


def _exits(line: Timeline) -> set[str]:
    """Nodes whose task ended by itself with an error, not because srun ended it."""
    return {
        h.node
        for h in line.current
        if h.signature == "task-exit" and h.groups.get("code", "0") != "0" and h.node
    }


def _only_exit(case: Case, line: Timeline) -> str | None:
    exits = _exits(line)
    return exits.pop() if len(exits) == 1 and len(case.nodes) > 1 else None


def _plausible(case: Case, rank: int | None, node: str) -> bool:
    """A rank whose node nothing names: whether the usual order of ranks puts it there."""
    if rank is None or node not in case.nodes:
        return False
    index = case.nodes.index(node)
    return any(rank // size == index for size in (1, 2, 4, 8, 16) if rank < size * len(case.nodes))


def _peer_or_none(choice: Choice) -> str | None:
    """The peer that several reporters name; one report does not say which side is at fault."""
    assert choice.hit is not None
    hits = [choice.hit, *choice.supporting]
    reporters: dict[str, set[str]] = {}
    for hit in hits:
        if hit.peer:
            reporters.setdefault(hit.peer, set()).add(hit.groups.get("reporter") or str(hit.rank))
    named = [peer for peer, who in reporters.items() if len(who) >= 2]
    return named[0] if len(named) == 1 and len(reporters) == 1 and not named[0][:1].isdigit() else None


def _one_node_only(case: Case, choice: Choice) -> str | None:
    assert choice.hit is not None
    nodes = {h.node for h in [choice.hit, *choice.supporting] if h.node}
    return nodes.pop() if len(nodes) == 1 and len(case.nodes) > 1 else None


def _registry(hit: Hit) -> bool:
    return "returned error code" in hit.text or any(
        word in hit.text
        for word in (
            "manifest unknown",
            "unauthorized",
            "denied",
            "does not exist",
            "toomanyrequests",
            "Invalid image",
        )
    )


# -- action and confidence -----------------------------------------------------------------------------------


def _action(case: Case, hit: Hit, name: str, node: str | None, everyone: bool, choice: Choice) -> str:
    row = category(name)
    # Of an ended job nothing is left that could wait or go on.
    action = row.action.value if row.action in AFTERWARDS else Action.RESTART_IN_JOB.value
    if name == "unknown":
        return "restart_in_job"
    proof = hit.proof or any(h.proof and h.node == node for h in choice.supporting)
    if name == "storage_io":
        return _storage_action(case, hit, node, proof, choice)
    if not row.node_fault:
        return action
    if everyone:
        return MANY.get(name, Action.REQUEUE).value
    if (
        name in EVERYONES
        and len(case.nodes) <= 1
        and not any(t in hit.text for t in LOCAL_BY_ITSELF)
        and name != "gpu_firmware"
    ):
        return MANY.get(name, Action.HOLD).value
    if node is None:
        return MANY[name].value if name in MANY and name != "container_node" else "requeue"
    ours = not case.nodes or node in case.nodes or node.split(".")[0] in {n.split(".")[0] for n in case.nodes}
    return action if proof and ours else "requeue"


def _storage_action(case: Case, hit: Hit, node: str | None, proof: bool, choice: Choice) -> str:
    """A node's own disk is the node's; a shared file system is not, however many clients it drops."""
    nodes = {h.node for h in [hit, *choice.supporting] if h.kind == "kernel" and h.node}
    if hit.signature == "local-disk-failed" and proof and len(nodes) == 1 and len(case.nodes) > 1:
        return "requeue_excluding"
    return "hold"


def _confidence(case: Case, choice: Choice, node: str | None, everyone: bool) -> float:
    hit = choice.hit
    assert hit is not None
    value = {ROOT: 0.85, AMBIGUOUS: 0.6, CASCADE: 0.4}.get(hit.role, 0.5)
    if hit.generic:
        value -= 0.1
    if hit.proof or (case.run is not None and hit.kind == "scheduler"):
        value += 0.1
    kinds = {h.kind for h in [hit, *choice.supporting]}
    if len(kinds) > 1:
        value += 0.05
    close = [r for r in choice.rivals if r.role == ROOT and not r.generic and _near(r, hit)]
    value -= 0.15 * min(2, len(close))
    if choice.weak:
        value -= 0.15
    return max(0.1, min(0.98, value))


def _near(one: Hit, two: Hit) -> bool:
    if one.time is None or two.time is None:
        return True
    return abs(one.time - two.time) < 30
