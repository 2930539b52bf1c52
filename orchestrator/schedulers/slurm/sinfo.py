"""sinfo: its arguments and the partitions in its answer. Pure; ``test_slurm_facts.py``."""

from __future__ import annotations

import re
from typing import Any, Final

from . import fields
from .fields import FIELD_END, RECORD_END

_COLUMNS: Final = ("Partition", "Available", "Time", "Size", "Nodes", "CPUs", "Memory", "Gres")
# --exact: one line per kind of node, not "64+" for several
ARGUMENTS: Final = [
    "sinfo",
    "--noheader",
    "--exact",
    "--Format=" + ",".join(f"{c}:{FIELD_END}" for c in _COLUMNS) + f",Partition:{RECORD_END}",
]


def partitions(output: str) -> dict[str, dict[str, Any]]:
    """As ``Scheduler.facts`` wants them. Where nodes differ, the figures are the largest node's."""
    found: dict[str, dict[str, Any]] = {}
    for record in output.split(RECORD_END):
        parts = [part.strip() for part in record.strip().split(FIELD_END)]
        if len(parts) != len(_COLUMNS) + 1:
            continue
        shown, available, limit, size, nodes, cpus, memory, gres = parts[:-1]
        name = shown.removesuffix("*")
        row = found.setdefault(
            name,
            {
                "default": shown.endswith("*"),
                "nodes": 0,
                "max_time_s": fields.seconds(limit),
                "max_nodes": _max_nodes(size),
                "cpus_per_node": None,
                "gpus_per_node": 0,
                "mem_mb": None,
                "up": available == "up",
            },
        )
        row["nodes"] += fields.number(nodes) or 0
        row["cpus_per_node"] = _larger(row["cpus_per_node"], fields.number(cpus))
        row["mem_mb"] = _larger(row["mem_mb"], fields.number(memory))
        row["gpus_per_node"] = max(row["gpus_per_node"], gpus(gres))
    return found


def gpus(gres: str) -> int:
    """GPUs of a node's gres: ``gpu:8``, ``gpu:a100:4(S:0-1),gpu:h100:4``; ``(null)``: 0."""
    counts = re.findall(r"(?:^|,)gpu(?::[A-Za-z][^:,()]*)?:(\d+)", gres)
    return sum(int(count) for count in counts)


def _max_nodes(size: str) -> int | None:
    """``1-infinite`` → None, ``1-4`` → 4, ``1`` → 1."""
    return fields.number(size.rsplit("-", 1)[-1])


def _larger(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)
