"""Offsets between clocks: the arithmetic, and a real round trip over a socket pair."""

from __future__ import annotations

import socket
import threading
import time

from hypothesis import given
from hypothesis import strategies as st

from launch.preflight.clock import Offset, Trip, judge, measure, offset
from resiliency.health import Status


@given(
    st.floats(-1e4, 1e4),
    st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2), st.floats(0, 1)), min_size=1, max_size=8),
)
def test_the_true_offset_lies_within_the_error(ahead: float, trips: list[tuple[float, float, float]]) -> None:
    made = [
        Trip(0.0, there + ahead, there + work + ahead, there + work + back) for there, back, work in trips
    ]
    found = offset(made)
    if found is not None:
        assert abs(found.seconds - ahead) <= found.error + 1e-6
        assert found.error <= min(there + back for there, back, _ in trips) / 2 + 1e-6


def test_the_fastest_trip_counts() -> None:
    slow, fast = Trip(0, 13, 13, 6), Trip(0, 10.01, 10.01, 0.02)
    assert offset([slow, fast, slow]) == Offset(10.0, 0.01)


def test_senseless_trips_tell_nothing() -> None:
    assert offset([]) is None
    assert offset([Trip(5, 1, 1, 0), Trip(0, 9, 1, 1), Trip(0, float("nan"), 0, 1)]) is None
    assert judge("n2", None).status is Status.UNKNOWN


def test_a_wrong_clock_is_a_warning_and_never_more() -> None:
    assert judge("n2", Offset(0.5, 0.001)).status is Status.OK
    assert judge("n2", Offset(1.5, 1.0)).status is Status.OK, "it may be the measurement"
    for seconds in (1.5, -3600.0, 1e9):
        assert judge("n2", Offset(seconds, 0.01)).status is Status.WARN
    assert "ahead" in judge("n2", Offset(5, 0)).detail and "behind" in judge("n2", Offset(-5, 0)).detail


def test_a_real_round_trip() -> None:
    here, there = socket.socketpair()

    def serve() -> None:
        while there.recv(1):
            now = time.time() + 100.0
            there.sendall(f"{now:.6f} {now:.6f}\n".encode())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()

    def ask() -> tuple[float, float]:
        here.sendall(b"?")
        came, went = here.recv(200).split()
        return float(came), float(went)

    found = measure(ask)
    here.close()
    thread.join(20)
    there.close()
    assert found is not None and abs(found.seconds - 100.0) <= found.error + 0.001
    assert measure(lambda: ask()) is None, "who does not answer is not compared"
