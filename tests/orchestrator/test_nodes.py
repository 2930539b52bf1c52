"""Nodes that are kept out: a person's word, what queued links are kept off, what is told of a node."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metrics.ledger import Ledger
from metrics.ledger.nodes import names
from metrics.ledger.rebuild import rebuild
from orchestrator import nodes
from orchestrator.clusters import Profile
from orchestrator.home import Home
from orchestrator.plan import make_plan
from resiliency import journal
from resiliency.contract import HOME_JOURNAL
from resiliency.edges import SystemClock
from resiliency.errors import SchedulerUnreachable, UsageError
from resiliency.exclusion import DAY_S, active
from resiliency.state import fold
from tests.orchestrator.builders import RUN, Chain, Story
from tests.orchestrator.spec_files import load
from tests.person import ROOT, Person, attempts, counter, stage

NOW = 1_800_000_000.0
CLOCK = SystemClock()


# -- what a person types -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"), [("36h", 36 * 3600), ("7d", 7 * DAY_S), ("2w", 14 * DAY_S), ("1.5d", 1.5 * DAY_S)]
)
def test_an_end_is_a_span(text: str, seconds: float) -> None:
    assert nodes.parse_until(text, NOW) == NOW + seconds


def test_or_a_date_in_local_time() -> None:
    end = nodes.parse_until("2030-12-24T12:30", NOW)
    assert time.strftime("%Y-%m-%d %H:%M", time.localtime(end)) == "2030-12-24 12:30"
    assert nodes.parse_until("2030-12-24", NOW) < end


@pytest.mark.parametrize("text", ["", "soon", "7", "-1d", "0h", "2001-01-01", "2030-13-01", "d"])
def test_what_is_no_end_in_the_future_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        nodes.parse_until(text, NOW)


def test_lists_of_nodes_are_written_out_and_what_is_no_name_is_refused() -> None:
    assert nodes.node_names(["n[1-3]", "gpu07"]) == ["n1", "n2", "n3", "gpu07"]
    for bad in ("n1;reboot", "-n", "n 1", "$(x)"):
        with pytest.raises(UsageError):
            nodes.node_names([bad])


# -- a person's word ---------------------------------------------------------------------------


def test_a_person_s_word_is_kept_and_saying_it_twice_changes_nothing(tmp_path: Path) -> None:
    home, until = Home.at(tmp_path), CLOCK.wall() + DAY_S

    def say(reason: str, end: float = until) -> list[str]:
        return nodes.exclude(home, "c", ["n1", "n2"], reason=reason, until=end, clock=CLOCK)

    assert say("fan") == ["n1", "n2"]
    assert say("fan") == []
    assert say("fan", until + 60) == []  # the same span, typed a minute later
    assert say("fan", until + 2 * DAY_S) == ["n1", "n2"]
    assert nodes.readmit(home, "c", ["n1", "n9"], reason="", clock=CLOCK) == ["n1"]
    assert nodes.readmit(home, "c", ["n1"], reason="", clock=CLOCK) == []
    assert say("fan", until + 2 * DAY_S) == ["n1"]
    held = active(nodes.known(home, now=CLOCK.wall()).orders, now=CLOCK.wall())
    assert [(e.node, e.rule, e.reason, e.runs) for e in held] == [
        ("n1", "person", "fan", ()),
        ("n2", "person", "fan", ()),
    ]
    assert nodes.known(home, now=CLOCK.wall(), ledger=False).orders


# -- what links are kept off -------------------------------------------------------------------


class Slurm:
    """A cluster of so many nodes."""

    kind = "slurm"
    cluster = "c"

    def __init__(self, count: int | None) -> None:
        self.count, self.asked = count, 0

    def facts(self) -> Mapping[str, Any]:
        self.asked += 1
        if self.count is None:
            raise SchedulerUnreachable("no answer")
        return {"partitions": {"main": {"default": True, "nodes": self.count}}}


EXP = """\
name: demo
stages:
  train:
    kind: command
    run: [x]
    resources: {{nodes: 2, exclude: [bad9], {resources}}}
    recovery: {{exclusion: {{max_share: 0.25}}, {recovery}}}
