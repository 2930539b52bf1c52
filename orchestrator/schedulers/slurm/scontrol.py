"""scontrol and scancel: arguments, and the answers worth reading. Pure.

``tests/orchestrator/test_slurm_facts.py`` reads recorded answers of 22.05 and 24.11.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, Final

from resiliency.errors import SchedulerError

PING: Final = ["scontrol", "ping"]
SHOW_CONFIG: Final = ["scontrol", "show", "config"]
_NODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(\[[0-9,-]+\])?")
#: Ids in one scancel: below the limit of one message, far below that of an argument list.
_CANCEL_BATCH: Final = 500


def release(job_id: str) -> list[str]:
    return ["scontrol", "release", job_id]


def exclude(job_id: str, nodes: Sequence[str]) -> list[str]:
    """Replaces the job's list of excluded nodes; none: clears it."""
    for node in nodes:
        if not _NODE.fullmatch(node):
            raise SchedulerError(f"{node!r} is not a node name", hint="`sinfo -N` lists the nodes")
    return ["scontrol", "update", f"JobId={job_id}", f"ExcNodeList={','.join(nodes)}"]


def unchain(job_id: str) -> list[str]:
    """Takes a pending job's dependencies away."""
    return ["scontrol", "update", f"JobId={job_id}", "Dependency="]


def cancel(job_ids: Collection[str]) -> list[list[str]]:
    """scancel answers 0 for unknown and for ended ids, which is what is wanted."""
    ids = sorted(job_ids, key=lambda job_id: (len(job_id), job_id))
    return [["scancel", *ids[start : start + _CANCEL_BATCH]] for start in range(0, len(ids), _CANCEL_BATCH)]


def is_up(stdout: str) -> bool:
    """Whether ``scontrol ping`` found a controller that is up."""
    return re.search(r"\bis UP\b", stdout) is not None


def config(output: str) -> dict[str, Any]:
    """The facts of ``scontrol show config``; absent: not said."""
    said = {
        match[1]: match[2].strip()
        for line in output.splitlines()
        if (match := re.match(r"(\w+)\s*=\s?(.*)$", line))
    }
    facts: dict[str, Any] = {}
    if "SLURM_VERSION" in said:
        facts["version"] = said["SLURM_VERSION"]
    if "PreemptType" in said:
        facts["preemption"] = _preemption(said["PreemptType"], said.get("PreemptMode", ""))
    if "JobRequeue" in said:
        facts["requeue"] = said["JobRequeue"] == "1"
    for key, name in (("KillWait", "kill_wait_s"), ("MessageTimeout", "message_timeout_s")):
        if match := re.match(r"\d+", said.get(key, "")):
            facts[name] = int(match[0])
    if "AccountingStorageType" in said:
        facts["accounting"] = said["AccountingStorageType"] not in (
            "(null)",
            "accounting_storage/none",
        )
    limits = {
        name: int(said[key])
        for key, name in (("MaxJobCount", "max_job_count"), ("MaxArraySize", "max_array_size"))
        if said.get(key, "").isdecimal()
    }
    if limits:
        facts["limits"] = limits
    return facts


def _preemption(kind: str, mode: str) -> str:
    plain = kind.removeprefix("preempt/")
    return "none" if plain in ("none", "(null)") else f"{plain} ({mode.lower()})"
