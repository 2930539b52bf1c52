"""Nodes that meet before they train: agents' ends with real sockets, the supervisor's, an attempt."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from launch import pairing
from launch.allocation import Allocation
from launch.config import read_stage_config
from launch.journaling import SafeJournal
from launch.partner import Partner
from launch.segment import Segment
from launch.team import Team
from resiliency.health import Check, NodeHealth, Status

from .conftest import RUN_ID, RunDir
from .cycling import stage

TOKEN = "token-of-the-supervisor"


class Nodes:
    """Partners as agents have them; ``deaf``: were given another token, so that they serve nobody."""

    def __init__(self, count: int, deaf: Iterable[str] = ()) -> None:
        self.team = Team.of(f"n{i}" for i in range(count))
        self.partners = {node: Partner() for node in self.team.members}
        self.words: queue.SimpleQueue[tuple[str, dict[str, Any]]] = queue.SimpleQueue()
        self.orders: list[tuple[str, Mapping[str, Any]]] = []
        for node, partner in self.partners.items():
            port = partner.open("another" if node in deaf else TOKEN)
            self.team.take(node, {"kind": "hello", "address": "127.0.0.1"})
            health = NodeHealth(node, (Check("shm", Status.OK),)).as_data()
            ready = {"kind": "ready", "cycle": 0, "port": 1, "pair_port": port, "health": health}
            assert self.team.take(node, ready) == "ready"

    def send(self, nodes: Iterable[str], order: Mapping[str, Any]) -> None:
        for node in nodes:
            self.orders.append((node, order))
            if order.get("over"):
                self.partners[node].close()
            else:
                threading.Thread(target=self._ask, args=(node, order), daemon=True).start()

    def _ask(self, node: str, order: Mapping[str, Any]) -> None:
        self.words.put((node, self.partners[node].ask(order)))

    def until(self, done: Callable[[], bool], limit_s: float) -> bool:
        end = time.monotonic() + limit_s
        while not done() and time.monotonic() < end:
            try:
                self.team.take(*self.words.get(timeout=0.1))
            except queue.Empty:
                continue
        return done()

    def checks(self, name: str) -> dict[str, Check]:
        return {
            node: check
            for node, member in self.team.members.items()
            for check in (member.health.checks if member.health else ())
            if check.name == name
        }


@pytest.fixture
def segment(run_dir: RunDir) -> Iterator[Segment]:
    run_dir.stage(argv=["x"], nodes=3, min_nodes=2)
    config = read_stage_config(run_dir.paths.stage_config("work"))
    allocation = Allocation("local", "17", 0, "n0,n1,n2", "127.0.0.1")
    writer = SafeJournal(run_dir.paths.journal, run=RUN_ID, writer="test", defaults={"stage": "work"})
    yield Segment(config, run_dir.paths, allocation, 1, writer, lambda: None)  # type: ignore[arg-type, return-value]
    writer.close()


def meet(segment: Segment, nodes: Nodes) -> None:
    pairing.pair_up(segment, nodes.team, 0, list(nodes.team.members), nodes.send, nodes.until)


def test_good_nodes_meet_and_nothing_is_said_of_them(segment: Segment) -> None:
    nodes = Nodes(4)
    meet(segment, nodes)
    asked = [order for _, order in nodes.orders if not order.get("over")]
    assert len(asked) == 2 * pairing.ROUNDS, "two pairs a round"
    assert not nodes.checks("clock_offset")
    assert not [c for c in nodes.checks("pairwise").values() if c.status is Status.CRITICAL]
    assert all(partner._responder is None for partner in nodes.partners.values()), "they listen no longer"


def test_a_node_that_nobody_reaches_is_not_used(segment: Segment) -> None:
    nodes = Nodes(5, deaf=["n2"])
    meet(segment, nodes)
    named = nodes.checks("pairwise")
    assert named["n2"].status is Status.CRITICAL
    assert [node for node, check in named.items() if check.status is Status.CRITICAL] == ["n2"]
    assert nodes.team.members["n2"].health.failed  # type: ignore[union-attr]


def test_without_enough_nodes_it_is_only_told(segment: Segment) -> None:
    object.__setattr__(segment.config.launch, "min_nodes", None)
    nodes = Nodes(3, deaf=["n1"])
    meet(segment, nodes)
    assert nodes.checks("pairwise")["n1"].status is Status.WARN


def test_who_cannot_listen_or_failed_already_is_left_out(segment: Segment) -> None:
    nodes = Nodes(5)
    nodes.team.members["n0"].pair_port = 0
    bad = Check("gpu_ecc", Status.CRITICAL)
    nodes.team.members["n1"].health = NodeHealth("n1", (bad,))
    meet(segment, nodes)
    told = [(node, order) for node, order in nodes.orders if not order.get("over")]
    busy = {node for node, _ in told} | {peer["node"] for _, order in told for peer in order["peers"]}
    assert busy == {"n2", "n3", "n4"}


def test_an_address_that_only_its_own_host_knows_makes_nobody_suspect(segment: Segment) -> None:
    nodes = Nodes(4)
    nodes.team.members["n0"].address = "127.0.1.1"
    for name in ("n1", "n2", "n3"):
        nodes.team.members[name].address = "localhost."  # a name, as of another host
    meet(segment, nodes)
    told = [(node, order) for node, order in nodes.orders if not order.get("over")]
    assert told and "n0" not in {node for node, _ in told}
    assert "n0" not in {peer["node"] for _, order in told for peer in order["peers"]}


class Scripted(Nodes):
    """Answers by script in place of sockets: clocks of one machine cannot differ."""

    def __init__(self, count: int, answer: Callable[[str, str], Any]) -> None:
        super().__init__(count)
        self.answer = answer

    def _ask(self, node: str, order: Mapping[str, Any]) -> None:
        word = {"kind": "exchanged", "cycle": 0, "round": order["round"]}
        self.words.put((node, {**word, "results": [self.answer(node, p["node"]) for p in order["peers"]]}))


@pytest.mark.parametrize("count", [3, 4, 7])
def test_a_wrong_clock_is_told_and_nobody_else_s(segment: Segment, count: int) -> None:
    def answer(asker: str, peer: str) -> dict[str, Any]:
        ahead = {"n1": 90.0}
        offset = ahead.get(peer, 0.0) - ahead.get(asker, 0.0)
        fine = {"peer": peer, "ok": True, "seconds": 0.01, "mb_per_s": 500.0, "error": ""}
        return {**fine, "offset": offset, "offset_error": 0.001}

    nodes = Scripted(count, answer)
    meet(segment, nodes)
    found = nodes.checks("clock_offset")
    assert set(found) == {"n1"} and found["n1"].status is Status.WARN and "ahead" in found["n1"].detail


@pytest.mark.parametrize(
    "one",
    [None, 5, {}, {"peer": "n1"}, {"peer": [], "ok": False}, {"ok": False, "seconds": "x", "mb_per_s": 0}],
)
def test_nonsense_of_one_blames_nobody(segment: Segment, one: Any) -> None:
    nodes = Scripted(4, lambda asker, peer: {**one, "peer": peer} if isinstance(one, dict) else one)
    meet(segment, nodes)
    assert not nodes.checks("pairwise") and not nodes.checks("clock_offset")


def test_when_nodes_meet(run_dir: RunDir, segment: Segment) -> None:
    three = ["n0", "n1", "n2"]
    assert pairing.token(segment, 0, three) != pairing.token(segment, 0, three)
    assert not pairing.token(segment, 0, three[:2])
    assert not pairing.token(segment, 1, three), "nothing is known of the cycle before"
    for cycle, category in enumerate(("code_error", "comm_timeout")):
        started = {"cycle": cycle, "nodes": three, "spares": [], "world": 3, "port": 1}
        fields = {"stage": "work", "attempt": segment.attempt, "cycle": cycle}
        run_dir.tell(
            ("cycle.started", started, fields),
            ("cycle.ended", {"cycle": cycle, "codes": {}, "category": category}, fields),
        )
    assert not pairing.token(segment, 1, three) and pairing.token(segment, 2, three)
    for off in ({"run": False}, {"skip": ["pairwise"]}):
        object.__setattr__(segment.config, "recovery", {"preflight": off})
        assert not pairing.token(segment, 0, three)


def test_three_nodes_meet_before_they_train(run_dir: RunDir, program: Path, tmp_path: Path) -> None:
    stage(run_dir, program, tmp_path / "out", "none", culprit=-1, nodes=3)
    segment = run_dir.start(nodes="local-0,local-1,local-2")
    assert segment.wait() == 0
    assert "3 nodes exchanged data in 3 pairs" in segment.log.read_text()
    assert run_dir.one("preflight").data["failed"] == []
