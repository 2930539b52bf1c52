"""``clusters``: the cluster profiles known here."""

from __future__ import annotations

from pathlib import Path

from .commands import verb
from .common import console, emit, home_of, say
from .options import home_option, json_option


@verb("Example: python -m orchestrator clusters --json")
@home_option
@json_option
def command(home: Path | None, json: bool) -> None:
    """List cluster profiles: from clusters.yaml and the built-in ones, and which one `auto` means."""
    from dataclasses import asdict, is_dataclass

    from resiliency.edges import SystemRunner

    from ..clusters import load_profiles, resolve_profile

    where = home_of(home)
    profiles = load_profiles(where.root)
    auto = resolve_profile("auto", profiles, SystemRunner()).name
    if json:
        emit(
            {
                "file": str(where.clusters),
                "auto": auto,
                "clusters": {
                    n: (asdict(p) if is_dataclass(p) else p.model_dump(mode="json"))
                    for n, p in profiles.items()
                },
            }
        )
        return
    from rich.table import Table

    table = Table()
    for heading in ("profile", "scheduler", "cluster", "partition", "account", "runs", "auto"):
        table.add_column(heading)
    for name, profile in profiles.items():
        table.add_row(
            name,
            profile.scheduler,
            profile.cluster or "-",
            profile.partition or "-",
            profile.account or "-",
            str(profile.runs_dir or where.default_runs),
            "yes" if name == auto else "",
        )
    console().print(table)
    say(f"profiles come from {where.clusters} (see docs/clusters.md) and from Trainmaster itself")
