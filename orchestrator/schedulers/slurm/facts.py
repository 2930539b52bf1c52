"""What this Slurm is and can do, put together from four commands, each of which may be missing.

``tests/orchestrator/test_slurm_facts.py``.
"""

from __future__ import annotations

from typing import Any

from . import sacctmgr, scontrol, sinfo
from .commands import NOT_FOUND, Commands, is_unreachable, said


def gather(commands: Commands, *, user: str, cluster: str | None) -> dict[str, Any]:
    """See ``Scheduler.facts``; ``problems`` names what did not answer; its keys are absent."""
    problems: list[str] = []
    facts: dict[str, Any] = {"problems": problems}

    partitions = commands.ask(sinfo.ARGUMENTS)
    facts["reachable"] = partitions.ok
    if partitions.ok:
        facts["partitions"] = sinfo.partitions(partitions.stdout)
    else:
        problems.append(f"sinfo: {said(partitions)}")

    # Of a slurmctld that does not answer, scontrol would find out in another 18 s.
    silent = is_unreachable(partitions) and partitions.returncode != NOT_FOUND
    config = partitions if silent else commands.ask(scontrol.SHOW_CONFIG)
    if config.ok:
        facts.update(scontrol.config(config.stdout))
    elif not silent:
        problems.append(f"scontrol show config: {said(config)} (limits and preemption are unknown)")
    if facts.get("accounting") is False:
        problems.append("accounting is off on this cluster: ended jobs are known only for a while")
        return facts

    associations = commands.ask_database(sacctmgr.associations_of(user, cluster))
    qos = commands.ask_database(sacctmgr.all_qos())
    if associations.ok and qos.ok:
        found = sacctmgr.limits(associations.stdout, qos.stdout)
        found["accounting"] = True
        found["limits"] = {**facts.get("limits", {}), **found["limits"]}
        facts.update(found)
        if not found["accounts"]:
            problems.append(f"{user} has no account here; a cluster that enforces accounts refuses jobs")
    else:
        bad = associations if not associations.ok else qos
        problems.append(f"sacctmgr: {said(bad)} (accounts and job limits are unknown)")
        facts["accounting"] = False
    return facts
