"""Emulated nodes: crash them, boot them, make their hooks fail.

A node is its slurmd, its step daemons and the tasks these started. A crash kills them all with
SIGKILL, slurmd first, so that it cannot report what happens to the rest; another dev cluster's
nodes are never touched.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

from .daemons import slurmd
from .processes import MARKER, all_gone, all_pids, read_environ, read_stat, send, wait_until
from .settings import Cluster, Layout

HOOKS = ("prolog", "epilog", "health")


def step_daemons(layout: Layout, cluster: Cluster, node: str | None = None) -> set[int]:
    """slurmstepd processes of one node (of all, without `node`), by the sockets they hold in
    its spool folder."""
    spool = layout.root / "spool" / cluster.name
    inside = f"{spool}/{node}/" if node else f"{spool}/"
    inodes = set()
    for line in Path("/proc/net/unix").read_text().splitlines():
        words = line.split()
        if len(words) == 8 and words[7].startswith(inside):
            inodes.add(f"socket:[{words[6]}]")
    if not inodes:
        return set()
    return {pid for pid in all_pids() if read_stat(pid)[0] == "slurmstepd" and _holds(pid, inodes)}


def _holds(pid: int, inodes: set[str]) -> bool:
    try:
        return any(_target(link) in inodes for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def job_processes(layout: Layout, cluster: Cluster, node: str | None = None) -> set[int]:
    """Step daemons and tasks: the daemons' descendants, and whatever has the node's name in its
    environment (a task whose step daemon is dead has no parent to be found by)."""
    found = step_daemons(layout, cluster, node)
    names = {node} if node else set(cluster.node_names)
    own_conf = str(layout.slurm_conf(cluster.name))
    parents = {}
    for pid in all_pids():
        name, state, parent = read_stat(pid)
        if state in ("", "Z") or name == "slurmd" or pid == os.getpid():
            continue
        parents[pid] = parent
        environment = read_environ(pid)
        here = environment.get("SLURM_CONF") == own_conf or environment.get(MARKER) == str(layout.root)
        if here and environment.get("SLURMD_NODENAME") in names:
            found.add(pid)
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return found


def crash(layout: Layout, cluster: Cluster, node: str, *, daemon_only: bool = False) -> int:
    """Kill the node's processes; how many were killed."""
    killed = int(slurmd(layout, cluster, node).kill())
    if daemon_only:
        return killed
    return killed + _kill_job_processes(layout, cluster, node)


def kill_all_job_processes(layout: Layout, cluster: Cluster) -> int:
    return _kill_job_processes(layout, cluster, None)


def _kill_job_processes(layout: Layout, cluster: Cluster, node: str | None) -> int:
    killed: set[int] = set()
    for _ in range(20):  # again, because a shell may have forked between the look and the kill
        found = job_processes(layout, cluster, node)
        if not found:
            break
        send(found, signal.SIGKILL)
        killed |= found
        wait_until(partial(all_gone, found), 2)
    return len(killed)


def ensure_running(layout: Layout, cluster: Cluster, names: list[str]) -> list[str]:
    """Start the slurmd of those nodes that have none; the names of the nodes started."""
    daemons = {name: slurmd(layout, cluster, name) for name in names}
    missing = [name for name in names if daemons[name].pid() is None]
    for name in missing:
        (layout.root / "spool" / cluster.name / name).mkdir(parents=True, exist_ok=True)
        daemons[name].launch()
    for name in missing:
        daemons[name].wait_for_pid()
    return missing


def set_hook_failure(layout: Layout, hook: str, node: str, failing: bool) -> None:
    flag = layout.hooks / "fail" / f"{hook}-{node}"
    if failing:
        flag.touch()
    else:
        flag.unlink(missing_ok=True)


def failing_hooks(layout: Layout) -> list[str]:
    folder = layout.hooks / "fail"
    return sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []


def clear_all_hook_failures(layout: Layout) -> None:
    for name in failing_hooks(layout):
        (layout.hooks / "fail" / name).unlink(missing_ok=True)
