"""What a node keeps over the cycles of an attempt: its warm server, its memory, its checks.

Slow things run in threads; their words come back through :meth:`Workbench.poll` in the main loop.
``tests/launch/test_cycles.py``.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from resiliency import contract
from resiliency.health import Check, NodeHealth, Status

from . import evidence, warm
from .config import StageConfig
from .generation import Generation
from .partner import Partner
from .preflight import CheckPlace, Settings, run_checks
from .rendezvous import free_port
from .roles import warm_environment, warm_modules

Word = dict[str, Any]


class Workbench:
    """One agent's. :meth:`open` and :meth:`close` frame the attempt."""

    def __init__(self, config: StageConfig, node: str, *, run_dir: Path, local_dir: Path) -> None:
        self.config, self.node = config, node
        self.run_dir, self.local = run_dir, local_dir
        self.node_dir = local_dir / "node"
        self._socket = local_dir / "warm.sock"
        self._warm: subprocess.Popen[bytes] | None = None
        self._words: queue.SimpleQueue[Word] = queue.SimpleQueue()
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_in, False)
        self._checked = False
        self._partner = Partner()

    def open(self) -> None:
        self.node_dir.mkdir(exist_ok=True)
        modules = warm_modules(self.config)
        if not modules:
            return
        env, launch = warm_environment(self.config, os.environ), self.config.launch
        try:
            self._warm = warm.start(launch.python, self._socket, modules, env, launch.workdir)
        except OSError as error:
            print(f"trainmaster: {self.node}: no warm ranks: {error}", file=sys.stderr, flush=True)

    def environment(self) -> dict[str, str]:
        """What ranks need to know of it."""
        return {contract.ENV_WARM: str(self._socket)} if self._warm is not None else {}

    def keep(self) -> tuple[int, ...]:
        """Processes that outlive a cycle, though what they started for it does not."""
        return (self._warm.pid,) if self._warm is not None else ()

    # -- slow things ---------------------------------------------------------------------------

    def prepare(self, cycle: int, order: Mapping[str, Any]) -> None:
        """Check the node and find a port; the word ``ready`` tells both."""
        settings = Settings.read(self.config.recovery.get("preflight") or {})
        attempt = str(order.get("attempt", ""))

        def work() -> Word:
            started = time.monotonic()
            if order.get("checks") and settings.run:
                place = CheckPlace(
                    self.node, self.run_dir, self.local, self.config.launch.gpus_per_node,
                    self.config.stage_dir,
                )  # fmt: skip
                try:
                    health = run_checks(settings, place, quick=self._checked)
                except Exception as error:  # a check that breaks must not fail a node
                    broken = Check("preflight", Status.UNKNOWN, f"the checks themselves failed: {error!r}")
                    health = NodeHealth(self.node, (broken,))
                self._checked = True
            else:
                health = NodeHealth(self.node, ())
            if self._warm is not None and not warm.ready(self._socket):
                # The first cycle profits too: imports went on while nodes were checked.
                warm.wait_ready(self._socket, self.config.launch.warming_s, self._warm)
            return {
                "kind": "ready",
                "cycle": cycle,
                "health": health.as_data(),
                "port": free_port(f"{attempt}#{cycle}"),
                "pair_port": self._partner.open(str(order["pairs"])) if order.get("pairs") else 0,
                "seconds": round(time.monotonic() - started, 3),
            }

        self._later(work)

    def exchange(self, order: Mapping[str, Any]) -> None:
        """Exchange data with the peers of the order; the word ``exchanged`` tells how it went."""
        if order.get("over"):
            self._partner.close()
        else:
            self._later(lambda: self._partner.ask(order))

    def dump(self, generation: Generation, directory: Path, timeout_s: float) -> None:
        """Gather what shows why a cycle stands still; the word ``evidence`` tells where it lies."""
        pids = generation.pids()
        records = generation.records_dir

        def work() -> Word:
            found: list[dict[str, Any]] = []
            try:
                found = evidence.gather(pids, directory, timeout_s, records_dir=records, node=self.node)
            except OSError as error:
                print(f"trainmaster: {self.node}: no evidence: {error}", file=sys.stderr, flush=True)
            return {"kind": "evidence", "cycle": generation.cycle, "found": found}

        self._later(work)

    def _later(self, work: Callable[[], Word]) -> None:
        def run() -> None:
            self._words.put(work())
            with contextlib.suppress(OSError):
                os.write(self._wake_out, b"!")

        threading.Thread(target=run, daemon=True).start()

    # -- main loop -----------------------------------------------------------------------------

    def filenos(self) -> tuple[int, ...]:
        return (self._wake_in,)

    def poll(self) -> list[Word]:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_in, 512)
        found: list[Word] = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._words.get_nowait())
        return found

    def close(self) -> None:
        """What is kept ends with the attempt."""
        self._partner.close()
        if self._warm is not None:
            self._warm.kill()
            self._warm.wait()
