"""The decision table: situations with the action and rule that :func:`resiliency.policy.decide` must give.

Written by hand, read by ``tests/resiliency/test_decision_rows.py`` (each row is a test) and by
``scripts/decision-table.py``, which makes docs/decisions.md of it. Changes no decision itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from .diagnosis import Verdict
from .policy import Budgets, Capacity, PastAttempt
from .taxonomy import CATEGORIES

#: Where a first failure of its kind happens: column → (what it means, what there is).
PLACES: Final[Mapping[str, tuple[str, Capacity]]] = {
    "over": ("the allocation is over", Capacity()),
    "inside": ("the allocation still runs; restarts are left, no spare node",
               Capacity(in_job=True, restarts_left=3)),
    "spare": ("the same, with a spare node", Capacity(in_job=True, restarts_left=3, spares=1)),
    "fewer": ("no spare, but the stage may go on with fewer nodes",
              Capacity(in_job=True, restarts_left=3, can_shrink=True)),
    "used up": ("no restarts left, no spare", Capacity(in_job=True)),
    "late": ("less time left than a start takes",
             Capacity(in_job=True, restarts_left=3, spares=1, time_left_s=20.0, restart_cost_s=60.0)),
}  # fmt: skip

_STOP: Final = ("stop",) * 6
_HOLD: Final = ("hold",) * 6
_GOES_ON: Final = ("requeue",) * 6
_RESTART: Final = ("requeue", *("restart_in_job",) * 3, "requeue", "requeue")
_NODE: Final = (
    "requeue_excluding", "requeue_excluding", "swap_node", "shrink", "requeue_excluding", "requeue_excluding"
)  # fmt: skip

#: Category → the action in each of PLACES when it is the first failure and names a node.
FIRST: Final[Mapping[str, tuple[str, ...]]] = {
    "healthy": ("none",) * 6,
    **dict.fromkeys(("time_limit", "preempted", "requeued", "planned_rollover"), _GOES_ON),
    **dict.fromkeys(
        (
            "user_cancelled", "config_error", "data_error", "gpu_oom", "numeric", "checkpoint_mismatch",
            "host_oom", "shm_exhausted", "container_image",
        ),
        _STOP,
    ),
    **dict.fromkeys(("storage_full", "storage_quota", "storage_io", "submit_uncertain"), _HOLD),
    **dict.fromkeys(
        (
            "code_error", "framework_crash", "code_desync", "comm_timeout", "rendezvous", "gpu_fault",
            "ib_transport", "net_other", "storage_stale", "hang", "launch_failed", "unknown",
        ),
        _RESTART,
    ),
    **dict.fromkeys(
        (
            "gpu_ecc", "gpu_off_bus", "gpu_nvlink", "gpu_firmware", "sdc_suspected", "ib_link", "hca_failure",
            "node_down", "node_prolog", "node_unkillable", "container_node", "driver_mismatch",
            "fabric_manager",
        ),
        _NODE,
    ),
    "checkpoint_corrupt": ("rollback_checkpoint",) * 4 + ("requeue",) * 2,
    "straggler": ("requeue", *("continue",) * 5),
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One situation. ``history`` ends with what is decided on; empty: the verdict alone."""

    group: str
    situation: str
    verdict: Verdict
    action: str
    rule: str
    history: tuple[PastAttempt, ...] = ()
    capacity: Capacity = field(default_factory=Capacity)
    budgets: Budgets = field(default_factory=Budgets)
    exclude: tuple[str, ...] = ()


_INSIDE: Final = PLACES["inside"][1]
_SPARE: Final = PLACES["spare"][1]


def _v(category: str, *, node: str | None = "n1", sure: float = 0.95, signature: str = "") -> Verdict:
    return Verdict(category, "why", confidence=sure, node=node, signature=signature or category)


def _p(category: str, step: int | None = 5, *, node: str | None = "n1", signature: str = "",
       saved: bool = False, cycle: bool = False, worked: bool = True) -> PastAttempt:  # fmt: skip
    return PastAttempt(category, signature or category, step, saved, worked, 0.0, node, cycle)


def rows() -> Iterator[Row]:
    """Every row that is more than a first failure."""
    yield from _same_again()
    yield from _allowances()
    yield from _nodes()
    yield from _slow()


