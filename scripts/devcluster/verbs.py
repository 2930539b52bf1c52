"""What each verb of `dev-cluster` does, given its parsed options. `cli.py` parses, locks and
prints.

A verb returns a Result: sentences for a person, a record for --json, an exit code.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field

from . import nodes
from .cluster import DevCluster
from .daemons import slurmctld, slurmdbd
from .errors import EXIT_CONFLICT, EXIT_NOT_UP, EXIT_OK, DevClusterError
from .install import install
from .settings import Layout, Settings
from .status import as_text, read_status

Say = Callable[[str], None]


@dataclass
class Result:
    text: str
    record: dict[str, object] = field(default_factory=dict)
    code: int = EXIT_OK


def existing(layout: Layout, say: Say) -> DevCluster:
    settings = layout.load_settings()
    if settings is None:
        raise DevClusterError(
            f"there is no dev cluster at {layout.root}",
            hint="bring one up: dev-cluster up",
            code=EXIT_NOT_UP,
        )
    return DevCluster(layout, settings, say)


def _asked(options: argparse.Namespace, base: Settings) -> Settings:
    given = {
        name: getattr(options, name)
        for name in ("nodes", "nodes_b", "gpus", "cpus", "memory_mb", "users", "port_base")
        if getattr(options, name) is not None
    }
    return Settings(**{**{name: getattr(base, name) for name in vars(base)}, **given})


def up(options: argparse.Namespace, layout: Layout, say: Say) -> Result:
    kept = layout.load_settings()
    asked = _asked(options, kept or Settings())
    changes = "; ".join(kept.differences(asked)) if kept else ""
    if kept and changes and DevCluster(layout, kept, say).is_running():
        raise DevClusterError(
            f"the cluster at {layout.root} is up with other settings ({changes})",
            hint="take it down first: dev-cluster down",
            code=EXIT_CONFLICT,
        )
    started = DevCluster(layout, asked, say).up()
    status = read_status(layout, asked)
    sizes = " + ".join(f"{c.nodes} nodes ({c.name})" for c in asked.clusters)
    text = f"up: {sizes}, {asked.gpus} fake GPUs each; {len(started)} daemons started\n"
    text += 'use it:  eval "$(scripts/dev-cluster env alpha)"; sinfo'
    return Result(text, {**status.as_dict(), "started": started}, EXIT_OK if status.up else EXIT_NOT_UP)


def down(options: argparse.Namespace, layout: Layout, say: Say) -> Result:
    try:
        settings = layout.load_settings()
    except DevClusterError:
        settings = Settings()  # unreadable: the sweep in `down` finds the daemons all the same
    stopped = DevCluster(layout, settings or Settings(), say).down(wipe=options.wipe)
    text = f"stopped {stopped} daemons" if stopped else f"nothing was running at {layout.root}"
    return Result(text, {"stopped": stopped, "wiped": options.wipe})


def status(options: argparse.Namespace, layout: Layout, say: Say) -> Result:
    found = read_status(layout, existing(layout, say).settings)
    return Result(as_text(found), found.as_dict(), EXIT_OK if found.up else EXIT_NOT_UP)


def heal(options: argparse.Namespace, layout: Layout, say: Say) -> Result:
    cluster = existing(layout, say)
    cluster.heal()
    found = read_status(layout, cluster.settings)
    return Result("healed: all idle, no jobs", found.as_dict(), EXIT_OK if found.up else EXIT_NOT_UP)


def kill_node(options: argparse.Namespace, layout: Layout, say: Say) -> Result:
    settings = existing(layout, say).settings
    killed = {}
    for node in options.nodes:
        cluster = settings.cluster_of(node)
        killed[node] = nodes.crash(layout, cluster, node, daemon_only=options.daemon_only)
    text = "\n".join(
        f"{n}: {c} processes killed" if c else f"{n}: was dead already" for n, c in killed.items()
    )
    return Result(text, {"killed": killed})


def start_node(options: argparse.Namespace, layout: Layout, say: Say) -> Result:
    cluster = existing(layout, say)
    started = []
    for name in dict.fromkeys(cluster.settings.cluster_of(n).name for n in options.nodes):
        where = cluster.settings.cluster(name)
        started += cluster.start_nodes(where, [n for n in options.nodes if n in where.node_names])
    ready = ", ".join(options.nodes)
    return Result(f"ready: {ready} ({len(started)} started)", {"started": started})


def kill_controller(options: argparse.Namespace, layout: Layout, say: Say) -> Result:
    where = existing(layout, say).settings.cluster(options.cluster)
    killed = slurmctld(layout, where).kill()
    return Result(
        f"slurmctld of {where.name} {'killed' if killed else 'was dead already'}",
        {"changed": killed},
    )


def start_controller(options: argparse.Namespace, layout: Layout, say: Say) -> Result:
    cluster = existing(layout, say)
    where = cluster.settings.cluster(options.cluster)
    started = cluster.start_controller(where)
    return Result(
        f"slurmctld of {where.name} {'started' if started else 'was running'}", {"changed": started}
    )


def freeze_controller(options: argparse.Namespace, layout: Layout, say: Say) -> Result:
    cluster = existing(layout, say)
    changed = cluster.freeze(cluster.settings.cluster(options.cluster))
    text = f"slurmctld of {options.cluster} {'frozen' if changed else 'was frozen already'}"
    return Result(text, {"changed": changed})


def thaw_controller(options: argparse.Namespace, layout: Layout, say: Say) -> Result:
    cluster = existing(layout, say)
    changed = cluster.thaw(cluster.settings.cluster(options.cluster))
    text = f"slurmctld of {options.cluster} {'thawed' if changed else 'was not frozen'}"
    return Result(text, {"changed": changed})


def stop_accounting(options: argparse.Namespace, layout: Layout, say: Say) -> Result:
    stopped = slurmdbd(layout, existing(layout, say).settings).kill()
    return Result(f"slurmdbd {'stopped' if stopped else 'was not running'}", {"changed": stopped})


def start_accounting(options: argparse.Namespace, layout: Layout, say: Say) -> Result:
    started = existing(layout, say).start_accounting()
    return Result(f"slurmdbd {'started' if started else 'was running'}", {"changed": started})


def fail_hook(options: argparse.Namespace, layout: Layout, say: Say) -> Result:
    settings = existing(layout, say).settings
    for node in options.nodes:
        settings.cluster_of(node)
    for node in options.nodes:
        nodes.set_hook_failure(layout, options.hook, node, True)
    return Result(
        f"{options.hook} fails on: {', '.join(options.nodes)}",
        {"failing": nodes.failing_hooks(layout)},
    )


def clear_hook(options: argparse.Namespace, layout: Layout, say: Say) -> Result:
    cluster = existing(layout, say)
    for node in options.nodes:
        where = cluster.settings.cluster_of(node)
        nodes.set_hook_failure(layout, options.hook, node, False)
        if slurmctld(layout, where).state() == "running":
            cluster.start_nodes(where, [node])
    text = f"{options.hook} works again on: {', '.join(options.nodes)}"
    text += "\n(a job it held stays held until `scontrol release JOBID`)"
    return Result(text, {"failing": nodes.failing_hooks(layout)})


def env(options: argparse.Namespace, layout: Layout, say: Say) -> Result:
    where = existing(layout, say).settings.cluster(options.cluster)
    variables = {"SLURM_CONF": str(layout.slurm_conf(where.name))}
    return Result("\n".join(f"export {k}={shlex.quote(v)}" for k, v in variables.items()), {**variables})


def install_packages(options: argparse.Namespace, layout: Layout, say: Say) -> Result:
    changed = install()
    return Result("installed" if changed else "everything is installed already", {"changed": changed})
