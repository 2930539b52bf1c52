"""``nodes list|rank|explain|exclude|readmit``: which nodes are kept out of runs, and why."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .commands import Group, argument, verb
from .common import cell, console, emit, home_of, note, refreshed, say
from .noderank import rank
from .options import home_option, json_option
from .show import clock_time, duration, report_data, report_lines

if TYPE_CHECKING:
    from ..control import Report
    from ..home import Home
    from ..node_report import NodeReport

cluster_option = click.option(
    "--cluster", "-c", metavar="<str>", help="Cluster or profile; default: the one `auto` means."
)
refresh_option = click.option(
    "--refresh/--no-refresh",
    default=True,
    show_default=True,
    help="Take in first what unfinished runs found.",
)
nodes_argument = argument(
    "nodes", metavar="NODE", kind="<list[str]>", nargs=-1, required=True, about="Nodes: n07 or n[1-3]."
)


@verb("Example: python -m orchestrator nodes list --all")
@click.option("--cluster", "-c", metavar="<str>", help="Only of this cluster or profile.")
@click.option("--all", "-a", "everything", is_flag=True, help="Also nodes that failures showed on.")
@refresh_option
@home_option
@json_option
def listing(cluster: str | None, everything: bool, refresh: bool, home: Path | None, json: bool) -> None:
    """List nodes that are kept out, until when and why.

    A node is kept out by a person, by a fault that is provably its own, or by failures of several jobs.
    """
    from .. import node_report

    where = home_of(home)
    problems = refreshed(where) if refresh else []
    found = node_report.reports(where, cluster=_named(where, cluster), now=time.time())
    shown = [one for one in found.nodes if everything or one.excluded]
    problems += found.problems
    if json:
        emit({"nodes": [one.as_data() for one in shown], "problems": problems})
    elif not shown:
        more = len(found.nodes)
        say("no node is kept out" + (f"; failures showed on {more} (--all)" if more else ""))
    else:
        console().print(_table(shown))
    for problem in problems:
        note(f"problem: {problem}")


@verb("Example: python -m orchestrator nodes explain n07")
@argument("node", metavar="NODE", kind="<str>", about="Name of the node.")
@click.option("--cluster", "-c", metavar="<str>", help="Only on this cluster or profile.")
@refresh_option
@home_option
@json_option
def explain(node: str, cluster: str | None, refresh: bool, home: Path | None, json: bool) -> None:
    """Tell what is known of a node: failures that showed on it, who keeps it out, how to drain it.

    Exit code 7 if no run had the node and nobody said anything of it.
    """
    from .. import node_report

    where = home_of(home)
    problems = refreshed(where) if refresh else []
    found = node_report.explain(where, node, cluster=_named(where, cluster), now=time.time())
    problems += found.problems
    if json:
        emit({"nodes": [one.as_data() for one in found.nodes], "problems": problems})
    else:
        for one in found.nodes:
            for line in node_report.lines(one):
                say(line)
    for problem in problems:
        note(f"problem: {problem}")


@verb('Example: python -m orchestrator nodes exclude n07 --reason "fan broken, ticket 4711" --until 3d')
@nodes_argument
@click.option("--reason", "-r", metavar="<str>", required=True, help="Why, for whoever asks later.")
@click.option(
    "--until", "-u", metavar="<str>", default="7d", show_default=True, help="36h, 7d, 2w, or a date."
)
@cluster_option
@home_option
@json_option
def exclude(
    nodes: tuple[str, ...], reason: str, until: str, cluster: str | None, home: Path | None, json: bool
) -> None:
    """Keep nodes out of all runs on a cluster; links that are queued already are told at once.

    A stage still gets the nodes it needs. Doing it again is safe.
    """
    from resiliency.edges import SystemClock

    from .. import nodes as known

    where, clock = home_of(home), SystemClock()
    chosen = known.node_names(nodes)
    of = _cluster(where, cluster)
    end = known.parse_until(until, clock.wall())
    new = known.exclude(where, of, chosen, reason=reason, until=end, clock=clock)
    same = [node for node in chosen if node not in new]
    _tell("excluded", of, new, same, f"until {clock_time(end)}", "already excluded so", where, json=json)


@verb('Example: python -m orchestrator nodes readmit n07 --reason "fan replaced"')
@nodes_argument
@click.option("--reason", "-r", metavar="<str>", default="", help="What was done about it.")
@cluster_option
@home_option
@json_option
def readmit(nodes: tuple[str, ...], reason: str, cluster: str | None, home: Path | None, json: bool) -> None:
    """Let nodes back, whoever kept them out, and forget what was held against them.

    Queued links are told at once. Doing it again is safe.
    """
    from resiliency.edges import SystemClock

    from .. import nodes as known

    where = home_of(home)
    chosen, of = known.node_names(nodes), _cluster(where, cluster)
    new = known.readmit(where, of, chosen, reason=reason, clock=SystemClock())
    same = [node for node in chosen if node not in new]
    _tell("readmitted", of, new, same, "", "nothing was held against", where, json=json)


def _tell(
    did: str, cluster: str, new: Sequence[str], same: Sequence[str], more: str, why: str, home: Home,
    *, json: bool,
) -> None:  # fmt: skip
    report = _brought_forward(home)
    if json:
        emit({"cluster": cluster, did: list(new), "unchanged": list(same), **report_data(report)})
    else:
        if new:
            say(f"{cluster}: {did} {', '.join(new)}{' ' if more else ''}{more}")
        if same:
            say(f"{cluster}: {why} {', '.join(same)}")
        for line in report_lines(report) if report.runs else ():
            say(line)
    for problem in report.problems:
        note(f"problem: {problem}")


def _brought_forward(home: Home) -> Report:
    """Unfinished runs, whose queued links are to hear of it; the ledger, even where there are none."""
    from .. import control
    from ..session import Session

    session = Session(home)
    active = session.active()
    if not active:
        return control.Report(problems=control.index(home, []))
    return session.reconcile(active, lock_wait_s=5.0)


def _named(home: Home, given: str | None) -> str | None:
    return None if given is None else _cluster(home, given)


def _cluster(home: Home, given: str | None) -> str:
    """What attempts on a cluster or profile are filed under."""
    from resiliency.errors import SpecError

    from ..clusters import load_profiles, resolve_profile

    profiles = load_profiles(home.root)
    names = {profile.cluster_name for profile in profiles.values()}
    try:
        return resolve_profile(given or "auto", profiles).cluster_name
    except SpecError:
        if given in names:
            return str(given)
        raise


def _table(reports: Sequence[NodeReport]) -> Any:
    from rich.table import Table

    table = Table()
    for heading in ("node", "cluster", "state", "until", "by", "failures", "why"):
        table.add_column(heading, overflow="fold")
    now = time.time()
    for one in reports:
        out = one.excluded
        left = f" ({duration(out.until - now)})" if out else ""
        table.add_row(
            cell(one.node),
            cell(one.cluster),
            "[red]excluded[/]" if out else "free",
            f"{clock_time(out.until)}{left}" if out else "-",
            cell(out.by) if out else "-",
            f"{len(one.evidence)} of {one.jobs} job(s)",
            cell(out.reason if out else one.evidence[-1].detail if one.evidence else ""),
        )
    return table


command = Group(
    name="nodes",
    commands={"list": listing, "rank": rank, "explain": explain, "exclude": exclude, "readmit": readmit},
    help="Nodes that are kept out of runs: list, rank, explain, exclude, readmit.",
    epilog="Example: python -m orchestrator nodes list",
)
