"""``validate``: is this experiment right, and does it fit the cluster?"""

from __future__ import annotations

from pathlib import Path

from .commands import verb
from .common import emit, home_of, note, say
from .options import (
    cluster_option,
    experiment_argument,
    home_option,
    json_option,
    offline_option,
    overrides_argument,
)


@verb("Example: python -m orchestrator validate exp.yaml stages.pretrain.train.lr=1e-4")
@experiment_argument
@overrides_argument
@cluster_option
@home_option
@offline_option
@json_option
def command(
    experiment: Path,
    overrides: tuple[str, ...],
    cluster: str | None,
    home: Path | None,
    offline: bool,
    json: bool,
) -> None:
    """Check an experiment file: every fault at once, with file, line and key.

    Also checks the cluster's limits (partition, account, nodes, wall time) unless --offline.
    Exit code 0: it can be submitted; 3: it cannot.
    """
    from .. import prepare

    ready = prepare.prepare(home_of(home), experiment, list(overrides), cluster=cluster, ask=not offline)
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
