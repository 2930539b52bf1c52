"""The one table of failure categories: domain, default action, whether it is provably the node's.

Policy, diagnosis, triage, docs and tests read this table; nothing else repeats it.
``tests/resiliency/test_taxonomy.py`` checks it against the labelled cases' taxonomy.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Action(str, Enum):
    """What may be done about a verdict."""

    NONE = "none"  # nothing: it is finished, or a person ended it
    WAIT = "wait"  # not enough is known yet (rule 6)
    CONTINUE = "continue"  # worth noting, nothing is done
    RESTART_IN_JOB = "restart_in_job"
    SWAP_NODE = "swap_node"  # a spare of the allocation takes the node's place
    SHRINK = "shrink"  # go on in the allocation with fewer nodes
    REQUEUE = "requeue"  # the next link goes on
    REQUEUE_EXCLUDING = "requeue_excluding"
    ROLLBACK_CHECKPOINT = "rollback_checkpoint"
    HOLD = "hold"  # wait for a person or a condition, nothing is lost
    STOP = "stop"  # deterministic: trying again would burn an allocation


class Budget(str, Enum):
    """Which allowance an attempt of this category uses."""

    FREE = "free"  # only the total wall-clock cap counts
    LAUNCH = "launch"  # the allocation never got to run the work
    UNEXPLAINED = "unexplained"
    TERMINAL = "terminal"  # never retried


@dataclass(frozen=True)
class Category:
    """One row. ``node_fault``: the evidence for this category proves that a node is at fault."""

    name: str
    domain: str
    action: Action
    budget: Budget
    node_fault: bool = False
    phrase: str = ""

    @property
    def node_suspect(self) -> bool:
        """One such failure proves nothing, but a node where several jobs have them may be at fault."""
        return self.name in NODE_SUSPECT


def _rows(domain: str, *rows: tuple[str, Action, Budget, bool, str]) -> list[Category]:
    return [Category(name, domain, a, b, node, phrase) for name, a, b, node, phrase in rows]


_A, _B = Action, Budget

_TABLE: list[Category] = [
    *_rows(
        "application",
        ("code_error", _A.STOP, _B.UNEXPLAINED, False, "the program raised an error"),
        ("config_error", _A.STOP, _B.TERMINAL, False, "the configuration cannot work"),
        ("data_error", _A.STOP, _B.TERMINAL, False, "the input data is missing or wrong"),
        ("gpu_oom", _A.STOP, _B.TERMINAL, False, "out of GPU memory"),
        ("numeric", _A.STOP, _B.TERMINAL, False, "the result is not a number or was rejected"),
        ("checkpoint_mismatch", _A.STOP, _B.TERMINAL, False, "the checkpoint is not this model's"),
    ),
    *_rows(
        "framework",
        ("framework_crash", _A.RESTART_IN_JOB, _B.UNEXPLAINED, False, "the framework crashed"),
        ("code_desync", _A.STOP, _B.UNEXPLAINED, False, "ranks called different collectives"),
        ("comm_timeout", _A.RESTART_IN_JOB, _B.UNEXPLAINED, False, "a collective timed out"),
        ("rendezvous", _A.RESTART_IN_JOB, _B.LAUNCH, False, "ranks did not find each other"),
    ),
    *_rows(
        "gpu",
        ("gpu_ecc", _A.REQUEUE_EXCLUDING, _B.FREE, True, "uncorrectable GPU memory error"),
        ("gpu_off_bus", _A.REQUEUE_EXCLUDING, _B.FREE, True, "a GPU fell off the bus"),
        ("gpu_nvlink", _A.REQUEUE_EXCLUDING, _B.FREE, True, "NVLink fault"),
        ("gpu_firmware", _A.REQUEUE_EXCLUDING, _B.FREE, True, "GPU firmware (GSP) fault"),
        ("gpu_fault", _A.RESTART_IN_JOB, _B.UNEXPLAINED, False, "GPU fault without proof of cause"),
        ("sdc_suspected", _A.REQUEUE_EXCLUDING, _B.UNEXPLAINED, True, "wrong results on one node"),
    ),
    *_rows(
        "network",
        ("ib_link", _A.REQUEUE_EXCLUDING, _B.FREE, True, "InfiniBand link down or flapping"),
        ("ib_transport", _A.RESTART_IN_JOB, _B.UNEXPLAINED, False, "InfiniBand transport error"),
        ("hca_failure", _A.REQUEUE_EXCLUDING, _B.FREE, True, "network adapter failed"),
        ("net_other", _A.RESTART_IN_JOB, _B.UNEXPLAINED, False, "network fault"),
    ),
    *_rows(
        "storage",
        ("storage_full", _A.HOLD, _B.TERMINAL, False, "file system full"),
        ("storage_quota", _A.HOLD, _B.TERMINAL, False, "quota used up"),
        ("storage_stale", _A.RESTART_IN_JOB, _B.UNEXPLAINED, False, "stale file handle"),
        ("storage_io", _A.HOLD, _B.UNEXPLAINED, False, "file system error or permission"),
        ("checkpoint_corrupt", _A.ROLLBACK_CHECKPOINT, _B.UNEXPLAINED, False, "torn checkpoint"),
    ),
    *_rows(
        "host",
        ("host_oom", _A.STOP, _B.TERMINAL, False, "out of host memory"),
        ("shm_exhausted", _A.STOP, _B.TERMINAL, False, "shared memory too small"),
        ("node_down", _A.REQUEUE_EXCLUDING, _B.FREE, True, "a node was lost"),
        ("node_prolog", _A.REQUEUE_EXCLUDING, _B.LAUNCH, True, "a node's prolog failed"),
        ("node_unkillable", _A.REQUEUE_EXCLUDING, _B.FREE, True, "processes could not be killed"),
        ("container_image", _A.STOP, _B.TERMINAL, False, "the container image cannot be used"),
        ("container_node", _A.REQUEUE_EXCLUDING, _B.LAUNCH, True, "containers fail on one node"),
        ("driver_mismatch", _A.REQUEUE_EXCLUDING, _B.LAUNCH, True, "driver too old on one node"),
        ("fabric_manager", _A.REQUEUE_EXCLUDING, _B.LAUNCH, True, "fabric manager not running"),
    ),
    *_rows(
        "scheduler",
        ("time_limit", _A.REQUEUE, _B.FREE, False, "wall-time limit"),
        ("preempted", _A.REQUEUE, _B.FREE, False, "preempted"),
        ("requeued", _A.REQUEUE, _B.FREE, False, "requeued"),
        ("user_cancelled", _A.NONE, _B.TERMINAL, False, "cancelled by a person"),
        (
            "planned_rollover",
            _A.REQUEUE,
            _B.FREE,
            False,
            "gave the allocation back with its state saved",
        ),
        ("submit_uncertain", _A.HOLD, _B.FREE, False, "the answer to a submission was lost"),
        ("launch_failed", _A.REQUEUE, _B.LAUNCH, False, "the job could not be started"),
    ),
    *_rows(
        "performance",
        ("hang", _A.RESTART_IN_JOB, _B.UNEXPLAINED, False, "no progress"),
        ("straggler", _A.CONTINUE, _B.FREE, False, "a rank is slow"),
    ),
    *_rows("none", ("healthy", _A.NONE, _B.FREE, False, "complete")),
    *_rows("unknown", ("unknown", _A.REQUEUE, _B.UNEXPLAINED, False, "unexplained")),
]

#: What a broken node does to work, and what work can also do to itself. Never memory, disk, quota,
#: configuration, data or code: those follow the work wherever it runs. Nor what nobody explained: most
#: often that is the program's own.
NODE_SUSPECT: Final = frozenset(
    {
        "framework_crash",
        "comm_timeout",
        "gpu_fault",
        "ib_transport",
        "net_other",
        "storage_stale",
        "hang",
        "straggler",
    }
)

CATEGORIES: Final[dict[str, Category]] = {row.name: row for row in _TABLE}


def category(name: str) -> Category:
    """The row of a category; an unknown name is ``unknown``, never an error (old or newer journals)."""
    return CATEGORIES.get(name, CATEGORIES["unknown"])
