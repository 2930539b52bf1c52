"""``ledger check|rebuild|export``: the SQLite index of all runs."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, help="The ledger: check it, rebuild it from the journals, export it.")
