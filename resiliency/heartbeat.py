"""The heartbeat of one rank, for any training loop: where it is, since when, and how long its steps take.

    heartbeat = Heartbeat.from_env()
    for step in ...:
        train()
        heartbeat.step(step)                # this step is done
        with heartbeat.section("checkpoint"):
            save()

A call changes memory that the node agent can read (:mod:`resiliency.steprecord`): no system call, no lock.
It never raises into the training. Where NVRx's launcher listens too, one thread of ours tells its monitor,
at most once a second and only what is new: a call of its client takes longer than everything else here.
``tests/resiliency/test_heartbeat.py``, cost: ``scripts/bench/bench_heartbeat.py``.
"""

from __future__ import annotations

import contextlib
import importlib
import operator
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from . import contract
from .steprecord import Recorder, encode, path_of

_NVRX_SOCKET: Final = "FT_RANK_MONITOR_IPC_SOCKET"
_FEED_S: Final = 1.0
_STEP: Final = b"step"
_KINDS: Final = 32  # sections whose time is added up; a program that makes up more has them as one
_OTHERS: Final = b"others"


class Feed:
    """Tells NVRx's rank monitor that the rank goes on; from a thread, since the answer is waited for.

    A beat is passed on, never made up: a rank that stands still is silent there as well.
    """

    def __init__(self, beats: Callable[[], int], interval_s: float = _FEED_S) -> None:
        self._beats, self._interval = beats, interval_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trainmaster-nvrx", daemon=True)
        self.problem: Exception | None = None
        self.sent = 0
        self._thread.start()

    def _run(self) -> None:
        client: Any = None
        said = 0
        try:
            # By name: the ground floor depends on no launcher, and must load where there is none.
            client = importlib.import_module("nvidia_resiliency_ext.fault_tolerance").RankMonitorClient()
            client.init_workload_monitoring()
            while True:
                beats = self._beats()
                if beats != said:
                    client.send_heartbeat()
                    said = beats
                    self.sent += 1
                if self._over.wait(self._interval):
                    break
            client.shutdown_workload_monitoring()
        except Exception as error:
            # A second opinion that cannot be had; ours stands by itself.
            self.problem = error

    def close(self) -> None:
        self._over.set()
        self._thread.join(timeout=2.0)


class Section:
    """What :meth:`Heartbeat.section` returns: used with ``with``, it leads back to where it was called."""

    def __init__(self, heartbeat: Heartbeat, outer: bytes, carry: float) -> None:
        self._heartbeat, self._outer, self._carry = heartbeat, outer, carry

    def __enter__(self) -> Section:
        return self

    def __exit__(self, *_: object) -> None:
        self._heartbeat._enter(self._outer, self._carry)


