"""Pairs of nodes exchange data over plain TCP: names the node that is dead or slow for several others.

A pair shows that one of two is bad, not which; pairing anew does. Needs no GPU, no torch: it tests the
node's network, not NCCL. Answers nobody without the token. ``tests/launch/preflight/test_pairwise.py``.
"""

from __future__ import annotations

import contextlib
import hmac
import math
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_BLOCK: Final = 256 << 10
_LONGEST_S: Final = 60.0
_MOST_MEGABYTES: Final = 1024
_MEGABYTE: Final = 1 << 20
#: At once; more than one round ever needs.
_GUESTS: Final = 8
_HEAD: Final = 256

#: A pair is slow when it reaches less than this share of what the pairs usually reach.
SLOW_SHARE: Final = 0.4
#: Nothing under this is called slow: small and emulated networks jitter.
SLOW_SECONDS: Final = 0.2
#: So many peers must see it.
WITNESSES: Final = 2


@dataclass(frozen=True)
class Result:
    """One exchange as its asker saw it."""

    ok: bool
    seconds: float = 0.0
    mb_per_s: float = 0.0
    error: str = ""

    def as_data(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "seconds": round(self.seconds, 4),
            "mb_per_s": round(self.mb_per_s, 2),
            "error": self.error,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Result:
        """ValueError, TypeError or KeyError if it makes no sense."""
        seconds, rate = float(data["seconds"]), float(data["mb_per_s"])
        if not (math.isfinite(seconds) and math.isfinite(rate)) or seconds < 0 or rate < 0:
            raise ValueError("an exchange's figures make no sense")
        return cls(data["ok"] is True, seconds, rate, str(data.get("error") or "")[:200])


@dataclass(frozen=True)
class Pair:
    """An exchange between two nodes, whoever asked."""

    asker: str
    answerer: str
    result: Result


@dataclass(frozen=True)
class Suspect:
    """A node that its peers are worse off with than with each other."""

    node: str
    why: str
    confidence: float


class Responder:
    """Listens on a free port and echoes what a guest with the token sends. Use as a context."""

    def __init__(self, token: str, host: str = "", *, delay_s: float = 0.0) -> None:
        """``delay_s``: waits so long for every block, which tests need and nothing else."""
        self._token, self._delay = token.encode(), delay_s
        self._listener = socket.create_server((host, 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        self._slots = threading.BoundedSemaphore(_GUESTS)
        self._closed = threading.Event()  # set by another thread
        self._thread = threading.Thread(target=self._serve, daemon=True, name="pairwise")
        self._thread.start()

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                guest, _ = self._listener.accept()
            except OSError:
                if self._closed.is_set():
                    return
                time.sleep(0.05)
                continue
            if not self._slots.acquire(blocking=False):
                guest.close()
                continue
            threading.Thread(target=self._host, args=(guest,), daemon=True, name="pairwise-guest").start()

    def _host(self, guest: socket.socket) -> None:
        try:
            with guest, contextlib.suppress(OSError, ValueError):
                until = time.monotonic() + 5.0  # strangers get no longer
                token, size, seconds = _read_head(guest, until).split(b" ")
                if not hmac.compare_digest(token, self._token):
                    return
                left = min(int(size), _MOST_MEGABYTES * _MEGABYTE)
                if left == 0:  # only the time is asked for
                    _send(guest, f"{time.time():.6f}\n".encode(), until)
                    return
                until = time.monotonic() + min(max(float(seconds), 0.0), _LONGEST_S)
                buffer = memoryview(bytearray(_BLOCK))
                while left > 0 and not self._closed.is_set():
                    _limit(guest, until)
                    got = guest.recv_into(buffer, min(left, _BLOCK))
                    if not got:
                        return
                    if self._delay:
                        time.sleep(self._delay)
                    _send(guest, buffer[:got], until)
                    left -= got
        finally:
            self._slots.release()

    def close(self) -> None:
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._listener.close()

    def __enter__(self) -> Responder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def exchange(host: str, port: int, token: str, megabytes: float = 16, deadline_s: float = 5.0) -> Result:
    """Send so much and take it back, checked; a Result whatever happens, within the deadline."""
    began = time.monotonic()
    until = began + deadline_s
    blocks = max(1, round(megabytes * _MEGABYTE / _BLOCK))
    size = blocks * _BLOCK
    block = bytes(range(256)) * (_BLOCK // 256)
    try:
        with socket.create_connection((host, port), timeout=deadline_s) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            left_s = until - time.monotonic()
            _send(peer, f"{token} {size} {left_s:.3f}\n".encode(), until)
            buffer = bytearray(_BLOCK)
            started = time.monotonic()
            for _ in range(blocks):
                _send(peer, block, until)
                _receive(peer, memoryview(buffer), until)
                if buffer != block:
                    return Result(False, time.monotonic() - began, 0.0, "data came back changed")
            took = max(time.monotonic() - started, 1e-9)
            return Result(True, took, 2 * size / _MEGABYTE / took)
    except (OSError, ValueError, OverflowError) as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else str(error)
        return Result(False, time.monotonic() - began, 0.0, why[:200])


def ask_time(host: str, port: int, token: str, deadline_s: float = 1.0) -> tuple[float, float]:
    """The other node's clock, when asked and when it answered. OSError or ValueError if it is not told."""
    until = time.monotonic() + deadline_s
    with socket.create_connection((host, port), timeout=deadline_s) as peer:
        _send(peer, f"{token} 0 {deadline_s:.3f}\n".encode(), until)
        seen = float(_read_head(peer, until))
    return seen, seen


def _limit(peer: socket.socket, until: float) -> None:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    peer.settimeout(left)


def _send(peer: socket.socket, data: bytes | memoryview, until: float) -> None:
    rest = memoryview(data)
    while rest:
        _limit(peer, until)
        rest = rest[peer.send(rest) :]


def _receive(peer: socket.socket, into: memoryview, until: float) -> None:
    while into:
        _limit(peer, until)
        got = peer.recv_into(into)
        if not got:
            raise ConnectionError("the other side ended the exchange")
        into = into[got:]


def _read_head(guest: socket.socket, until: float) -> bytes:
    """The first line, and not a byte more: the rest is data."""
    head = b""
    while not head.endswith(b"\n"):
        _limit(guest, until)
        byte = guest.recv(1)
        if not byte or len(head) >= _HEAD:
            raise ValueError("no head")
        head += byte
    return head.strip()


# -- who with whom, and what it tells ----------------------------------------------------------


def rounds(count: int) -> int:
    """Rounds until everybody has met everybody."""
    return count - 1 + count % 2 if count > 1 else 0


def plan_round(nodes: Sequence[str], number: int) -> list[tuple[str, str]]:
    """Pairs of one round, each node at most once; no pair twice within :func:`rounds` (circle method)."""
    table: list[str | None] = list(nodes)
    if len(table) < 2:
        return []
    if len(table) % 2:
        table.append(None)
    turn = number % (len(table) - 1)
    wheel = table[1:]
    wheel = wheel[turn:] + wheel[:turn]
    row = [table[0], *wheel]
    half = len(row) // 2
    met = zip(row[:half], reversed(row[half:]), strict=True)
    return [(a, b) for a, b in met if a is not None and b is not None]


def judge(results: Sequence[Pair]) -> list[Suspect]:
    """Nodes that fail or are slow with two peers or more that are fine with others.

    One bad pair proves nothing of either node, so two nodes alone are never named.
    """
    fine, bad, slow = _sorted(results)

    def trouble(node: str) -> float:
        wrong = len(bad[node] | slow[node])
        return wrong / (wrong + len(fine[node]))

    suspects: list[Suspect] = []
    for node in sorted({*bad, *slow}):
        share = trouble(node)
        for kind, seen in (("fails", bad[node]), ("is slow", slow[node])):
            # A witness gets on with others, and better than this node does: where two halves do not
            # reach each other all are equally bad off, and nobody is to blame.
            witnesses = sorted(peer for peer in seen if fine[peer] and trouble(peer) < share)
            if share > 0.5 and len(witnesses) >= WITNESSES:
                confidence = round(0.6 + 0.35 * share, 2)
                suspects.append(Suspect(node, f"{kind} with {_list(witnesses)}", confidence))
                break
    return suspects


_Peers = dict[str, set[str]]


def _sorted(results: Sequence[Pair]) -> tuple[_Peers, _Peers, _Peers]:
    """Per node, the peers it was fine, bad and slow with; the worse counts when a pair met twice."""
    fine: _Peers = defaultdict(set)
    bad: _Peers = defaultdict(set)
    slow: _Peers = defaultdict(set)
    best: dict[str, float] = defaultdict(float)
    for pair in results:
        for node in (pair.asker, pair.answerer):
            best[node] = max(best[node], pair.result.mb_per_s if pair.result.ok else 0.0)
    # What most nodes reach with somebody: of three nodes two pairs are slow when one node is.
    usual = sorted(best.values())[len(best) // 2] if best else 0.0
    for pair in results:
        result = pair.result
        if not result.ok:
            into = bad
        elif result.mb_per_s < SLOW_SHARE * usual and result.seconds > SLOW_SECONDS:
            into = slow
        else:
            into = fine
        into[pair.asker].add(pair.answerer)
        into[pair.answerer].add(pair.asker)
    for node in {*fine, *bad, *slow}:
        slow[node] -= bad[node]
        fine[node] -= bad[node] | slow[node]
    return fine, bad, slow


def _list(nodes: Sequence[str]) -> str:
    return ", ".join(nodes[:4]) + (f" and {len(nodes) - 4} more" if len(nodes) > 4 else "")
