"""Supervisor and agents over real sockets: who may speak, what arrives, what a lost node looks like."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from launch.channel import ENV_CHANNEL, Hub, Wire, channel_address, take_address

from .conftest import ROOT, until


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    yield hub
    hub.close()


def wire(hub: Hub, node: str) -> Wire:
    made = Wire(channel_address("127.0.0.1", hub), {"node": node, "index": 0})
    assert made.connect(5.0)
    return made


def heard(hub: Hub, count: int = 1) -> list[tuple[str, dict | None]]:
    found: list[tuple[str, dict | None]] = []

    def enough() -> bool:
        found.extend(hub.poll())
        return len(found) >= count

    until(enough)
    return found


def test_words_go_both_ways_and_the_token_is_not_among_them(hub: Hub) -> None:
    one = wire(hub, "n1")
    assert heard(hub) == [("n1", {"kind": "hello", "node": "n1", "index": 0})]
    one.send({"kind": "status", "text": "x" * 300_000})
    assert heard(hub)[0][1]["text"] == "x" * 300_000
    hub.send(["n1", "nobody"], {"do": "start"})
    assert until(one.poll) == [{"do": "start"}]


def test_the_end_of_a_connection_is_told_and_a_new_one_takes_its_place(hub: Hub) -> None:
    first = wire(hub, "n1")
    heard(hub)
    first.close()
    assert heard(hub) == [("n1", None)] and not hub.nodes
    again = wire(hub, "n1")
    heard(hub)
    newer = wire(hub, "n1")  # before the older one is seen to end
    assert heard(hub) == [("n1", {"kind": "hello", "node": "n1", "index": 0})]
    assert hub.nodes == {"n1"}
    again.close()
    newer.send({"kind": "status"})
    assert heard(hub) == [("n1", {"kind": "status"})], "the older one's end is not the node's"


@pytest.mark.parametrize(
    "words",
    [
        b'{"kind":"hello","node":"n1","token":"wrong"}\n',
        b'{"kind":"hello","node":7,"token":"TOKEN"}\n',
        b'{"kind":"status","node":"n1","token":"TOKEN"}\n',
        b"GET / HTTP/1.1\r\n\r\n",
        b"[]\n",
        b'{"kind":"hello","token":"\xff"}\n',
        b"x" * 10_000,
    ],
)
def test_a_stranger_is_sent_away(hub: Hub, words: bytes) -> None:
    with socket.create_connection(("127.0.0.1", hub.port), timeout=5) as stranger:
        stranger.sendall(words.replace(b"TOKEN", hub.token.encode()))
        found: list[object] = []

        def gone() -> bool:
            found.extend(hub.poll())
            stranger.settimeout(0.05)
            try:
                return stranger.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionResetError:
                return True

        until(gone)
    assert not found and not hub.nodes


def test_a_killed_agent_is_seen_at_once(hub: Hub) -> None:
    code = (
        "import sys, time; from launch.channel import Wire\n"
        "w = Wire(sys.argv[1], {'node': 'n2'}); w.connect(5); time.sleep(600)"
    )
    agent = subprocess.Popen([sys.executable, "-c", code, channel_address("127.0.0.1", hub)], cwd=ROOT)
    heard(hub)
    agent.kill()
    assert heard(hub) == [("n2", None)]
    agent.wait()


def test_a_reader_that_is_stuck_blocks_nobody(hub: Hub) -> None:
    stuck, well = wire(hub, "stuck"), wire(hub, "well")
    heard(hub, 2)
    for _ in range(40):
        hub.send(["stuck", "well"], {"do": "x", "text": "y" * 100_000})
    arrived: list[dict] = []

    def all_there() -> bool:
        hub.poll()
        arrived.extend(well.poll())
        return len(arrived) == 40

    until(all_there)
    until(lambda: (hub.poll(), stuck.poll())[1])


def test_many_nodes_at_once(hub: Hub) -> None:
    wires = [wire(hub, f"n{number}") for number in range(200)]
    assert {node for node, _ in heard(hub, 200)} == {f"n{number}" for number in range(200)}
    hub.send(hub.nodes, {"do": "exit"})
    for one in wires:
        assert until(one.poll) == [{"do": "exit"}]


def test_the_address_leaves_the_environment() -> None:
    environ = {ENV_CHANNEL: "h:1:t", "other": "x"}
    assert take_address(environ) == "h:1:t" and environ == {"other": "x"}
    assert take_address(environ) is None


def test_nobody_there_is_an_answer_not_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    lost = Wire(f"127.0.0.1:{port}:t", {"node": "n"})
    assert not lost.connect(1.0) and not lost.up
    lost.send({"kind": "status"})
    assert lost.poll() == []


def test_epoll_wakes_a_select(hub: Hub) -> None:
    import select

    one = wire(hub, "n1")
    readable, _, _ = select.select([hub.fileno()], [], [], 10)
    assert readable
    heard(hub)
    assert select.select([hub.fileno()], [], [], 0)[0] == []
    one.send(json.loads("{}"))
    assert select.select([hub.fileno()], [], [], 10)[0]