"""


def keep_off(
    tmp_path: Path,
    scheduler: Slurm,
    story: Story,
    *,
    person: Sequence[str] = (),
    resources: str = "spare_nodes: 0",
    recovery: str = "shadow: false",
) -> nodes.KeptOff:
    text = EXP.format(resources=resources, recovery=recovery)
    loaded = load(tmp_path, text)
    plan = make_plan(
        loaded.experiment, Profile("c"), run_id=RUN, run_dir=tmp_path, python="py", home=tmp_path
    )
    home = Home.at(tmp_path / "home")
    if person:
        nodes.exclude(home, "c", person, reason="fan", until=CLOCK.wall() + DAY_S, clock=CLOCK)
    run: Any = SimpleNamespace(id=RUN, plan=plan)
    state = story.state
    state.run = RUN
    return nodes.Watch(home, clock=CLOCK).keep_off(run, state, scheduler)  # type: ignore[arg-type]


def story(*cycles: tuple[str, str]) -> Story:
    """An attempt whose cycles ended so: (category, node), just now."""
    told = Story([Chain("train")]).accepted("train", 1, "1")
    told.now = CLOCK.wall() - 100
    for number, (category, node) in enumerate(cycles):
        told.events.append(_cycle(told, number, "cycle.started", {"nodes": ["n1", "n2"], "cycle": number}))
        data = {"category": category, "signature": category, "reason": "why", "node": node, "continued": True}
        told.events.append(_cycle(told, number, "cycle.ended", data))
    return told


def _cycle(told: Story, number: int, kind: str, data: dict[str, Any]) -> Any:
    told.say(kind, data, stage="train", attempt="c/1.0", cycle=number)
    return told.events.pop()


def test_nothing_known_the_scheduler_is_not_asked(tmp_path: Path) -> None:
    slurm = Slurm(8)
    assert keep_off(tmp_path, slurm, story()).nodes == {"train": ("bad9",)}
    assert slurm.asked == 0


def test_a_proven_fault_becomes_an_order_and_the_links_keep_off(tmp_path: Path) -> None:
    found = keep_off(tmp_path, Slurm(9), story(("node_down", "n2")))
    assert [(stage_, order.node, order.by) for stage_, order in found.orders] == [("train", "n2", "proof")]
    assert found.nodes == {"train": ("bad9", "n2")}


def test_code_that_fails_on_a_node_keeps_nobody_out(tmp_path: Path) -> None:
    found = keep_off(tmp_path, Slurm(9), story(*[("code_error", "n2")] * 5, ("gpu_oom", "n1")))
    assert (found.orders, found.nodes) == ([], {"train": ("bad9",)})


def test_a_share_of_the_partition_only_but_a_person_is_obeyed(tmp_path: Path) -> None:
    # 4 of 5 nodes may be used: a quarter of them is one node.
    found = keep_off(tmp_path, Slurm(5), story(("node_down", "n2"), ("gpu_ecc", "n1")))
    assert len(found.orders) == 2
    assert found.nodes == {"train": ("bad9", "n1")}  # the newer evidence
    assert found.notes == {"train": ["train is not kept off n2: no more than 25% of 4 nodes may be kept out"]}
    found = keep_off(tmp_path, Slurm(5), story(), person=["n3", "n4"])
    assert found.nodes == {"train": ("bad9", "n3", "n4")}


def test_a_stage_keeps_the_nodes_it_needs_whoever_says_otherwise(tmp_path: Path) -> None:
    found = keep_off(tmp_path, Slurm(4), story(), person=["n3", "n4"], resources="spare_nodes: 1")
    assert found.nodes == {"train": ("bad9",)}
    assert "3 of 3 nodes are needed" in found.notes["train"][0]


@pytest.mark.parametrize(
    ("count", "resources"), [(None, "spare_nodes: 0"), (9, "constraint: a100"), (9, "reservation: mine")]
)
def test_where_the_number_of_nodes_is_not_known_only_a_person_counts(
    tmp_path: Path, count: int | None, resources: str
) -> None:
    found = keep_off(tmp_path, Slurm(count), story(("node_down", "n2")), person=["n3"], resources=resources)
    assert found.nodes == {"train": ("bad9", "n3")}
    assert "not known" in found.notes["train"][0]


def test_in_shadow_nothing_is_kept_out_and_it_is_said(tmp_path: Path) -> None:
    found = keep_off(tmp_path, Slurm(9), story(("node_down", "n2")), person=["n3"], recovery="shadow: true")
    assert (found.orders, found.nodes) == ([], {"train": ("bad9",)})
    assert found.notes == {"train": ["shadow: train would be kept off n3"]}


# -- with real processes -----------------------------------------------------------------------


def events(person: Person, run: str, kind: str) -> list[Any]:
    found, _ = journal.read_run(person.home / "runs" / run / "journal")
    return [event for event in found if event.type == kind]


def on_nodes(status: dict[str, Any]) -> list[str]:
    return [a["nodes"] for a in attempts(status) if a["gate"] == "go"]


def test_exit_16_is_tried_elsewhere_from_the_same_checkpoint(person: Person) -> None:
    line = 'if [ "$TRAINMASTER_NODE" = local-0 ]; then exit 16; fi; exit 0'
    run = person.submit(
        {"name": "sdc", "stages": {"count": {"kind": "command", "run": ["bash", "-c", line]}}}
    )
    done = person.finish(run)
    assert done["status"] == "complete", person.story(run)
    assert on_nodes(done) == ["local-0", "local-1"]
    decision = events(person, run, "decision")[0].data
    assert (decision["action"], decision["exclude"]) == ("requeue_excluding", ["local-0"])
    # Not proof yet: other runs may have the node.
    assert not events(person, run, "node.excluded")
    assert "no node is kept out" in person.run("nodes", "list").stdout


def test_a_queued_link_is_told_of_a_node_that_a_person_excludes_and_of_its_return(person: Person) -> None:
    args = ("--step-s", "0.1", "--every", "1000")
    chain = {"startup": "1s", "save_time": "1s", "signal_lead": "3s", "interval_time": "1s", "max_links": 9}
    run = person.submit(counter(steps=100, time_limit="9s", args=args, chain=chain))
    person.until(run, lambda s: len(attempts(s)) == 2 and (attempts(s)[0]["step"] or 0) > 3)
    told = person.run("nodes", "exclude", "local-0", "--reason", "smells burnt", "-c", "here").stdout
    assert "here: excluded local-0 until" in told and "keep job 2 off local-0" in told
    again = person.run("nodes", "exclude", "local-0", "--reason", "smells burnt", "-c", "here").stdout
    assert "already excluded so local-0" in again and "keep job" not in again
    shown = json.loads(person.run("nodes", "list", "--json").stdout)["nodes"]
    assert [(n["cluster"], n["node"], n["excluded"]["rule"]) for n in shown] == [
        ("here", "local-0", "person")
    ]
    done = person.finish(run)
    assert done["status"] == "complete", person.story(run)
    ran = on_nodes(done)
    assert ran[0] == "local-0" and set(ran[1:]) == {"local-1"}
    assert events(person, run, "link.excluding")[0].data["nodes"] == ["local-0"]
    later = [e.data.get("exclude") for e in events(person, run, "submission.intent")]
    assert later[:2] == [None, None] and all(nodes == ["local-0"] for nodes in later[2:])

    explained = person.run("nodes", "explain", "local-0").stdout
    assert "kept out since" in explained and "smells burnt" in explained
    assert 'scontrol update NodeName=local-0 State=DRAIN Reason="trainmaster: smells burnt"' in explained
    assert person.run("nodes", "explain", "nowhere", check=False).returncode == 7
    back = person.run("nodes", "readmit", "local-0", "--cluster", "here").stdout
    assert "readmitted local-0" in back
    assert (
        "nothing was held against local-0" in person.run("nodes", "readmit", "local-0", "-c", "here").stdout
    )

    # The ledger has it all, and again after it was made anew.
    with Ledger.open(person.home / "ledger.db", readonly=True) as ledger:
        live = [tuple(r) for r in ledger.rows("SELECT node, by, reason FROM exclusion, (SELECT 1)")]
    assert live and live[0][0] == "local-0"
    (person.home / "ledger.db").unlink()
    rebuild(person.home)
    with Ledger.open(person.home / "ledger.db", readonly=True) as ledger:
        assert [tuple(r) for r in ledger.rows("SELECT node, by, reason FROM exclusion")] == live
        assert len(ledger.rows("SELECT * FROM readmission")) == 1


def test_what_one_run_proves_of_a_node_the_next_run_knows(person: Person, tmp_path: Path) -> None:
    """The program's own word that the other node's GPU fell off the bus."""
    says = (
        "from resiliency.workload import Workload as W; w = W.from_env(); "
        'w.event("workload.error", category="gpu_off_bus", message="Xid 79", node="local-1"); w.close()'
    )
    line = (
        f"if [ $TRAINMASTER_NODE = local-0 ] && mkdir {tmp_path}/once; "
        f"then {sys.executable} -c '{says}'; exit 1; fi; sleep 1"
    )
    work = {
        "kind": "command",
        "run": ["bash", "-c", line],
        "resources": {"nodes": 2},
        "env": {"PYTHONPATH": str(ROOT)},
    }
    run = person.submit({"name": "bus", "stages": {"count": work}}, "--offline")
    done = person.finish(run)
    assert done["status"] == "complete", person.story(run)
    first, second = (names(text) for text in on_nodes(done))
    assert first == ["local-0", "local-1"] and second == ["local-0", "local-2"]
    (order,) = events(person, run, "node.excluded")
    assert (order.data["node"], order.data["category"], order.data["by"]) == (
        "local-1",
        "gpu_off_bus",
        "proof",
    )
    listed = json.loads(person.run("nodes", "list", "--json").stdout)["nodes"]
    assert [(n["node"], n["failed_jobs"]) for n in listed] == [("local-1", 1)]
    other = person.submit({"name": "next", "stages": {"count": {**work, "run": ["true"]}}}, "--offline")
    assert {tuple(e.data["exclude"]) for e in events(person, other, "submission.intent")} == {("local-1",)}
    assert "local-1" not in "".join(on_nodes(person.finish(other)))
    assert "Xid 79" in person.run("nodes", "explain", "local-1").stdout


def test_submit_shadow_records_and_restarts_nothing(person: Person) -> None:
    path = person.write(counter(steps=30, args=("--fail-at", "7", "--every", "5", "--step-s", "0.05")))
    done = person.run("submit", str(path), "--cluster", "here", "--shadow", "--json")
    run = json.loads(done.stdout)["run"]
    seen = person.finish(run)
    assert stage(seen, "count")["rule"] == "same-signature-same-step"
    first = events(person, run, "decision")[0].data
    assert (first["action"], first["shadow"]) == ("restart_in_job", True)
    assert len(on_nodes(seen)) == 2  # each failure ended its attempt
    assert {e.data["cycle"] for e in events(person, run, "cycle.started")} == {0}


def test_the_home_s_journal_is_no_run(person: Person) -> None:
    person.run("nodes", "exclude", "n[1-2]", "--reason", "x", "--cluster", "here")
    assert (person.home / HOME_JOURNAL).is_dir()
    assert "no runs yet" in person.run("status").stdout
    assert person.run("ledger", "check").returncode == 0
    assert fold([]).orders == {}
