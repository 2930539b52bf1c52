"""Emulated nodes with real sockets: who is dead or slow is named, and nobody else."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.preflight.pairwise import Pair, Responder, Result, exchange, judge, plan_round, rounds

TOKEN = "a-token-of-this-attempt"
HOST = "127.0.0.1"


@pytest.fixture
def dead() -> Iterator[int]:
    """A port that takes connections and never answers, as a node that hangs."""
    with socket.create_server((HOST, 0)) as listener:
        yield int(listener.getsockname()[1])


def all_rounds(ports: dict[str, int], deadline_s: float) -> list[Pair]:
    nodes, found = sorted(ports), []
    for number in range(rounds(len(nodes))):
        pairs = plan_round(nodes, number)
        with ThreadPoolExecutor(len(pairs)) as pool:
            asked = [pool.submit(exchange, HOST, ports[b], TOKEN, 1, deadline_s) for _, b in pairs]
            found += [Pair(a, b, one.result()) for (a, b), one in zip(pairs, asked, strict=True)]
    return found


def test_what_is_sent_comes_back() -> None:
    with Responder(TOKEN, HOST) as responder:
        result = exchange(HOST, responder.port, TOKEN, 3, 30)
        assert result.ok and result.mb_per_s > 0 and not result.error
        assert Result.from_data(result.as_data()).ok


def test_one_dead_and_one_throttled_of_five(dead: int) -> None:
    good = [Responder(TOKEN, HOST) for _ in range(4)]
    throttled = Responder(TOKEN, HOST, delay_s=0.15)
    try:
        # Only those that answer show what is wrong with a node: here the last two never ask.
        ports = {f"n{i}": responder.port for i, responder in enumerate(good)}
        pairs = all_rounds(ports, 30)
        pairs += [Pair(f"n{i}", "dead", exchange(HOST, dead, TOKEN, 1, 0.5)) for i in range(3)]
        pairs += [Pair(f"n{i}", "slow", exchange(HOST, throttled.port, TOKEN, 1, 30)) for i in range(3)]
        pairs.append(Pair("slow", "dead", exchange(HOST, dead, TOKEN, 1, 0.5)))
        named = {suspect.node: suspect.why for suspect in judge(pairs)}
        assert set(named) == {"dead", "slow"}
        assert named["dead"].startswith("fails") and named["slow"].startswith("is slow")
    finally:
        for responder in (*good, throttled):
            responder.close()


def test_five_good_nodes_name_nobody() -> None:
    good = [Responder(TOKEN, HOST) for _ in range(5)]
    try:
        pairs = all_rounds({f"n{i}": responder.port for i, responder in enumerate(good)}, 30)
        assert len(pairs) == 10 and all(pair.result.ok for pair in pairs)
        assert not [suspect for suspect in judge(pairs) if suspect.why.startswith("fails")]
    finally:
        for responder in good:
            responder.close()


def test_without_the_token_nothing_comes_back() -> None:
    with Responder(TOKEN, HOST) as responder:
        assert not exchange(HOST, responder.port, "another", 1, 10).ok
        with socket.create_connection((HOST, responder.port)) as stranger:
            stranger.sendall(b"x" * 4096)
            stranger.settimeout(20)
            try:
                answer = stranger.recv(1)
            except ConnectionResetError:
                answer = b""
            assert answer == b""
        assert exchange(HOST, responder.port, TOKEN, 1, 30).ok, "and others are still served"


def test_every_kind_of_silence_is_bounded(dead: int) -> None:
    began = time.monotonic()
    assert exchange(HOST, dead, TOKEN, 1, 0.3).error == "no answer in time"
    assert time.monotonic() - began < 5.0
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
    assert "refused" in exchange(HOST, port, TOKEN, 1, 5).error
    assert not exchange("no.such.host.invalid", 1, TOKEN, 1, 5).ok
    assert not exchange(HOST, 99999, TOKEN, 1, 5).ok


def test_changed_data_is_noticed() -> None:
    listener = socket.create_server((HOST, 0))

    def corrupt() -> None:
        guest, _ = listener.accept()
        with guest:
            while b"\n" not in guest.recv(1024):
                pass
            guest.sendall(bytes(300_000))
            with contextlib.suppress(ConnectionResetError):
                while guest.recv(65536):
                    pass

    thread = threading.Thread(target=corrupt, daemon=True)
    thread.start()
    assert exchange(HOST, listener.getsockname()[1], TOKEN, 1, 20).error == "data came back changed"
    listener.close()
    thread.join(20)


def test_closing_ends_the_threads() -> None:
    responder = Responder(TOKEN, HOST)
    responder.close()
    responder._thread.join(20)
    assert not responder._thread.is_alive()


# -- planning and judging ----------------------------------------------------------------------


@given(st.integers(0, 17))
def test_everybody_meets_everybody_once(count: int) -> None:
    nodes = [f"n{i}" for i in range(count)]
    met: set[frozenset[str]] = set()
    for number in range(rounds(count)):
        pairs = plan_round(nodes, number)
        busy = [node for pair in pairs for node in pair]
        assert len(busy) == len(set(busy)) >= count - 1
        assert not met & {frozenset(pair) for pair in pairs}
        met |= {frozenset(pair) for pair in pairs}
    assert met == {frozenset(pair) for pair in itertools.combinations(nodes, 2)}


FINE, BAD, SLOW = Result(True, 0.5, 1000.0), Result(False, 2.0, 0.0, "timed out"), Result(True, 5.0, 100.0)


def pairs_of(count: int, **wrong: Result) -> list[Pair]:
    """All pairs; ``n1_n2=BAD`` changes one, ``n3=BAD`` all of a node."""
    found = []
    for a, b in itertools.combinations([f"n{i}" for i in range(count)], 2):
        result = wrong.get(f"{a}_{b}") or wrong.get(a) or wrong.get(b) or FINE
        found.append(Pair(a, b, result))
    return found


@pytest.mark.parametrize("how", [BAD, SLOW])
@pytest.mark.parametrize("count", [3, 4, 8])
def test_a_bad_node_is_named(how: Result, count: int) -> None:
    (suspect,) = judge(pairs_of(count, n1=how))
    assert suspect.node == "n1" and 0.5 < suspect.confidence <= 1


def test_two_alone_name_nobody() -> None:
    assert judge(pairs_of(2, n0=BAD)) == [] and judge([]) == []


def test_one_bad_pair_names_nobody() -> None:
    assert judge(pairs_of(5, n1_n2=BAD)) == []
    assert judge(pairs_of(3, n0_n1=BAD)) == []


def test_when_all_fail_nobody_is_named() -> None:
    assert judge(pairs_of(4, n0=BAD, n1=BAD, n2=BAD, n3=BAD)) == []


def test_two_halves_that_do_not_reach_each_other_name_nobody() -> None:
    cut = {f"n{a}_n{b}": BAD for a in (0, 1, 2) for b in (3, 4, 5)}
    named = judge(pairs_of(6, **cut))
    # Each has three bad peers and two good ones: a switch's fault, not a node's.
    assert named == []


def test_jitter_of_a_fast_network_is_not_slow() -> None:
    assert judge(pairs_of(4, n1=Result(True, 0.01, 300.0))) == []


@pytest.mark.parametrize(
    "data", [{}, {"ok": True, "seconds": "x", "mb_per_s": 1}, {"seconds": -1, "mb_per_s": 0, "ok": 1}]
)
def test_senseless_results_are_refused(data: dict[str, object]) -> None:
    with pytest.raises((KeyError, ValueError, TypeError)):
        Result.from_data(data)
