"""What supervisor and agents tell each other through the shared file system.

Down: one order file an attempt, rewritten by the supervisor only (``RunPaths.control``). Up: one report a
node, written once when its agent ends. A signal only says "look now"; the files are what counts.
``tests/launch/test_control.py``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

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


def give(path: Path, order: Order) -> None:
    """Raises StorageError; agents then only get the signal and use their own grace."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(asdict(order)) + "\n")


def orders(path: Path) -> Order | None:
    """The latest order; None when there is none or it cannot be read now."""
    try:
        raw = read_json(path)
        return Order(int(raw["number"]), str(raw["reason"]), float(raw["grace_s"]))
    except (StorageError, KeyError, TypeError, ValueError):
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
