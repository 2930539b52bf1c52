"""``triage``: what failed first, where, how sure, what to do next."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from click.exceptions import Exit

from .commands import Group, argument, verb
from .common import console, emit, home_of, note, say
from .options import home_option, json_option

SHOW = "show"
_COLUMNS = ("category", "cases", "precision", "recall")


class Triage(Group):
    """``triage X`` is ``triage show X`` unless X is one of the other verbs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = [SHOW, *args]
        return super().parse_args(ctx, args)


@verb("Example: python -m orchestrator triage show 123456 --explain")
@argument(
    "target",
    metavar="TARGET",
    kind="<list[str]>",
    nargs=-1,
    about="Run, attempt id, Slurm job id, directory or files; default: the newest run.",
)
@click.option("--stage", "-s", metavar="<str>", help="Of a run: this stage.")
@click.option("--link", type=int, metavar="<int>", help="Of a run: this link of the chain (from 1).")
@click.option("--explain", is_flag=True, help="Also why, what else it might be, and what would change it.")
@click.option(
    "--all", "everything", is_flag=True, help="All evidence and the whole chain, whatever its length."
)
@click.option("--watch", is_flag=True, help="Of a run: look again every few seconds until it is over.")
@click.option(
    "--signatures",
    "extra",
    type=Path,
    metavar="<list[path]>",
    multiple=True,
    help="A site's own signature files besides those of TRAINMASTER_SIGNATURES (repeatable).",
)
@home_option
@json_option
def show(
    target: tuple[str, ...],
    stage: str | None,
    link: int | None,
    explain: bool,
    everything: bool,
    watch: bool,
    extra: tuple[Path, ...],
    home: Path | None,
    json: bool,
) -> None:
    """Say what failed first, where, how sure that is, and what to do next.

    Reads logs, kernel logs (dmesg-NODE.log), sacct and sinfo text, flight-recorder dumps, py-spy stacks
    and our own journals; what is missing is missing. Exit code 0 whatever the verdict.
    """
    from .. import triage as targets
    from ..session import Session

    session = Session(home_of(home))
    if extra:
        _add_signatures(extra)
    if watch:
        _watch(session, target, stage=stage, link=link)
        return
    documents = []
    with targets.resolve(session, target, stage=stage, link=link) as found:
        for one in found:
            made = targets.judge(one)
            documents.append(made.verdict.as_json())
            if not json:
                _print(one, made, session, explain=explain, everything=everything)
    if json:
        emit(documents[0] if len(documents) == 1 else documents)


def _add_signatures(extra: tuple[Path, ...]) -> None:
    import os

    from resiliency.triage.signatures import ENVIRONMENT

    known = os.environ.get(ENVIRONMENT, "")
    os.environ[ENVIRONMENT] = os.pathsep.join([p for p in (known, *map(str, extra)) if p])


def _print(one: Any, made: Any, session: Any, *, explain: bool, everything: bool) -> None:
    from resiliency.triage import page

    from ..triagehistory import history_of

    verdict = made.verdict
    run = one.run.id if one.run is not None else ""
    stage = one.attempt.stage if one.attempt is not None else ""
    rows = page.lines(
        verdict,
        title=one.title,
        run=run,
        stage=stage,
        job=one.job or made.case.job_id or "",
        history=history_of(session, verdict, one),
        explain=explain,
        everything=everything,
    )
    if not sys.stdout.isatty():
        say("\n".join(rows))
        return
    from rich.text import Text

    screen = console()
    for number, row in enumerate(rows):
        screen.print(Text(row, style=_style(number, row, verdict.action)))


def _style(number: int, row: str, action: str) -> str:
    if number == 0:
        return {"none": "bold green", "requeue": "bold yellow", "restart_in_job": "bold yellow"}.get(
            action, "bold red"
        )
    if row and not row.startswith(" ") and " " not in row:
        return "bold"
    return "red" if "  root  " in row else ""


def _watch(session: Any, target: tuple[str, ...], *, stage: str | None, link: int | None) -> None:
    """A line whenever the verdict on the running attempt changes; the page once the run is over."""
    import time

    from resiliency.errors import UsageError
    from resiliency.triage import page

    from .. import triage as targets
    from ..control import read_state

    last = ""
    while True:
        with targets.resolve(session, target, stage=stage, link=link) as found:
            one = found[0]
            if one.run is None:
                raise UsageError("--watch needs a run", hint="python -m orchestrator triage RUN --watch")
            made = targets.judge(one)
            verdict = made.verdict
            told = verdict.category not in ("unknown", "healthy")
            line = page.headline(verdict) if told else "nothing wrong so far"
            if line != last:
                say(f"{time.strftime('%H:%M:%S')}  {one.attempt.id if one.attempt else ''}  {line}")
                last = line
            if read_state(one.run).finished:
                _print(one, made, session, explain=False, everything=False)
                return
        time.sleep(5.0)


