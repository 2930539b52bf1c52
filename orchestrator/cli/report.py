"""``report``: where the time went, how reliable it was, and what failed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .commands import argument, verb
from .common import cell, console, emit, home_of, note, refreshed, say
from .options import home_option

if TYPE_CHECKING:
    from metrics.accounting.values import Scope, Summary
    from metrics.reports.tables import Table

    from ..home import Home

FORMATS = ("table", "csv", "json", "md")
#: Failures on a terminal; the other formats have them all.
_FAILURES = 10


@verb("Example: python -m orchestrator report --since 30d --by node --format csv --output reliability/")
@argument(
    "run",
    metavar="RUN",
    kind="<str>",
    required=False,
    about="Run id, or a prefix of it; none: all runs.",
)
@click.option("--since", metavar="<str>", help="Only from then on: 12h, 30d, 8w ago, or a date.")
@click.option("--until", metavar="<str>", help="Only up to then.")
@click.option("--stage", "-s", metavar="<str>", help="Only this stage.")
@click.option("--cluster", "-c", metavar="<str>", help="Only runs on this cluster.")
@click.option(
    "--by", metavar="<str>", help="Also for each run, stage, attempt, cause, node, switch or version."
)
@click.option(
    "--format",
    "-f",
    "shape",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="csv: a file for each table, in the directory of --output.",
)
@click.option("--output", "-o", type=Path, metavar="<path>", help="Write there instead of printing.")
@click.option("--rehearsals", is_flag=True, help="Also count runs that were harmed on purpose.")
@click.option(
    "--refresh/--no-refresh", default=True, show_default=True, help="Read what is new in the journals first."
)
@home_option
def command(
    run: str | None,
    since: str | None,
    until: str | None,
    stage: str | None,
    cluster: str | None,
    by: str | None,
    shape: str,
    output: Path | None,
    rehearsals: bool,
    refresh: bool,
    home: Path | None,
) -> None:
    """Show where the time of runs went: ETTR, goodput, failures, each with its window and bounds.

    Columns are those of docs/reports.md, definitions those of docs/accounting.md.
    """
    from metrics.accounting.values import DIMENSIONS
    from resiliency.errors import UsageError

    if by is not None and by not in DIMENSIONS:
        raise UsageError(f"--by {by!r} is no dimension", hint=f"one of {', '.join(DIMENSIONS)}")
    if shape == "csv" and output is None:
        raise UsageError("csv is several files", hint="--output DIRECTORY")
    where = home_of(home)
    scope = _scope(run, since, until, stage, cluster, rehearsals)
    if refresh:
        _refresh(where)
    from metrics.accounting.advise import advise
    from metrics.accounting.summary import summarise
    from metrics.ledger import Ledger
    from metrics.reports.tables import tables

    with Ledger.open(where.ledger, readonly=True) as ledger:
        summary = summarise(ledger, scope)
        _write(summary, tables(summary, advise(ledger, scope, summary), by), by, shape, output)


def _refresh(where: Home) -> None:
    """What runs that are under way have done since, and runs that only an older version has read."""
    for problem in refreshed(where):
        note(f"problem: {problem}")
    if not where.ledger.exists():
        return
    from metrics.ledger import Ledger
    from metrics.ledger.stale import bring_up, stale

    with Ledger.open(where.ledger, readonly=True) as ledger:
        old = stale(ledger)
    if old:
        note(f"reading {len(old)} runs again, which an older version had read")
        for problem in bring_up(where.ledger, old):
            note(f"problem: {problem}")


def _scope(
    run: str | None, since: str | None, until: str | None, stage: str | None, cluster: str | None,
    rehearsals: bool,
) -> Scope:  # fmt: skip
    import time

    from metrics.accounting.values import Scope
    from resiliency.errors import UsageError

    from ..moments import moment

    now = time.time()
    first = None if since is None else moment(since, now, "--since", back=True)
    last = None if until is None else moment(until, now, "--until", back=True)
    if first is not None and last is not None and last <= first:
        raise UsageError("--until is not after --since", hint="--since 30d --until 7d: the weeks between")
    return Scope(run, stage, first, last, cluster, rehearsals=rehearsals, now=now)


def _write(summary: Summary, found: list[Table], by: str | None, shape: str, output: Path | None) -> None:
    from metrics.reports import formats

    if shape == "csv":
        assert output is not None
        for table in found:
            _keep(output / f"{table.name}.csv", formats.as_csv(table))
        say(f"{output}: {', '.join(f'{table.name}.csv ({len(table.rows)})' for table in found)}")
    elif shape == "json" and output is None:
        emit(formats.as_data(summary, found))
    elif shape == "json":
        import json

        _keep(output, json.dumps(formats.as_data(summary, found), indent=2) + "\n")
    elif shape == "md":
        text = formats.as_markdown(summary, found)
        say(text.rstrip()) if output is None else _keep(output, text)
    elif output is not None:
        from resiliency.errors import UsageError

        raise UsageError("a table is for a terminal", hint="--format md, csv or json with --output")
    else:
        _show(summary, found, by)


def _keep(path: Path | None, text: str) -> None:
    from resiliency import durable
    from resiliency.redact import redact

    assert path is not None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(redact(text), encoding="utf-8", newline="")
    except OSError as error:
        raise durable.storage_error(error, path, "write") from error


def _show(summary: Summary, found: list[Table], by: str | None) -> None:
    from rich.table import Table as Rich

    from metrics.reports.formats import shown

    figures, waterfall, failures, advice = found
    out = console()
    say(summary.window)
    table = Rich("figure", "value", "unit", "bounds", "n", "note", title="figures", title_justify="left")
    for one in figures.records():
        if one["dimension"] != "all" or (one["value"] is None and not one["n"]):
            continue
        low, high, level = one["low"], one["high"], one["level"]
        bounds = "" if level is None else f"{shown(low)} to {shown(high)} ({shown(level)})"
        words = [str(one["note"])] if one["note"] else []
        words += ["provisional"] if one["provisional"] else []
        count = "" if one["n"] is None else str(one["n"])
        table.add_row(
            str(one["name"]), shown(one["value"]), str(one["unit"]), bounds, count, cell("; ".join(words))
        )
    out.print(table)
    unknown = [str(o["name"]) for o in figures.records() if o["dimension"] == "all" and o["value"] is None]
    if unknown:
        say(f"not known: {', '.join(unknown)}")
    table = Rich("time", "wall-clock s", "of it", "node-hours", "of the allocated", title="where it went",
                 title_justify="left")  # fmt: skip
    for one in waterfall.records():
        if one["dimension"] == "all" and (one["seconds"] or one["node_seconds"]):
            hours = float(one["node_seconds"] or 0) / 3600
            table.add_row(
                str(one["kind"]), shown(one["seconds"]), _percent(one["share"]), shown(hours),
                _percent(one["node_share"]),
            )  # fmt: skip
    out.print(table)
    if by is not None:
        out.print(_groups(figures, by))
    if failures.rows:
        title = f"the last of {len(failures.rows)} failures and interruptions"
        heads = ("began", "attempt", "category", "node", "step", "lost", "action", "why")
        table = Rich(*heads, title=title, title_justify="left")
        names = ("onset_at", "attempt_id", "category", "node", "step", "lost_steps", "action", "reason")
        for one in failures.records()[-_FAILURES:]:
            table.add_row(*(cell("-" if one[name] is None else str(one[name])) for name in names))
        out.print(table)
    for topic, text in advice.rows:
        say(f"{topic}: {text}")
    say("definitions: docs/accounting.md; all columns: --format csv or json")


def _percent(share: object) -> str:
    return f"{share:.1%}" if isinstance(share, float) else "-"


def _groups(figures: Table, by: str) -> object:
    """A line for each group, a column for each figure that any of them has."""
    from rich.table import Table as Rich

    from metrics.reports.formats import shown

    groups: dict[str, dict[str, str]] = {}
    for one in figures.records():
        if one["dimension"] == by:
            row = groups.setdefault(str(one["key"]), {})
            if one["value"] is not None:
                row[str(one["name"])] = shown(one["value"])
    wanted = ("ettr", "goodput", "node_hours", "failures", "failures_per_1000_node_days", "lost_seconds",
              "mttr_progress_seconds")  # fmt: skip
    names = [name for name in wanted if any(name in row for row in groups.values())]
    table = Rich(by, *names, title=f"by {by}", title_justify="left")
    for key, row in groups.items():
        table.add_row(cell(key), *(row.get(name, "-") for name in names))
    return table
