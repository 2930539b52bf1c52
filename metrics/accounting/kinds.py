"""What a moment of an allocation can be spent on: one table, from kind to meaning.

Docs are tested against it (``tests/metrics/accounting/test_docs.py``); nothing else repeats it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Kind:
    """One row. ``group``: the overhead it belongs to; ``work``: it is none; empty: outside the wall-clock.

    ``productive``: counts in ETTR and goodput. ``allocated``: within the allocation, so it costs nodes.
    """

    name: str
    group: str
    meaning: str
    productive: bool = False
    allocated: bool = True


_TABLE: Final = (
    Kind(
        "chained",
        "",
        "queued, a link or a stage that comes first is not over",
        allocated=False,
    ),
    Kind("queued", "queue", "submitted, no nodes yet", allocated=False),
    Kind("launching", "start", "nodes are there, the first ranks are not: prolog, agents, launcher"),
    Kind("preflight", "start", "nodes are being checked"),
    Kind("imports", "start", "ranks load their program and its libraries"),
    Kind("init", "start", "ranks set up process groups, model, data; all of a start that tells no phases"),
    Kind("load", "start", "ranks read the checkpoint they go on from"),
    Kind("warmup", "start", "the first step of a process: compilation, first use of everything"),
    Kind("productive", "work", "new steps that a persisted checkpoint or a complete stage holds", True),
    Kind("recomputing", "work", "steps done before and lost then, done again and kept", True),
    Kind("provisional", "work", "new steps that nothing persisted holds yet; the stage is not over"),
    Kind("checkpoint_stall", "checkpoint", "steps wait for a save or a copy in memory"),
    Kind("evaluation", "evaluation", "a training stage evaluates between steps"),
    Kind("data_stall", "data", "steps wait for data"),
    Kind("lost", "lost", "steps thrown away: above what the next cycle resumed from, or never persisted"),
    Kind("detecting", "recovery", "something is wrong and nothing has noticed: onset to detection"),
    Kind("diagnosing", "recovery", "noticed: evidence, verdict, decision"),
    Kind("restarting", "recovery", "decided, the ranks of the next cycle are not there yet"),
    Kind("waiting_spare", "recovery", "decided, the allocation waits for a node to go on with"),
    Kind("draining", "drain", "stop asked, given up or work done, the allocation is not back yet"),
    Kind("idle_spare", "spare", "the node is held in reserve while others train"),
    Kind("down", "down", "the node is lost, swapped out or failed its checks, and still allocated"),
    Kind("unknown", "unknown", "nothing says what happened; reported, never spread over the others"),
)

KINDS: Final[dict[str, Kind]] = {kind.name: kind for kind in _TABLE}
PRODUCTIVE: Final = tuple(kind.name for kind in _TABLE if kind.productive)
#: Overhead groups in the table's order.
GROUPS: Final = tuple(dict.fromkeys(kind.group for kind in _TABLE if kind.group not in ("", "work")))
