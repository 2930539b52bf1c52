"""What is running, as one record: daemons, nodes, jobs and a list of problems (empty = fully
up).

Looks only. Never asks a controller that is frozen or dead, so it answers within seconds
whatever is wrong.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field

from . import nodes, slurm
from .daemons import mariadbd, munged, slurmctld, slurmd, slurmdbd
from .settings import Layout, Settings


@dataclass
class ClusterStatus:
    name: str
    slurm_conf: str
    controller: str  # running, frozen, stopped, or silent (there, without an answer)
    daemons_up: int  # slurmd processes
    nodes: dict[str, str] = field(default_factory=dict)  # name -> state; empty when the controller is silent
    jobs: dict[str, int] = field(default_factory=dict)  # state -> count


@dataclass
class Status:
    state_dir: str
    up: bool
    daemons: dict[str, str]  # munged, mariadbd, slurmdbd -> running, frozen, stopped
    clusters: list[ClusterStatus]
    failing_hooks: list[str]
    problems: list[str]

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def read_status(layout: Layout, settings: Settings) -> Status:
    shared = [munged(layout), mariadbd(layout, settings), slurmdbd(layout, settings)]
    daemons = {daemon.name: daemon.state() for daemon in shared}
    problems = [f"{name} is {state}" for name, state in daemons.items() if state != "running"]
    clusters = []
    for cluster in settings.clusters:
        state = slurmctld(layout, cluster).state()
        dead = [n for n in cluster.node_names if slurmd(layout, cluster, n).state() != "running"]
        record = ClusterStatus(
            name=cluster.name,
            slurm_conf=str(layout.slurm_conf(cluster.name)),
            controller=state,
            daemons_up=cluster.nodes - len(dead),
        )
        if state == "running" and daemons["munged"] == "running":
            record.nodes = slurm.node_states(layout, cluster)
            jobs = slurm.job_counts(layout, cluster) if record.nodes else None
            record.jobs = jobs or {}
            if jobs is None:
                record.controller = "silent"
        if record.controller != "running":
            problems.append(f"slurmctld of {cluster.name} is {record.controller}")
        problems += [f"slurmd of {name} is stopped" for name in dead]
        problems += [
            f"node {n} is {s}" for n, s in record.nodes.items() if n not in dead and not slurm.is_usable(s)
        ]
        clusters.append(record)
    failing = nodes.failing_hooks(layout)
    return Status(str(layout.root), not problems, daemons, clusters, failing, problems)


def as_text(status: Status) -> str:
    states = {*status.daemons.values(), *(cluster.controller for cluster in status.clusters)}
    if states == {"stopped"} and not any(cluster.daemons_up for cluster in status.clusters):
        return f"dev cluster at {status.state_dir}: down\n  next: `dev-cluster up`"
    lines = [f"dev cluster at {status.state_dir}: {'up' if status.up else 'NOT fully up'}"]
    lines.append("  " + "   ".join(f"{name} {state}" for name, state in status.daemons.items()))
    for cluster in status.clusters:
        counts = _counts(Counter(cluster.nodes.values())) or "states unknown"
        lines.append(f"  {cluster.name}: slurmctld {cluster.controller}, {cluster.daemons_up} slurmd")
        lines.append(f"    nodes: {counts}")
        lines.append(f"    jobs:  {_counts(cluster.jobs) or 'none'}")
    if status.failing_hooks:
        lines.append(f"  hooks made to fail: {', '.join(status.failing_hooks)}")
    shown = status.problems[:10]
    lines += [f"  problem: {problem}" for problem in shown]
    if len(status.problems) > len(shown):
        lines.append(f"  ... and {len(status.problems) - len(shown)} more")
    if status.problems:
        lines.append("  next: `dev-cluster up` starts and resumes whatever is missing")
    return "\n".join(lines)


def _counts(counts: dict[str, int] | Counter[str]) -> str:
    return ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
