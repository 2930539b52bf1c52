"""``nodes rank``: which nodes fail more than their fleet."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .commands import verb
from .common import cell, console, emit, home_of, note, say
from .options import home_option, json_option

if TYPE_CHECKING:
    from metrics.stats.lemons import Ranking, Standing

#: Nodes on a terminal; JSON has them all.
_SHOWN = 20


@verb("Example: python -m orchestrator nodes rank --since 90d --factor 4")
@click.option("--cluster", "-c", metavar="<str>", help="Only of this cluster.")
@click.option(
    "--since",
    metavar="<str>",
    default="90d",
    show_default=True,
    help="How far back: 12h, 30d, 8w, or a date. Less than 90 days finds few.",
)
@click.option(
    "--factor",
    type=click.FloatRange(min=1, min_open=True, max=1000),
    metavar="<float>",
    default=4.0,
    show_default=True,
    help="A lemon fails more than so many times as often as its fleet.",
)
@home_option
@json_option
def rank(cluster: str | None, since: str, factor: float, home: Path | None, json: bool) -> None:
    """Rank nodes by the probability that they fail more often than their fleet, with the evidence.

    Only failures that a node can have caused count. A name is called a lemon if few of those called
    are expected to be wrong; docs/statistics.md has the model and what it cannot see.
    """
    from metrics.accounting.nodes import records
    from metrics.ledger import Ledger
    from metrics.stats import lemons
    from resiliency.errors import UsageError

    from ..moments import moment

    now = time.time()
    begin = moment(since, now, "--since", back=True)
    if begin >= now:
        raise UsageError(f"--since {since} is not past", hint="such as 90d")
    where = home_of(home)
    with Ledger.open(where.ledger, readonly=True) as ledger:
        found = records(ledger, now, cluster=cluster, days=(now - begin) / 86400)
    ranking = lemons.rank(found, lemons.Policy(factor=factor))
    if json:
        emit(_data(ranking))
    elif not ranking.standings:
        say(f"no node had work since {since}")
    else:
        _show(ranking)
    for line in ranking.notes if ranking.standings else ():
        note(line)


def _data(ranking: Ranking) -> dict[str, Any]:
    return {
        "nodes": [_standing(one) for one in ranking.standings],
        "fleet": {
            "rate": ranking.fleet_rate,
            "low": ranking.fleet_low,
            "high": ranking.fleet_high,
            "unit": "failures per 1000 node-days",
            "nodes": ranking.nodes,
            "failures": ranking.failures,
            "node_days": ranking.node_days,
        },
        "factor": ranking.policy.factor,
        "notes": list(ranking.notes),
    }


def _standing(one: Standing) -> dict[str, Any]:
    return {
        "node": one.node,
        "lemon": one.lemon,
        "probability": one.probability,
        "fdr": one.fdr,
        "failures": one.failures,
        "node_days": one.node_days,
        "rate": one.rate,
        "low": one.low,
        "high": one.high,
        "evidence": list(one.evidence),
    }


def _show(ranking: Ranking) -> None:
    from rich.table import Table

    say(
        f"{ranking.nodes} nodes, {ranking.failures} failures laid on them in"
        f" {ranking.node_days:.1f} node-days;"
        f" the fleet has {ranking.fleet_rate:.3g} per 1000 node-days"
        f" ({ranking.fleet_low:.3g} to {ranking.fleet_high:.3g})"
    )
    table = Table()
    for heading in ("node", "lemon", "probability", "failures", "node-days", "per 1000 node-days"):
        table.add_column(heading, overflow="fold")
    for one in ranking.standings[:_SHOWN]:
        table.add_row(
            cell(one.node),
            "[red]yes[/]" if one.lemon else "no",
            f"{one.probability:.3f}",
            str(one.failures),
            f"{one.node_days:.1f}",
            f"{one.rate:.3g} ({one.low:.3g} to {one.high:.3g})",
        )
    console().print(table)
    for one in ranking.lemons:
        say(f"{one.node}:")
        for line in one.evidence:
            say(f"  {line}")
        say(f"  next: python -m orchestrator nodes explain {one.node}")
