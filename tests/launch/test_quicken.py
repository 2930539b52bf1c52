"""What is changed in the launchers' rendezvous exists in the versions installed and does what theirs did."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from importlib.util import find_spec

import pytest

from launch import quicken
from launch.rendezvous import free_port

from .conftest import ROOT

NVRX = "nvidia_resiliency_ext.fault_tolerance"
#: The rendezvous each has; NVRx kept torch's beside its own until 0.6.
LAUNCHERS = {
    f"{NVRX}.launcher": [f"{NVRX}._ft_rendezvous", f"{NVRX}.ft_rendezvous_barrier"],
    "torch.distributed.run": ["torch.distributed.elastic.rendezvous.dynamic_rendezvous"],
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_what_is_replaced_exists_and_means_the_same(launcher: str) -> None:
    if find_spec(launcher.partition(".")[0]) is None:
        pytest.skip("not installed")
    body = f"""
import importlib, inspect
from importlib.util import find_spec
module = importlib.import_module(next(name for name in {LAUNCHERS[launcher]!r} if find_spec(name)))
copied = hasattr(module, "_delay")
def name():
    return module.get_method_name()
def outer():
    return name()
theirs = outer()
assert not copied or list(inspect.signature(module._delay).parameters) == ["seconds"]
from launch import quicken
where = ["--rdzv-endpoint", "h:1", "--rdzv-conf", "is_host=1"]
quicken.rendezvous(["-m", {launcher!r}, "--nnodes", "2", *where])
assert module.get_method_name.__module__ == "launch.quicken" and outer() == theirs == "outer"
if copied:
    assert module._delay.__module__ == "launch.quicken"
    holder = inspect.signature(module._BackendRendezvousStateHolder)
    assert 0 < holder.parameters["cache_duration"].default < 0.1
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", body], check=True, cwd=ROOT)


def test_many_nodes_pause_as_long_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    for nodes in (2, 10_000):
        pause = quicken.delay(nodes)
        pause(1)
        for _ in range(50):
            pause((0, 0.3))
    assert slept[0] < 0.05 and max(slept[1:51]) < 0.05
    assert slept[51] == 1 and max(slept[52:]) > 0.2 and max(slept[52:]) <= 0.3


@pytest.mark.parametrize(
    "words",
    [["-m"], ["-m", "x", "--nnodes"], ["-m", "x", "--nnodes", "many"], ["-m", "x", "--nnodes", "2"]],
)
def test_other_words_are_left_alone(words: list[str]) -> None:
    quicken.rendezvous(words)


def test_a_store_that_comes_later_is_waited_for() -> None:
    import socket

    port = free_port("quicken")
    assert not quicken.wait_for_store("127.0.0.1", port, 2, patience_s=0.1)
    with socket.socket() as store:
        store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

        def open_later() -> None:
            time.sleep(0.3)
            store.bind(("127.0.0.1", port))
            store.listen()

        later = threading.Thread(target=open_later)
        later.start()
        assert quicken.wait_for_store("127.0.0.1", port, 2)
        later.join()