@verb("Example: python -m orchestrator triage label alpha/123456.0 gpu_ecc --node gpu-012 --note 'replaced'")
@argument(
    "attempt", metavar="ATTEMPT", kind="<str>", about="Attempt id (cluster/job.restart) or Slurm job id."
)
@argument("category", metavar="CATEGORY", kind="<str>", about="What it really was, in the taxonomy's word.")
@click.option("--node", metavar="<str>", help="The node at fault, if one was.")
@click.option("--note", "remark", metavar="<str>", default="", help="Why, for those who read it later.")
@home_option
@json_option
def label(attempt: str, category: str, node: str | None, remark: str, home: Path | None, json: bool) -> None:
    """Keep a person's correction of a verdict; `triage score --corrected` counts it."""
    from ..session import Session
    from ..triagehistory import correct

    row = correct(Session(home_of(home)), attempt, category, node=node, note=remark)
    if json:
        emit(row)
    else:
        say(f"{row['attempt']}: {row['said']['category']} corrected to {row['label']['category']}")


@verb("Example: python -m orchestrator triage score tests/data/triage/cases")
@argument(
    "directory",
    metavar="DIRECTORY",
    kind="<list[path]>",
    nargs=-1,
    type=Path,
    about="Directories of labelled cases (each with an expected.json).",
)
@click.option("--corrected", is_flag=True, help="Also the attempts that a person has labelled.")
@home_option
@json_option
def score(directory: tuple[Path, ...], corrected: bool, home: Path | None, json: bool) -> None:
    """Count how often verdicts are right: precision and recall per category, every miss."""
    from resiliency.triage import score as scoring

    from ..session import Session
    from ..triagehistory import corrected as read_corrected

    card = scoring.judge([c for d in directory for c in scoring.labelled(d)])
    if corrected or not directory:
        card.judged += read_corrected(Session(home_of(home)))
    table = card.by_category()
    if json:
        emit(
            {
                "shares": {n: card.share(n) for n in ("category", "action", "node", "rank", "evidence")},
                "wrong_exclusions": [j.name for j in card.wrong_exclusions],
                "categories": [
                    dict(zip(("category", "cases", "precision", "recall"), r, strict=True)) for r in table
                ],
                "misses": [j.name for j in card.misses],
            }
        )
        return
    if not card.judged:
        note("no labelled cases given and no corrections kept yet")
        raise Exit(7)
    say("\n".join(card.lines()))
    for name, count, precision, recall in table:
        shown = [f"{v:.2f}" if v is not None else "   -" for v in (precision, recall)]
        say(f"{name:<22} {count:>4}  precision {shown[0]}  recall {shown[1]}")


@verb("Example: python -m orchestrator triage signatures list")
@click.option("--category", metavar="<str>", help="Only those of this category.")
@json_option
def list_(category: str | None, json: bool) -> None:
    """List all signatures: ours and the site's."""
    from resiliency.triage.signatures import load

    rows = [s for s in load().signatures if category in (None, s.category)]
    if json:
        emit([s.data for s in rows])
        return
    for s in rows:
        say(f"{s.id:<28} {s.category:<20} {s.role:<10} {s.origin:<18} {s.provenance}")


@verb("Example: python -m orchestrator triage signatures test 'NVRM: Xid (PCI:0000:9d:00): 79, pid=1'")
@argument("line", metavar="LINE", kind="<str>", about="A log line, or - for lines on standard input.")
@json_option
def test(line: str, json: bool) -> None:
    """Say which signatures match a line, the one that counts first."""
    from resiliency.triage.signatures import best, load

    known = load()
    texts = sys.stdin.read().splitlines() if line == "-" else [line]
    rows: list[dict[str, Any]] = []
    for text in texts:
        found = [*known.of_line(text, "log"), *known.of_line(text, "kernel")]
        chosen = best(found)
        names = list(dict.fromkeys(s.id for s, _ in found))
        rows.append({"line": text, "chosen": chosen[0].id if chosen else None, "matches": names})
    if json:
        emit(rows)
        return
    for row in rows:
        others = [m for m in row["matches"] if m != row["chosen"]]
        say(f"{row['chosen'] or '-'}{'  (also ' + ', '.join(others) + ')' if others else ''}  {row['line']}")


@verb("Example: python -m orchestrator triage signatures lint site.yaml")
@argument(
    "file",
    metavar="FILE",
    kind="<list[path]>",
    nargs=-1,
    type=Path,
    about="Signature files; default: all in use.",
)
def lint(file: tuple[Path, ...]) -> None:
    """Check signatures: samples match, patterns cannot run away, none matches another's negative sample."""
    from resiliency.triage import lint as rules
    from resiliency.triage.signatures import load, read

    everyone = load(list(file)) if file else load()
    own = read(file) if file else list(everyone.signatures)
    problems = [f"{s.origin}: {s.id}: {p}" for s in own for p in rules.problems_of(s)]
    problems += rules.clashes(everyone.signatures)
    for problem in problems:
        say(problem)
    say(f"{len(own)} signatures, {len(problems)} problems")
    if problems:
        raise Exit(3)


list_.name = "list"
signatures = Group(
    name="signatures",
    commands=[list_, test, lint],
    help="The signatures: list them, test a line, check a site's own.",
    epilog="Example: python -m orchestrator triage signatures lint site.yaml",
)
command = Triage(
    name="triage",
    commands=[show, label, score, signatures],
    help="Find the root cause of a dead or standing job, and say what to do. "
    "`triage X` is short for `triage show X`.",
    epilog="Example: python -m orchestrator triage 123456 --explain",
)