def _same_again() -> Iterator[Row]:
    group, code, hang = "The same failure again", _v("code_error"), _v("hang")
    once, inside = _p("code_error"), _p("code_error", cycle=True)
    stop = "same-signature-same-step"
    yield Row(group, "two attempts, same signature, same step", code, "stop", stop, (once, once))
    yield Row(group, "an earlier cycle and this one, same signature, same step", code, "stop", stop,
              (inside, inside), _INSIDE)  # fmt: skip
    yield Row(group, "the same, with a spare node: code follows the work", code, "stop", stop,
              (inside, inside), _SPARE)  # fmt: skip
    yield Row(group, "a cycle of an earlier attempt and this cycle", code, "stop", stop,
              (inside, _p("node_down", 6), inside), _INSIDE)  # fmt: skip
    yield Row(group, "it came back after progress and other ends", code, "stop", stop,
              (once, _p("preempted", 9, saved=True), once))  # fmt: skip
    yield Row(group, "same signature, another step", code, "requeue", "retry:code_error",
              (once, _p("code_error", 6)))  # fmt: skip
    yield Row(group, "same step, another signature", code, "requeue", "retry:code_error",
              (_p("code_error", signature="other"), once))  # fmt: skip
    yield Row(group, "no step is known: two equal exits prove nothing", _v("unknown"), "requeue",
              "category:unknown", (_p("unknown", None), _p("unknown", None)))  # fmt: skip
    twice = (_p("hang", cycle=True), _p("hang", cycle=True))
    yield Row(group, "a hang twice at one step, on one node only, and there is a spare", hang, "swap_node",
              "same-node-twice", twice, _SPARE)  # fmt: skip
    yield Row(group, "the same without a spare", hang, "stop", stop, twice, _INSIDE)
    yield Row(group, "the same with a spare, and the allocation is nearly over", hang, "stop", stop, twice,
              PLACES["late"][1])  # fmt: skip
    yield Row(group, "it showed on another node after the swap", _v("hang", node="n2"), "stop", stop,
              (*twice, _p("hang", node="n2", cycle=True)), _SPARE, Budgets(unexplained=9))  # fmt: skip
    yield Row(group, "it is not known on which node", _v("hang", node=None), "stop", stop,
              (_p("hang", node=None), _p("hang", node=None)), _SPARE)  # fmt: skip


def _allowances() -> Iterator[Row]:
    group, unknown = "Allowances", _v("unknown")
    lost = _p("unknown", 1, cycle=True), _p("unknown", 2, cycle=True), _p("unknown", 3, cycle=True)
    yield Row(group, "three unexplained ends in a row, cycles or attempts", unknown, "stop",
              "budget:unexplained", lost, _INSIDE)  # fmt: skip
    yield Row(group, "progress between them", unknown, "restart_in_job", "in-job:unknown",
              (*lost[:2], _p("unknown", 3, saved=True, cycle=True)), _INSIDE)  # fmt: skip
    yield Row(
        group,
        "lost nodes and preemptions between them do not count",
        unknown,
        "restart_in_job",
        "in-job:unknown",
        (lost[0], *[_p("node_down")] * 4, *[_p("preempted")] * 4, lost[1]),
        _INSIDE,
    )
    yield Row(group, "five launches in a row", _v("rendezvous"), "stop", "budget:launch",
              (_p("rendezvous", None, worked=False),) * 5)  # fmt: skip
    yield Row(group, "three links to their time limit without a save", _v("time_limit"), "stop",
              "budget:no-progress", (_p("time_limit"),) * 3)  # fmt: skip
    yield Row(
        group,
        "three in a row at the time limit, the last saved",
        _v("time_limit"),
        "requeue",
        "category:time_limit",
        (_p("time_limit"), _p("time_limit"), _p("time_limit", saved=True)),
    )
    yield Row(group, "the stage's wall time is used", _v("preempted"), "stop", "budget:total-wall-time",
              (_p("preempted"),), Capacity(wall_used_s=100.0), Budgets(total_wall_s=100.0))  # fmt: skip
    yield Row(group, "all links are used", _v("preempted"), "stop", "budget:max-links", (_p("preempted"),),
              Capacity(links_used=4), Budgets(max_links=4))  # fmt: skip
    yield Row(group, "restarts in the job are used up", _v("framework_crash"), "requeue",
              "in-job:no-restarts-left", (_p("framework_crash"),), PLACES["used up"][1])  # fmt: skip
    yield Row(group, "less time left than a start takes", _v("framework_crash"), "requeue",
              "in-job:no-time-left", (_p("framework_crash"),), PLACES["late"][1])  # fmt: skip
    yield Row(group, "a torn checkpoint, restarts left", _v("checkpoint_corrupt"), "rollback_checkpoint",
              "in-job:roll-back", (_p("checkpoint_corrupt"),), _INSIDE)  # fmt: skip


