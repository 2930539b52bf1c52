"""``plan``: what would be submitted; submits nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .commands import verb
from .common import console, emit, home_of, note, say
from .options import (
    cluster_option,
    experiment_argument,
    home_option,
    json_option,
    offline_option,
    overrides_argument,
)
from .show import duration


@verb("Example: python -m orchestrator plan examples/quickstart.yaml --scripts")
@experiment_argument
@overrides_argument
@cluster_option
@home_option
@click.option("--scripts", is_flag=True, help="Print the rendered scripts too.")
@offline_option
@json_option
def command(
    experiment: Path,
    overrides: tuple[str, ...],
    cluster: str | None,
    home: Path | None,
    scripts: bool,
    offline: bool,
    json: bool,
) -> None:
    """Show stages, chains, node-hours and (with --scripts) the scripts. Submits and writes nothing."""
    from .. import prepare

    ready = prepare.prepare(home_of(home), experiment, list(overrides), cluster=cluster, ask=not offline)
    ready.raise_faults()
    data = plan_data(ready, scripts=scripts)
    if json:
        emit(data)
    else:
        show_plan(data)
        for warning in ready.warnings:
            note(f"warning: {warning}")


def plan_data(ready: Any, *, scripts: bool) -> dict[str, Any]:
    """The plan for ``--json``."""
    stages = []
    for stage in ready.plan.stages:
        job = stage.job(1)
        item = {
            "stage": stage.name,
            "kind": stage.kind,
            "needs": list(stage.needs),
            "nodes": job.nodes,
            "gpus_per_node": job.gpus_per_node,
            "time_limit_s": job.time_limit_s,
            "lookahead": stage.lookahead,
            "max_links": stage.max_links,
            "node_hours_per_link": stage.node_hours_per_link,
            "node_hours_at_most": stage.node_hours_at_most,
        }
        if scripts:
            item["script"] = ready.scheduler.render(job)
        stages.append(item)
    return {
        "name": ready.plan.name,
        "cluster": ready.plan.cluster,
        "scheduler": ready.scheduler.kind,
        "node_hours_at_most": sum(s["node_hours_at_most"] or 0 for s in stages),
        "stages": stages,
    }


def show_plan(data: dict[str, Any]) -> None:
    """The plan for a person."""
    from rich.table import Table

    out = console()
    table = Table(title=f"{data['name']} on {data['cluster']} ({data['scheduler']})", title_justify="left")
    for heading in (
        "stage",
        "kind",
        "needs",
        "nodes",
        "GPUs/node",
        "time/link",
        "queued ahead",
        "links ≤",
        "node-hours ≤",
    ):
        table.add_column(heading)
    for s in data["stages"]:
        hours = s["node_hours_at_most"]
        table.add_row(
            s["stage"],
            s["kind"],
            ", ".join(s["needs"]) or "-",
            str(s["nodes"]),
            str(s["gpus_per_node"]),
            duration(s["time_limit_s"]) if s["time_limit_s"] else "site default",
            str(s["lookahead"]),
            str(s["max_links"]),
            f"{hours:.2f}" if hours is not None else "unknown",
        )
    out.print(table)
    say(f"node-hours at most, if every link runs to its limit: {data['node_hours_at_most']:.2f}")
    for s in data["stages"]:
        if "script" in s:
            say(f"\n--- {s['stage']}, link 1 " + "-" * 40)
            say(s["script"])
