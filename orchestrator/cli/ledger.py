"""``ledger check|rebuild|export``: the SQLite index of all runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import HomeOption, JsonOption, emit, errors_shown, home_of, note, say

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The ledger: check it, rebuild it from the journals, export it.",
)

RootOption = Annotated[
    list[Path] | None,
    typer.Option("--root", help="Also look for runs below this directory (repeatable)."),
]


@app.command(epilog="Example: python -m orchestrator ledger check")
def check(home: HomeOption = None, root: RootOption = None, json: JsonOption = False) -> None:
    """Check the ledger against itself and against the journals. Exit code 6 if something is wrong."""
    with errors_shown():
        from metrics.ledger.check import check as check_ledger

        findings = check_ledger(home_of(home).root, roots=root or [])
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
            raise typer.Exit(6)


@app.command(epilog="Example: python -m orchestrator ledger rebuild --root /scratch/me/runs")
def rebuild(home: HomeOption = None, root: RootOption = None, json: JsonOption = False) -> None:
    """Make the ledger again from the journals of every run, then replace the old one.

    The old file stays in use until the new one is complete. Unfinished runs are reconciled afterwards,
    which brings in what accounting knows.
    """
    with errors_shown():
        from metrics.ledger.rebuild import rebuild as rebuild_ledger

        from ..session import Session

        where = home_of(home).ensure()
        shown = (lambda path: None) if json else (lambda path: note(f"reading {path.name}"))
        report = rebuild_ledger(where.root, roots=root or [], on_run=shown)
        session = Session(where)
        problems = [*report.problems, *session.reconcile(session.active()).problems]
        if json:
            emit({**vars(report), "problems": problems})
        else:
            say(f"{report.path}: {report.runs} runs, {report.events} events in {report.seconds:.1f} s")
        for problem in problems:
            note(f"problem: {problem}")


@app.command(epilog="Example: python -m orchestrator ledger export --format csv --table attempt -o out/")
def export(
    format: Annotated[
        str, typer.Option("--format", "-f", help="csv, json, jsonl or sqlite (a copy of the file).")
    ] = "csv",
    table: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", help="Only this table (repeatable); default: all but events."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File, or directory for several tables; default: standard output."),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Export tables of the ledger; docs/ledger.md describes every column."""
    with errors_shown():
        from metrics.ledger import Ledger
        from metrics.ledger.export import export as export_ledger

        with Ledger.open(home_of(home).ledger, readonly=True) as ledger:
            for path in export_ledger(ledger, format, output, tables=table or []):
                note(f"wrote {path}")
