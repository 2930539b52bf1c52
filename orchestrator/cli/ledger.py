"""``ledger check|rebuild|export|import``: the SQLite index of all runs."""

from __future__ import annotations

from pathlib import Path

import click
from click.exceptions import Exit

from .commands import Group, verb
from .common import emit, home_of, note, say
from .options import home_option, json_option

root_option = click.option(
    "--root",
    type=Path,
    metavar="<list[Path]>",
    multiple=True,
    help="Also look for runs below this directory (repeatable).",
)


@verb("Example: python -m orchestrator ledger check")
@home_option
@root_option
@json_option
def check(home: Path | None, root: tuple[Path, ...], json: bool) -> None:
    """Check the ledger against itself and against the journals. Exit code 6 if something is wrong."""
    from metrics.ledger.check import check as check_ledger

    findings = check_ledger(home_of(home).root, roots=list(root))
    errors = [finding for finding in findings if finding.severity == "error"]
    if json:
        emit({"ok": not errors, "findings": [vars(finding) for finding in findings]})
    else:
        for finding in findings:
            say(f"{finding.severity}: {finding.message} [{finding.code}]")
            if finding.hint:
                say(f"  next: {finding.hint}")
        others = len(findings) - len(errors)
        say(f"{home_of(home).ledger}: {len(errors)} errors, {others} other remarks")
    if errors:
        raise Exit(6)


@verb("Example: python -m orchestrator ledger rebuild --root /scratch/me/runs")
@home_option
@root_option
@json_option
def rebuild(home: Path | None, root: tuple[Path, ...], json: bool) -> None:
    """Make the ledger again from the journals of every run, then replace the old one.

    The old file stays in use until the new one is complete. Unfinished runs are reconciled afterwards,
    which brings in what accounting knows.
    """
    from metrics.ledger.rebuild import rebuild as rebuild_ledger

    from ..session import Session

    where = home_of(home).ensure()
    shown = (lambda path: None) if json else (lambda path: note(f"reading {path.name}"))
    report = rebuild_ledger(where.root, roots=list(root), on_run=shown)
    session = Session(where)
    problems = [*report.problems, *session.reconcile(session.active()).problems]
    if json:
        emit({**vars(report), "problems": problems})
    else:
        say(f"{report.path}: {report.runs} runs, {report.events} events in {report.seconds:.1f} s")
    for problem in problems:
        note(f"problem: {problem}")


@verb("Example: python -m orchestrator ledger export --format csv --table attempt -o out/")
@click.option(
    "--format",
    "-f",
    metavar="<str>",
    default="csv",
    show_default=True,
    help="csv, json, jsonl or sqlite (a copy of the file).",
)
@click.option(
    "--table",
    "-t",
    metavar="<list[str]>",
    multiple=True,
    help="Only this table (repeatable); default: all but events.",
)
@click.option(
    "--out",
    "-o",
    "output",
    type=Path,
    metavar="<path>",
    help="File, or directory for several tables; default: standard output.",
)
@home_option
def export(format: str, table: tuple[str, ...], output: Path | None, home: Path | None) -> None:
    """Export tables of the ledger; docs/ledger.md describes every column."""
    from metrics.ledger import Ledger
    from metrics.ledger.export import export as export_ledger

    with Ledger.open(home_of(home).ledger, readonly=True) as ledger:
        for path in export_ledger(ledger, format, output, tables=list(table)):
            note(f"wrote {path}")


@verb("Example: python -m orchestrator ledger import --sacct jobs.txt --timezone Europe/Paris")
@click.option(
    "--sacct", metavar="<path>", help="A dump of `sacct -D -P` with its header; - is standard input."
)
@click.option("--live", is_flag=True, help="Ask sacct now instead of reading a dump.")
@click.option("--since", metavar="<str>", default="30d", show_default=True, help="How far back --live asks.")
@click.option(
    "--log",
    type=Path,
    metavar="<list[Path]>",
    multiple=True,
    help="A log of Megatron-LM, torchtitan or NeMo (repeatable).",
)
@click.option(
    "--job", metavar="<str>", help="The job that the logs are of; default: what they say themselves."
)
@click.option("--timezone", metavar="<str>", help="Zone of times without one; default: this machine's.")
@click.option("--cluster", "-c", metavar="<str>", help="Cluster of the jobs where no column names it.")
@click.option("--dry-run", is_flag=True, help="Show what would come in; change nothing.")
@home_option
@json_option
def import_(
    sacct: str | None,
    live: bool,
    since: str,
    log: tuple[Path, ...],
    job: str | None,
    timezone: str | None,
    cluster: str | None,
    dry_run: bool,
    home: Path | None,
    json: bool,
) -> None:
    """Bring in jobs that Trainmaster did not launch: accounting and training logs; docs/import.md.

    Importing the same again, or something that overlaps, adds nothing twice.
    """
    from ..importing.command import Wanted, run

    wanted = Wanted(sacct, live, since, log, job, timezone, cluster, dry_run)
    summaries = run(home_of(home), wanted)
    if json:
        emit({"imports": [summary.as_data() for summary in summaries]})
        return
    for summary in summaries:
        for line in summary.lines():
            say(line)


import_.name = "import"  # a word of the language, so no name of a function

command = Group(
    name="ledger",
    commands=[check, rebuild, export, import_],
    help="The ledger: check it, rebuild it from the journals, export it.",
    epilog="Example: python -m orchestrator ledger check",
)
