"""Does a plan fit what the scheduler says of its cluster? Pure; what could not be found out is not judged.

``tests/orchestrator/test_plan_facts.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .spec.durations import clock
from .spec.errors import nearest

if TYPE_CHECKING:
    from .plan import RunPlan, StagePlan


def check_against(facts: Mapping[str, Any], plan: RunPlan) -> list[str]:
    """One line for everything the cluster would refuse, or leave pending for ever."""
    faults: list[str] = []
    for stage in plan.stages:
        faults += [f"stages.{stage.name}.{text}" for text in _stage(stage, facts)]
    limit = (facts.get("limits") or {}).get("max_submit_jobs")
    if limit is not None and limit < 1:
        faults.append(f"you may not submit jobs on {plan.cluster} (MaxSubmitJobs {limit})")
    return faults


def _stage(stage: StagePlan, facts: Mapping[str, Any]) -> Iterator[str]:
    partitions: Mapping[str, Mapping[str, Any]] = facts.get("partitions") or {}
    for key, listed in (("account", facts.get("accounts")), ("qos", facts.get("qos"))):
        name = stage.setting(key)
        if name is not None and listed is not None and name not in listed:
            yield f"resources.{key}: {_unknown(key, name, listed)}"
    names = stage.setting("partition")
    if partitions and names is not None:
        unknown = [n for n in names.split(",") if n not in partitions]
        yield from (f"resources.partition: {_unknown('partition', n, partitions)}" for n in unknown)
        if unknown:
            return
    rows = _partitions(names, partitions)
    # A list of partitions means: any of them will do. Each of the others' complaints then is moot.
    complaints = [list(_partition(stage, name, row)) for name, row in rows]
    if complaints and all(complaints):
        yield from min(complaints, key=len)
    have = stage.profile.gpus_per_node
    if have is not None and stage.gpus_per_node > have:
        where = f"profile {stage.profile.name} says a node has {have}"
        yield f"resources.gpus_per_node: {stage.gpus_per_node} asked, {where}"


def _partitions(
    names: str | None, partitions: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, Mapping[str, Any]]]:
    if names is not None:
        return [(n, partitions[n]) for n in names.split(",") if n in partitions]
    return [(n, row) for n, row in partitions.items() if row.get("default")]


def _unknown(what: str, name: str, listed: Any) -> str:
    near = nearest(name, listed)
    hint = f"did you mean {near!r}?" if near else f"there are {', '.join(sorted(listed)) or 'none'}"
    return f"no {what} {name!r} on this cluster for you; {hint}"


def _partition(stage: StagePlan, name: str, row: Mapping[str, Any]) -> Iterator[str]:
    if row.get("up") is False:
        yield f"resources.partition: {name} is down"
    for key, what in (("nodes", "has"), ("max_nodes", "allows a job")):
        most = row.get(key)
        if most is not None and stage.nodes > most:
            yield f"resources.nodes: {stage.nodes} asked, partition {name} {what} {most}"
            break
    longest = row.get("max_time_s")
    if longest is not None and stage.time_limit_s > longest:
        yield (
            f"resources.time: {clock(stage.time_limit_s)} asked, partition {name} allows {clock(longest)}: "
            f'set time: "{clock(longest)}", the chain goes on in further links'
        )
    gpus = row.get("gpus_per_node")
    if gpus is not None and stage.gpus_per_node > gpus:
        yield f"resources.gpus_per_node: {stage.gpus_per_node} asked, nodes of partition {name} have {gpus}"
    cpus = row.get("cpus_per_node")
    if cpus is not None and stage.cpus_per_node is not None and stage.cpus_per_node > cpus:
        yield f"resources.cpus_per_node: {stage.cpus_per_node} needed, nodes of partition {name} have {cpus}"
    mem, have = _megabytes(stage.spec["resources"]["mem"]), row.get("mem_mb")
    if mem is not None and have is not None and mem > have:
        yield f"resources.mem: {stage.spec['resources']['mem']} asked, nodes of partition {name} have {have}M"


def _megabytes(text: str | None) -> float | None:
    """Slurm's sizes: megabytes without a unit."""
    if text is None:
        return None
    unit = text[-1].upper()
    factor = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}
    return float(text[:-1]) * factor[unit] if unit in factor else float(text)
