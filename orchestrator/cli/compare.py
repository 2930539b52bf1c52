"""``compare``: two runs side by side."""

from __future__ import annotations

from pathlib import Path

import click

from .commands import argument, verb
from .common import cell, console, emit, home_of, say
from .options import home_option


@verb("Example: python -m orchestrator compare quickstart-20260101 quickstart-20260108")
@argument("first", metavar="FIRST", kind="<str>", about="Run id, or a prefix of it.")
@argument("second", metavar="SECOND", kind="<str>", about="The run that is compared with it.")
@click.option("--stage", "-s", metavar="<str>", help="Only this stage of both.")
@click.option(
    "--format",
    "-f",
    "shape",
    type=click.Choice(("table", "csv", "json", "md")),
    default="table",
    show_default=True,
    help="How to print it.",
)
@home_option
def command(first: str, second: str, stage: str | None, shape: str, home: Path | None) -> None:
    """Compare two runs: every figure and the shares of time, with their difference.

    What the ledger knows is compared; `tick` brings it up to date.
    """
    from metrics.accounting.summary import Scope, summarise
    from metrics.ledger import Ledger
    from metrics.reports import formats
    from metrics.reports.comparing import compare

    with Ledger.open(home_of(home).ledger, readonly=True) as ledger:
        both = [summarise(ledger, Scope(run, stage)) for run in (first, second)]
    table = compare(*both)
    if shape == "json":
        emit({"first": both[0].window, "second": both[1].window, **formats.as_data(both[0], [table])})
    elif shape == "csv":
        say(formats.as_csv(table).rstrip())
    elif shape == "md":
        say(formats.as_markdown(both[0], [table]).rstrip())
    else:
        from rich.table import Table

        say(f"first: {both[0].window}\nsecond: {both[1].window}")
        shown = Table()
        for heading in ("", "name", "first", "second", "difference", "ratio", "unit", "remark"):
            shown.add_column(heading, overflow="fold")
        for one in table.records():
            remark = "intervals do not meet" if one["apart"] else ""
            remark += (", " if remark and one["provisional"] else "") + (
                "provisional" * bool(one["provisional"])
            )
            names = ("what", "name", "first", "second", "difference", "ratio", "unit")
            shown.add_row(*(cell(formats.shown(one[name])) for name in names), remark)
        console().print(shown)
