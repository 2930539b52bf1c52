"""What supervisor and agents tell each other.

Down: one order file an attempt, rewritten by the supervisor only (``RunPaths.control``), and the same line
on the agents' standard input, which srun passes to all of them at once. Not a signal: Slurm would send
it to every process of the step. Up: one report a node, written once when its agent ends.
``tests/launch/test_steps.py``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from resiliency.durable import read_json, write_atomic
from resiliency.errors import StorageError

from .outcome import RankEnd


@dataclass(frozen=True)
class Order:
    """Stop, and be gone ``grace_s`` after you read this. A higher ``number`` replaces a lower."""

    number: int
    reason: str
    grace_s: float


@dataclass(frozen=True)
class NodeReport:
    """How a node's agent ended. ``terminated``: it was sent TERM itself (its step was)."""

    node: str
    ends: Sequence[RankEnd]
    terminated: bool = False
    step: int | None = None


def line(order: Order) -> str:
    """The order as one line of JSON, for the file and for standard input."""
    return json.dumps(asdict(order)) + "\n"


def give(path: Path, order: Order) -> None:
    """Raises StorageError; agents then only have their standard input."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, line(order))


def parse(raw: Any) -> Order | None:
    """An order from its JSON object; None for anything else."""
    try:
        return Order(int(raw["number"]), str(raw["reason"]), float(raw["grace_s"]))
    except (KeyError, TypeError, ValueError):
        return None


def orders(path: Path) -> Order | None:
    """The latest order; None when there is none or it cannot be read now."""
    try:
        return parse(read_json(path))
    except StorageError:
        return None


def report_path(control: Path, node: str) -> Path:
    return control.with_suffix(f".{node}.json")


def report(control: Path, it: NodeReport) -> None:
    """Raises StorageError; the supervisor then has only the agent's exit code."""
    control.parent.mkdir(parents=True, exist_ok=True)
    data = {
        "node": it.node,
        "ends": [end.as_data() for end in it.ends],
        "terminated": it.terminated,
        "step": it.step,
    }
    write_atomic(report_path(control, it.node), json.dumps(data) + "\n")


def read_report(control: Path, node: str) -> NodeReport | None:
    """A node's report; None while there is none that is whole."""
    try:
        raw = read_json(report_path(control, node))
        ends = tuple(RankEnd.from_data(end) for end in raw["ends"])
        return NodeReport(str(raw["node"]), ends, bool(raw.get("terminated")), raw.get("step"))
    except (StorageError, KeyError, TypeError, ValueError):
        return None
