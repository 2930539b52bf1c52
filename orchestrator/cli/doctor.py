"""``doctor``: what this cluster and environment can do, with the fix for each gap."""

from __future__ import annotations

from typing import Annotated

import typer

from .common import HomeOption, JsonOption, cell, console, emit, errors_shown, home_of

EXAMPLE = "Example: python -m orchestrator doctor --cluster local"

_MARK = {
    "ok": "[green]ok[/]",
    "warn": "[yellow]WARN[/]",
    "fail": "[red]FAIL[/]",
    "unknown": "[dim]unknown[/]",
}


def command(
    cluster: Annotated[str, typer.Option("--cluster", "-c", help="Cluster profile to look at.")] = "auto",
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Check this machine and cluster: partitions, limits, preemption, accounting, file systems, versions.

    Exit code 1 if something must be mended before a run can work.
    """
    with errors_shown():
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
            raise typer.Exit(1)
