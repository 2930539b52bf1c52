"""The kinds of harm a rehearsal can do: what each is, who does it, and how the run should come out of it.

Data only. ``resiliency.faults`` does those that a rank does to itself, ``orchestrator.drill`` the others.
``tests/resiliency/test_faults.py`` holds the two to this list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RANK, OUTSIDE = "rank", "outside"

#: How a run should come out: it goes on past the fault; it does not even notice; it ends, or waits for a
#: person, and says why.
RECOVERS, UNHARMED, ENDS = "recovers", "unharmed", "ends"


#: The point at which a rank has a loss to tell.
LOSS = "loss"


@dataclass(frozen=True)
class Kind:
    """``by``: RANK (the training process does it to itself) or OUTSIDE (the driver of the rehearsal).

    ``node``: it is about a node, not a rank. ``seconds``: how long it lasts unless the fault says so.
    ``point``: where it happens unless the fault says so; not every rank comes there.
    ``categories``: what an end must be put down to (RECOVERS and UNHARMED: not looked at).
    """

    name: str
    by: str
    expect: str
    about: str
    node: bool = False
    seconds: float = 0.0
    point: str = ""
    categories: tuple[str, ...] = ()


_LIST: tuple[Kind, ...] = (
    Kind("exception", RANK, RECOVERS, "the rank raises an error"),
    Kind("sigkill", RANK, RECOVERS, "the rank is killed, as the kernel's out-of-memory killer does"),
    Kind("sigsegv", RANK, RECOVERS, "the rank crashes in native code"),
    Kind("sigstop", RANK, RECOVERS, "the rank stands still, every thread of it"),
    Kind("hang", RANK, RECOVERS, "the rank computes for ever and reaches no collective"),
    Kind("hang-outside", RANK, RECOVERS, "the rank sleeps for ever outside the collective others wait in"),
    Kind("slow", RANK, UNHARMED, "the rank takes longer for each step, for a number of steps", seconds=0.3),
    Kind("oom", RANK, ENDS, "the rank finds no memory", categories=("host_oom",)),
    Kind("nan", RANK, ENDS, "the loss is not a number", point=LOSS, categories=("numeric",)),
    Kind(
        "full-disk",
        RANK,
        ENDS,
        "a checkpoint finds the file system full (Fake: the error is raised, the disk is not filled)",
        point="checkpoint.write",
        categories=("storage_full",),
    ),
    Kind("torn-checkpoint", RANK, RECOVERS, "the newest checkpoint loses half a file, and the rank dies"),
    Kind("bit-flip", RANK, RECOVERS, "one bit of the newest checkpoint turns, and the rank dies"),
    Kind("node-crash", OUTSIDE, RECOVERS, "everything on a node dies at once", node=True),
    Kind("node-drain", OUTSIDE, UNHARMED, "an operator drains a node while it works", node=True),
    Kind("prolog-failure", OUTSIDE, RECOVERS, "a node's prolog fails when the next job starts", node=True),
    Kind("agent-kill", OUTSIDE, RECOVERS, "the agent of a node is killed, the node stays", node=True),
    Kind("preempt", OUTSIDE, RECOVERS, "a job of higher priority takes the nodes"),
    Kind("time-limit", OUTSIDE, RECOVERS, "the signal comes that warns of the wall-time limit"),
    Kind("xid", OUTSIDE, UNHARMED, "a GPU error line (Fake) appears in the node's log", node=True),
    Kind("controller-freeze", OUTSIDE, UNHARMED, "Slurm's controller answers nobody", seconds=15.0),
    Kind("supervisor-freeze", OUTSIDE, UNHARMED, "the segment supervisor stands still", seconds=8.0),
)

KINDS: Final[dict[str, Kind]] = {kind.name: kind for kind in _LIST}