class _Collective:
    """Marks that the rank waits for others; nests."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat
        self._depth = 0
        self._since = 0.0

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth == 1:
            heartbeat = self._heartbeat
            self._since = heartbeat._now()
            record = heartbeat._record
            if record is not None:
                record.in_collective = True
                record.collectives += 1
                heartbeat._write()

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            heartbeat = self._heartbeat
            heartbeat._waited += heartbeat._now() - self._since
            record = heartbeat._record
            if record is not None:
                record.in_collective = False
                heartbeat._write()


class Heartbeat:
    """One rank's, to be called from its training thread. ``record`` None: every call is a cheap no-op."""

    def __init__(
        self,
        record: Recorder | None,
        *,
        now: Callable[[], float] = time.monotonic,
        feed: Callable[[Callable[[], int]], Feed] | None = None,
    ) -> None:
        self._record, self._now = record, now
        self._make_feed = feed
        self._feed: Feed | None = None
        self._section = b"setup"
        self._entered = now()
        self._carry = 0.0  # seconds of the current pass before a section within it
        self._waited = 0.0  # seconds of the current step spent in collectives
        self._first = True  # no step was passed yet
        self._spent: dict[bytes, float] | None = None  # seconds by section, once somebody asks
        self._collective = _Collective(self)
        if record is not None:
            record.section, record.entered, record.beat = self._section, self._entered, self._entered
            self._write()

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Heartbeat:
        """Built from $TRAINMASTER_RECORDS and $RANK; without the first, or if it cannot be used, a no-op."""
        env = os.environ if environ is None else environ
        directory = env.get(contract.ENV_RECORDS)
        if not directory:
            return cls(None)
        try:
            rank = int(env.get("RANK", "0"))
            record = Recorder(path_of(Path(directory), rank), rank)
        except (OSError, ValueError) as error:
            print(f"trainmaster: no heartbeats: {error}", file=sys.stderr, flush=True)
            return cls(None)
        return cls(record, feed=Feed if env.get(_NVRX_SOCKET) else None)

    # -- what a training loop calls ------------------------------------------------------------

    def section(self, name: str, step: int | None = None) -> Section:
        """The program is now in this section: ``setup``, ``load``, ``checkpoint``, ``eval``, … .

        A plain call lasts until the next one; ``with`` leads back to the section before. The same name
        again is one more pass of it.
        """
        outer, entered, carry = self._section, self._entered, self._carry
        record = self._record
        if record is not None and step is not None:
            record.step = step
        self._enter(encode(str(name)))
        return Section(self, outer, carry + self._entered - entered)

    def step(
        self,
        step: int,
        *,
        loss: float | None = None,
        tokens: int | None = None,
        seconds: float | None = None,
        compute_s: float | None = None,
    ) -> None:
        """This step is done. ``tokens``: total so far. ``seconds``: of this step, if the loop knows better.

        ``compute_s``: of them, what this rank did by itself; None: all but the time in collectives.
        """
        record = self._record
        if record is None:
            if self._spent is not None:
                self._enter(_STEP)
            return
        try:
            # Only plain numbers: turning an array of a device into one would wait for the device.
            record.step = step if type(step) is int else operator.index(step)
            if type(loss) is float or type(loss) is int:
                record.loss = float(loss)
            if type(tokens) is int:
                record.tokens = tokens
            if self._section == _STEP and not self._first:
                took = self._carry + self._now() - self._entered if seconds is None else seconds
                record.took(took, max(0.0, took - self._waited) if compute_s is None else compute_s)
        except Exception as error:
            self._end(error)
        self._waited = 0.0
        self._enter(_STEP)
        if self._make_feed is not None:
            self._start_feed()

    def collective(self) -> contextlib.AbstractContextManager[None]:
        """Mark a collective, or any other wait for ranks that must take part. Nests."""
        return self._collective

    def account(self) -> None:
        """From now on add up how long the program is in each section: :meth:`spent` tells it."""
        if self._spent is None:
            self._spent, self._entered = {}, self._now()

    def waited(self, section: str, seconds: float) -> None:
        """So many seconds of the section that the program is in went into waiting for something else.

        Only for :meth:`spent`: to a watcher the program is where it was.
        """
        spent = self._spent
        if spent is not None:
            self._add(encode(section), seconds)
            spent[self._section] = spent.get(self._section, 0.0) - seconds

    def spent(self) -> dict[str, float]:
        """Seconds by section since :meth:`account`, with those of the section that the program is in."""
        spent = self._spent
        if spent is None:
            return {}
        found = {name.decode("utf-8", "replace"): max(0.0, seconds) for name, seconds in spent.items()}
        here = self._section.decode("utf-8", "replace")
        found[here] = max(0.0, spent.get(self._section, 0.0) + self._now() - self._entered)
        return found

    def close(self) -> None:
        """The program is done: nothing more is expected of this rank."""
        if self._record is None:
            return
        self._enter(b"done")
        self._record.close()
        self._record = None
        if self._feed is not None:
            self._feed.close()

    # -- inside --------------------------------------------------------------------------------

    def _enter(self, section: bytes, carry: float = 0.0) -> None:
        """Leave the current section, go into this one: that is a beat."""
        now = self._now()
        record = self._record
        if self._spent is not None:
            self._add(self._section, now - self._entered)
        if record is None:
            self._section, self._entered, self._carry = section, now, carry
            return
        left, took = self._section, self._carry + now - self._entered
        if left != _STEP:
            record.passed(left, took)
        elif section == _STEP:
            # Else the step is not passed but left for a moment: its time is carried on.
            if not self._first:
                record.passed(left, took)
            # The first one compiles and warms up: as a measure of the others it would be useless.
            self._first = False
        self._section, self._entered, self._carry = section, now, carry
        record.section, record.entered, record.beat = section, now, now
        record.beats += 1
        self._write()

    def _add(self, section: bytes, seconds: float) -> None:
        spent = self._spent
        if spent is not None:
            if section not in spent and len(spent) >= _KINDS:
                section = _OTHERS
            spent[section] = spent.get(section, 0.0) + seconds

    def _write(self) -> None:
        try:
            if self._record is not None:
                self._record.write()
        except Exception as error:
            self._end(error)

    def _end(self, error: Exception) -> None:
        print(f"trainmaster: heartbeats end: {error!r}", file=sys.stderr, flush=True)
        self._record = None

    def _start_feed(self) -> None:
        # At the first step, so that the import cannot meet the program's own; and only where torch,
        # which it needs, is loaded anyway.
        make, self._make_feed = self._make_feed, None
        if make is not None and "torch" in sys.modules:
            self._feed = make(lambda: self._record.beats if self._record else 0)
