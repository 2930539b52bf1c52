"""``validate``: is this experiment right, and does it fit the cluster?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import HomeOption, JsonOption, emit, errors_shown, home_of, note, say

EXAMPLE = "Example: python -m orchestrator validate exp.yaml stages.pretrain.train.lr=1e-4"

ExperimentArgument = Annotated[
    Path,
    typer.Argument(metavar="EXPERIMENT", help="The experiment file (YAML).", show_default=False),
]
OverridesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Overrides such as stages.pretrain.train.lr=1e-4.",
        show_default=False,
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", "-c", help="Cluster profile, instead of the file's `cluster`."),
]
OfflineOption = Annotated[bool, typer.Option("--offline", help="Do not ask the scheduler about its limits.")]


def command(
    experiment: ExperimentArgument,
    overrides: OverridesArgument = None,
    cluster: ClusterOption = None,
    home: HomeOption = None,
    offline: OfflineOption = False,
    json: JsonOption = False,
) -> None:
    """Check an experiment file: every fault at once, with file, line and key.

    Also checks the cluster's limits (partition, account, nodes, wall time) unless --offline.
    Exit code 0: it can be submitted; 3: it cannot.
    """
    with errors_shown():
        from .. import prepare

        ready = prepare.prepare(home_of(home), experiment, overrides or [], cluster=cluster, ask=not offline)
        ready.raise_faults()
        if json:
            emit(
                {
                    "ok": True,
                    "warnings": ready.warnings,
                    "stages": [s.name for s in ready.plan.stages],
                }
            )
            return
        for warning in ready.warnings:
            note(f"warning: {warning}")
        say(f"{experiment}: ok, {len(ready.plan.stages)} stages for cluster {ready.plan.cluster}")
