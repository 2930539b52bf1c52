"""The supervisor's view of all ranks' heartbeats: where they are, whether they hang, who is slow.

The judgement is ``resiliency.hang``'s and ``resiliency.straggler``'s. ``tests/launch/test_cycles.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from resiliency import hang, straggler
from resiliency.exitcodes import WATCHDOG
from resiliency.fleet import Fleet

from .channel import Message
from .incidents import Incident
from .outcome import RankEnd
from .segment import Segment
from .team import Team

#: After a suspicion: how long to wait for the other nodes' records.
_ASKED_S = 1.0
_STRAGGLER_S = 10.0


class Pulse:
    """One attempt's; :meth:`begin` for each cycle."""

    def __init__(self, segment: Segment, team: Team) -> None:
        self._segment, self._team = segment, team
        recovery = segment.config.recovery
        self._hang = hang.Settings.read(recovery.get("hang") or {})
        self._straggler = straggler.Settings.read(recovery.get("straggler") or {})
        self._history = hang.History()
        self._fleet = Fleet()
        self._asked_at: float | None = None
        self._compared_at = time.monotonic()
        self._named: set[int] = set()
        self._stall: hang.Stall | None = None

    @property
    def step(self) -> int | None:
        """The furthest step of any rank in this cycle."""
        return self._fleet.max_step

    def begin(self, cycle: int) -> None:
        self._fleet = Fleet()
        self._asked_at = None
        self._named.clear()

    def heard(self, node: str, kind: str, message: Message) -> None:
        if kind not in ("status", "suspect", "records") or message.get("cycle") != self._team.cycle:
            return
        self._history.learn(self._fleet.update(node, message.get("ranks") or [], time.monotonic()))

    def check(self, tell: Callable[[dict[str, Any]], None]) -> Incident | None:
        """A hang or a slow node that is to be replaced; ``tell`` asks for records on a suspicion."""
        now = time.monotonic()
        if self._team.suspected and self._asked_at is None:
            self._asked_at = now
            tell({"do": "records"})
        if self._asked_at is not None:
            there = all(m.records_cycle == self._team.cycle for m in self._team.working())
            if there or now - self._asked_at > _ASKED_S:
                self._asked_at = None
                self._team.suspected.clear()
                for member in self._team.working():
                    member.records_cycle = -1
                return self._stalled(now)
        if self._straggler.action != "off" and now - self._compared_at > _STRAGGLER_S:
            self._compared_at = now
            return self._slow()
        return None

    def _stalled(self, now: float) -> Incident | None:
        self._stall = hang.stalled(self._fleet.views(now), self._history, self._hang)
        return self.blame({}) if self._stall is not None else None

    def blame(self, frames: Mapping[int, str]) -> Incident:
        """The hang that was found, and who is behind it; ``frames``: rank → the top of its stack, if known.

        The culprit is the rank that the others wait for, not the first whose time ran out.
        """
        stall = self._stall
        assert stall is not None
        expected = self._team.places(self._segment.config.launch.ranks_per_node)
        found = hang.culprits(self._fleet.views(time.monotonic()), expected, frames)
        first = found[0] if found else None
        who = f"rank {first.rank} on {first.node}: {first.why}" if first else "no rank stands out"
        step = self._fleet.max_step
        detail = f"no progress for {stall.age_s:.1f} s in {stall.section} at step {step}; {who}"
        at = time.time()
        rank, node = (first.rank, first.node) if first else (None, None)
        end = RankEnd(rank, WATCHDOG, at - stall.age_s, detail, "hang", node=node or "")
        evidence = tuple(f"rank {c.rank} on {c.node}: {c.why} ({c.confidence:.2f})" for c in found[:8])
        return Incident("hang", detail, at - stall.age_s, at, node, rank, step, end, evidence)

    def _slow(self) -> Incident | None:
        times = self._fleet.compute_times()
        for slow in straggler.slow(times, self._straggler):
            if slow.rank in self._named:
                continue
            self._named.add(slow.rank)
            node = self._fleet.node_of(slow.rank)
            data = {
                "rank": slow.rank, "node": node, "ratio": round(slow.ratio, 3),
                "window": self._straggler.window, "seconds": round(slow.median_s, 4), "peers": slow.peers,
            }  # fmt: skip
            self._segment.journal.append("straggler", data, cycle=self._team.cycle)
            detail = f"rank {slow.rank} on {node} takes {slow.ratio:.2f} times its peers' time for a step"
            print(f"trainmaster: {detail}", flush=True)
            if self._straggler.action == "swap" and self._team.spares():
                at = time.time()
                end = RankEnd(slow.rank, WATCHDOG, at, detail, "straggler", node=node or "")
                return Incident("straggler", detail, at, at, node, slow.rank, self.step, end, swap=True)
        return None
