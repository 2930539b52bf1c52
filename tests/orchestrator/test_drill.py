"""What a person types after --fault, and the plan made of it."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import app
from orchestrator.drill.asked import parse
from orchestrator.drill.planning import Target, make_plan
from resiliency.errors import UsageError
from resiliency.faultkinds import ENDS, KINDS, RECOVERS, UNHARMED
from resiliency.faults import parse_plan

FOUR = Target("train", world=4, ranks_per_node=2, steps=100)


@pytest.mark.parametrize(
    ("text", "kind", "step", "point", "rank", "node", "seconds"),
    [
        ("sigkill", "sigkill", None, "", None, None, None),
        ("sigkill@30:1", "sigkill", 30, "", 1, None, None),
        ("SIGKILL@30", "sigkill", 30, "", None, None, None),
        ("hang_outside:3", "hang-outside", None, "", 3, None, None),
        ("node-crash@7:a3", "node-crash", 7, "", None, "a3", None),
        ("node-crash:0", "node-crash", None, "", 0, None, None),
        ("exception@checkpoint.write:1", "exception", None, "checkpoint.write", 1, None, None),
        ("slow@5:1+0.5", "slow", 5, "", 1, None, 0.5),
        ("supervisor-freeze+20", "supervisor-freeze", None, "", None, None, 20.0),
    ],
)
def test_a_fault_is_read(
    text: str,
    kind: str,
    step: int | None,
    point: str,
    rank: int | None,
    node: str | None,
    seconds: float | None,
) -> None:
    asked = parse(text)
    assert (asked.kind.name, asked.step, asked.point) == (kind, step, point)
    assert (asked.rank, asked.node, asked.seconds) == (rank, node, seconds)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sigkil@3", "did you mean sigkill?"),
        ("gremlin", "there is no kind 'gremlin'"),
        ("sigkill@", "'' is not a step"),
        ("sigkill@0", "counted from 1"),
        ("sigkill@-3", "'-3' is not a step"),
        ("node-crash@checkpoint.write", "'checkpoint.write' is not a step;"),
        ("sigkill@3:", "'' is neither a rank nor a node"),
        ("sigkill@3:a b", "neither a rank nor a node"),
        ("sigkill+3", "sigkill has no length"),
        ("slow+fast", "'fast' is not a number of seconds"),
        ("slow+0", "over 0"),
        ("sigkill@3@4", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_a_bad_fault_is_said_with_the_list_of_kinds(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert why in caught.value.message
    assert all(f"  {kind} " in caught.value.message for kind in KINDS)


def plan(*texts: str, target: Target = FOUR, seed: int = 0):  # type: ignore[no-untyped-def]
    return make_plan([parse(text) for text in texts], target, random.Random(seed))


def test_what_is_left_open_is_chosen_the_same_way_for_the_same_seed() -> None:
    assert plan("sigkill", "node-crash", seed=3) == plan("sigkill", "node-crash", seed=3)
    chosen = [plan("sigkill", "node-crash", seed=seed) for seed in range(40)]
    assert {faults[0].step for faults in chosen} == {50}
    assert {faults[0].rank for faults in chosen} == {1, 2, 3}
    assert {faults[1].rank for faults in chosen} == {2, 3}, "not the node of the batch script"


def test_a_single_rank_is_harmed_where_there_is_no_other() -> None:
    alone = Target("train", world=1, ranks_per_node=1)
    assert [(f.rank, f.step) for f in plan("sigkill", "node-crash", target=alone)] == [(0, 1), (0, 1)]


def test_a_plan_is_one_that_ranks_can_read() -> None:
    made = plan(*KINDS)
    assert parse_plan([fault.as_data() for fault in made]) == made
    assert len({fault.id for fault in made}) == len(KINDS)


def test_a_node_that_is_named_is_the_drivers_business_for_what_happens_outside() -> None:
    crash, kill = plan("node-crash@3:a2", "sigkill@3:a2")
    assert (crash.node, crash.rank) == (None, None)
    assert (kill.node, kill.rank) == ("a2", None)


@pytest.mark.parametrize(("text", "why"), [("sigkill:4", "has no rank 4"), ("hang@101", "has 100 steps")])
def test_what_the_stage_does_not_have_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        plan(text)


EXPERIMENT = """
name: rehearsed
cluster: local
stages:
  first: {kind: command, run: ["true"]}
  second: {kind: command, needs: first, run: ["true"], resources: {nodes: 3}}
"""


def test_a_dry_run_shows_the_plan_and_makes_nothing(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "rehearsed.yaml"
    path.write_text(EXPERIMENT)
    home = tmp_path / "home"
    asked = ["drill", str(path), "--home", str(home), "--dry-run"]
    shown = CliRunner().invoke(app, [*asked, "--fault", "node-crash@5:2", "-f", "hang@7:0"])
    assert shown.exit_code == 0, shown.output
    assert "stage second" in shown.output
    assert "1-node-crash" in shown.output and "before step 5, the node of rank 2" in shown.output
    assert "before step 7, rank 0" in shown.output
    assert not (home / "runs").exists()
    wrong = CliRunner().invoke(app, [*asked, "--fault", "hang", "--stage", "third"])
    assert wrong.exit_code == 2 and "stages: first, second" in wrong.output


def test_the_kinds_are_listed_on_request(tmp_path) -> None:  # type: ignore[no-untyped-def]
    shown = CliRunner().invoke(app, ["drill", "any.yaml", "--fault", "help"])
    assert shown.exit_code == 0 and all(kind in shown.output for kind in KINDS)


def test_the_page_has_every_kind_and_how_a_run_should_come_out_of_it() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "drill.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| .* \| (.*) \|$", page, re.M))
    assert rows.keys() == KINDS.keys()
    words = {RECOVERS: ("go on", "the same"), UNHARMED: ("lose nothing",), ENDS: ("stop", "wait")}
    for kind in KINDS.values():
        assert rows[kind.name].startswith(words[kind.expect]), kind.name
        assert all(f"`{name}`" in rows[kind.name] for name in kind.categories)