def _nodes() -> Iterator[Row]:
    group, down = "Nodes", _v("node_down")
    nine = (_p("node_down", cycle=True),) * 9
    yield Row(group, "a lost node, a spare: however often it happens", down, "swap_node", "in-job:spare",
              nine, _SPARE, exclude=("n1",))  # fmt: skip
    yield Row(group, "no restarts left, a spare: a lost node uses none", down, "swap_node", "in-job:spare",
              nine[:1], Capacity(in_job=True, spares=1), exclude=("n1",))  # fmt: skip
    yield Row(group, "no spare, fewer nodes allowed", down, "shrink", "in-job:shrink", nine[:1],
              PLACES["fewer"][1], exclude=("n1",))  # fmt: skip
    yield Row(group, "neither", down, "requeue_excluding", "in-job:no-spare", nine[:1], _INSIDE,
              exclude=("n1",))  # fmt: skip
    yield Row(group, "a proven fault, not known of which node", _v("gpu_ecc", node=None), "restart_in_job",
              "in-job:gpu_ecc", (_p("gpu_ecc", node=None),), _SPARE)  # fmt: skip
    yield Row(group, "a node's fault, but the verdict is not sure: swapped, and kept out of nothing else",
              _v("gpu_ecc", sure=0.6), "swap_node", "in-job:spare", (_p("gpu_ecc"),), _SPARE)  # fmt: skip
    sdc = _v("sdc_suspected", sure=0.6)
    once = _p("sdc_suspected")
    yield Row(group, "exit 16, a spare: same checkpoint on another node", sdc, "swap_node", "in-job:spare",
              (once,), _SPARE, exclude=("n1",))  # fmt: skip
    yield Row(group, "exit 16, no spare: the next link goes elsewhere", sdc, "requeue_excluding",
              "in-job:no-spare", (once,), _INSIDE, exclude=("n1",))  # fmt: skip
    yield Row(group, "exit 16 once more on the same node: it has not run elsewhere yet", sdc,
              "requeue_excluding", "category:sdc_suspected", (once, once), exclude=("n1",))  # fmt: skip
    yield Row(group, "exit 16 at the same step on two nodes: it is the work", _v("sdc_suspected", node="n2"),
              "stop", "same-signature-same-step", (once, _p("sdc_suspected", node="n2")), _SPARE)  # fmt: skip
    yield Row(group, "exit 17", _v("numeric"), "stop", "category:numeric", (_p("numeric"),), _SPARE)
    yield Row(group, "code fails on a node: the node stays", _v("code_error"), "requeue", "retry:code_error",
              (_p("code_error"),))  # fmt: skip


def _slow() -> Iterator[Row]:
    group, slow = "Slow ranks", _v("straggler")
    past = (_p("straggler", cycle=True),)
    swap = Capacity(in_job=True, spares=1, straggler_swap=True)
    late = Capacity(in_job=True, spares=1, straggler_swap=True, time_left_s=9.0, restart_cost_s=60.0)
    yield Row(group, "only reported (the default)", slow, "continue", "straggler:reported", past, _SPARE)
    yield Row(group, "to be swapped, and there is a spare", slow, "swap_node", "straggler:swap", past, swap)
    yield Row(group, "to be swapped, no spare", slow, "continue", "straggler:no-spare", past,
              Capacity(in_job=True, restarts_left=3, straggler_swap=True))  # fmt: skip
    yield Row(group, "to be swapped, nearly over", slow, "continue", "straggler:no-time-left", past, late)
    bad = tuple(_p("unknown", n, cycle=True) for n in range(3))
    yield Row(group, "a slow rank ends nothing, whatever was used up before", slow, "continue",
              "straggler:reported", (*bad, *past), _SPARE)  # fmt: skip


assert set(FIRST) == set(CATEGORIES), "a category without a row"
