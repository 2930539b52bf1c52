"""``drill``: a rehearsal, faults done on purpose to a run made for it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from .commands import verb
from .common import cell, console, emit, home_of, note, say
from .options import (
    cluster_option,
    experiment_argument,
    home_option,
    json_option,
    offline_option,
    overrides_argument,
)
from .show import duration

if TYPE_CHECKING:
    from resiliency.faults import Fault

    from ..drill.figures import Outcome, Story

#: The run came through otherwise than it should.
_NOT_AS_EXPECTED = 1


@verb("Example: python -m orchestrator drill examples/quickstart.yaml --fault sigkill@300:1 --fault hang@500")
@experiment_argument
@overrides_argument
@click.option(
    "--fault",
    "-f",
    "wanted",
    metavar="<list[str]>",
    multiple=True,
    required=True,
    help="KIND[@step][:rank|node][+seconds], repeatable; --fault help lists the kinds.",
)
@click.option("--stage", "-s", metavar="<str>", help="Stage to harm; else the first that trains.")
@cluster_option
@home_option
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Decides what is left open, such as the rank."
)
@click.option(
    "--baseline/--no-baseline",
    default=False,
    show_default=True,
    help="Run it without faults first, and compare every loss.",
)
@click.option(
    "--timeout",
    type=float,
    default=3600.0,
    show_default=True,
    help="Seconds until a run is given up and cancelled.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan of faults; run nothing.")
@offline_option
@json_option
def command(
    experiment: Path,
    overrides: tuple[str, ...],
    wanted: tuple[str, ...],
    stage: str | None,
    cluster: str | None,
    home: Path | None,
    seed: int,
    baseline: bool,
    timeout: float,
    dry_run: bool,
    offline: bool,
    json: bool,
) -> None:
    """Rehearse failures: run an experiment, harm it on purpose, and tell how it came through.

    The run is a real one, under a name of its own. Exit code 0 if it came through every fault as it should.
    """
    import random

    from ..drill import asked, planning
    from ..prepare import prepare

    if "help" in wanted:
        say(f"{asked.FORM}, where KIND is one of:\n{asked.listing()}")
        return
    parsed = [asked.parse(text) for text in wanted]
    where = home_of(home)

    def ready(suffix: str) -> Any:
        first = prepare(where, experiment, list(overrides), cluster=cluster, ask=False)
        name = f"name={first.record.name[:40].rstrip('-')}-{suffix}"
        # The local scheduler has one node to offer, and emulates as many as a rehearsal needs.
        ask = not offline and first.profile.scheduler != "local"
        return prepare(where, experiment, [*overrides, name], cluster=cluster, ask=ask)

    made = ready("drill")
    made.raise_faults()
    target = planning.Target.of(planning.choose_stage(made.plan, stage))
    plan = planning.make_plan(parsed, target, random.Random(seed))
    nodes = {fault.id: one.node for fault, one in zip(plan, parsed, strict=True) if one.node}
    if dry_run:
        _show_plan(target.stage, plan, nodes, json=json)
        return
    from ..drill.driving import Drill
    from ..session import Session

    session = Session(where)
    tell = note if json else say
    fair = None
    if baseline:
        fair = Drill(session, ready("baseline"), target.stage, (), say=tell)
        tell(f"baseline {fair.run.id}")
        fair.follow(timeout)
    drill = Drill(session, made, target.stage, plan, asked_nodes=nodes, say=tell)
    tell(f"drill {drill.run.id}")
    found = drill.outcome(drill.follow(timeout), fair)
    emit(_data(found)) if json else _show(found)
    raise Exit(0 if found.ok else _NOT_AS_EXPECTED)


def _data(found: Outcome) -> dict[str, Any]:
    return {"ok": found.ok, **asdict(found)}


def _show_plan(stage: str, plan: tuple[Fault, ...], nodes: dict[str, str], *, json: bool) -> None:
    if json:
        emit(
            {
                "dry_run": True,
                "stage": stage,
                "faults": [{**f.as_data(), "asked_node": nodes.get(f.id)} for f in plan],
            }
        )
        return
    say(f"stage {stage}:")
    for fault in plan:
        row = fault.row
        at = (
            f"at {fault.point} from step {fault.step}"
            if fault.point or row.point
            else f"before step {fault.step}"
        )
        whom = (
            f"node {nodes[fault.id]}"
            if fault.id in nodes
            else "any rank"
            if fault.rank is None
            else f"rank {fault.rank}"
        )
        whom = f"the node of {whom}" if row.node and fault.id not in nodes else whom
        say(f"  {fault.id:<22} {at}, {whom}: {row.about}; the run {_EXPECTED[row.expect]}")


_EXPECTED = {
    "recovers": "goes on",
    "unharmed": "does not notice, or only says so",
    "ends": "stops and says why",
}


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _decision(story: Story) -> str:
    if not story.rule:
        return "-"
    where = "" if story.in_job is None else " in job" if story.in_job else " by the chain"
    return f"{story.action or 'none'}{where} ({story.rule})"


def _show(found: Outcome) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("fault", "step", "detected", "taken for", "decision", "recovered", "lost", ""):
        table.add_column(title)
    for story in found.stories:
        table.add_row(
            cell(story.kind),
            _count(story.step),
            _seconds(story.detected_s),
            cell(story.category or "-"),
            cell(_decision(story)),
            _seconds(story.recovery_s),
            _count(story.lost_steps),
            "[green]as it should[/]" if story.ok else "[red]not as it should[/]",
        )
    console().print(table)
    for story in found.stories:
        if story.detected_by:
            say(f"{story.kind}: noticed by {story.detected_by}")
        if story.why:
            say(f"{story.kind}: {story.why}")
    say(
        f"{found.status} after {duration(found.seconds)}: {found.attempts} attempt(s), "
        f"{found.cycles} cycle(s), {found.lost_steps} step(s) lost, "
        f"last step {_count(found.last_step)} with loss {found.last_loss or '-'}"
    )
    if found.baseline_run:
        say(f"baseline {found.baseline_run} took {duration(found.baseline_seconds)}")
    against = "the baseline's and their own repetition" if found.baseline_run else "their own repetition"
    if found.differing:
        say(f"losses differ from {against} at steps {found.differing[:10]}")
    else:
        say(f"losses agree with {against} to the last digit ({found.repeated} steps repeated)")
