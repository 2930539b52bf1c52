"""``doctor``: what this cluster and environment can do, with the fix for each gap."""

from __future__ import annotations

from pathlib import Path

import click
from click.exceptions import Exit

from .commands import verb
from .common import cell, console, emit, home_of
from .options import home_option, json_option

_MARK = {
    "ok": "[green]ok[/]",
    "warn": "[yellow]WARN[/]",
    "fail": "[red]FAIL[/]",
    "unknown": "[dim]unknown[/]",
}


@verb("Example: python -m orchestrator doctor --cluster local")
@click.option(
    "--cluster",
    "-c",
    metavar="<str>",
    default="auto",
    show_default=True,
    help="Cluster profile to look at.",
)
@home_option
@json_option
def command(cluster: str, home: Path | None, json: bool) -> None:
    """Check this machine and cluster: partitions, limits, preemption, accounting, file systems, versions.

    Exit code 1 if something must be mended before a run can work.
    """
    from resiliency.edges import SystemRunner

    from .. import doctor
    from ..clusters import load_profiles, resolve_profile

    where, runner = home_of(home), SystemRunner()
    profile = resolve_profile(cluster, load_profiles(where.root), runner)
    checks = doctor.examine(where, profile, runner)
    failed = any(check.status == "fail" for check in checks)
    if json:
        emit({"cluster": profile.name, "ok": not failed, "checks": [vars(c) for c in checks]})
    else:
        from rich.table import Table

        table = Table(title=f"cluster profile {profile.name}", title_justify="left")
        for heading in ("check", "", "what was found", "fix"):
            table.add_column(heading, overflow="fold")
        for check in checks:
            table.add_row(cell(check.name), _MARK[check.status], cell(check.detail), cell(check.fix))
        console().print(table)
    if failed:
        raise Exit(1)
