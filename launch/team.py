"""The agents of an attempt as the supervisor knows them: who is there, who trains, who is spare, who is gone.

Takes in what the channel brings and answers questions; decides nothing, waits for nothing.
``tests/launch/test_team.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from resiliency.health import NodeHealth

from .channel import Message
from .outcome import RankEnd

#: After a connection's end: time for the agent to come back before its node counts as lost.
RETURN_S = 0.7


@dataclass
class Member:
    """One node. ``left_at`` (monotonic): its connection ended then; ``lost``: why it is given up."""

    node: str
    index: int
    address: str = ""
    seen: bool = False
    left_at: float | None = None
    lost: str | None = None
    barred: str | None = None  # failed its checks: answers, but is not to be used
    terminated: bool = False
    said_bye: bool = False
    ready_cycle: int = -1
    health: NodeHealth | None = None
    port: int = 0
    pair_port: int = 0
    exchanged: tuple[int, int, Sequence[Any]] = (-1, -1, ())  # cycle, round, results
    failed: RankEnd | None = None
    ends: Sequence[RankEnd] | None = None  # of the cycle it works in
    step: int | None = None
    last_words: str = ""  # the end of its log, when ranks failed
    evidence: list[dict[str, Any]] | None = None
    records_cycle: int = -1

    @property
    def usable(self) -> bool:
        return self.seen and self.lost is None and self.barred is None and self.left_at is None


@dataclass
class Team:
    """All members in the allocation's order; ``training``: those of the current cycle, in rank order."""

    members: dict[str, Member]
    cycle: int = 0
    training: tuple[str, ...] = ()
    suspected: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, nodes: Iterable[str]) -> Team:
        return cls({node: Member(node, index) for index, node in enumerate(nodes)})

    # -- what comes in -------------------------------------------------------------------------

    def take(self, node: str, message: Message | None) -> str:
        """Take in one message; its kind: ``gone`` for the end of a connection, empty if it is senseless."""
        member = self.members.get(node)
        if member is None:
            return ""
        if message is None:
            member.left_at = member.left_at or time.monotonic()
            return "gone"
        kind = str(message.get("kind", ""))
        try:
            self._take(member, kind, message)
        except (KeyError, TypeError, ValueError):
            return ""
        return kind

    def _take(self, member: Member, kind: str, message: Message) -> None:
        if kind == "hello":
            member.seen, member.left_at = True, None
            member.address = str(message.get("address") or "")
        elif kind == "ready":
            member.ready_cycle, member.port = int(message["cycle"]), int(message["port"])
            member.health = NodeHealth.from_data(message["health"])
            member.pair_port = int(message.get("pair_port") or 0)
        elif kind == "exchanged":
            member.exchanged = (int(message["cycle"]), int(message["round"]), list(message["results"]))
        elif kind == "failed" and int(message["cycle"]) == self.cycle:
            member.failed = member.failed or RankEnd.from_data(message["end"])
        elif kind == "ended" and int(message["cycle"]) == self.cycle:
            member.ends = tuple(RankEnd.from_data(end) for end in message["ends"])
            member.step = message.get("step")
            member.last_words = str(message.get("log") or "")
        elif kind == "terminated":
            member.terminated = True
        elif kind == "suspect":
            self.suspected.add(member.node)
        elif kind == "records":
            member.records_cycle = int(message["cycle"])
        elif kind == "evidence" and int(message["cycle"]) == self.cycle:
            member.evidence = list(message["found"])
        elif kind == "bye":
            member.said_bye = True

    # -- questions -----------------------------------------------------------------------------

    def overdue(self, now: float) -> list[Member]:
        """Members whose connection ended RETURN_S ago, and that are not given up yet."""
        return [
            m for m in self.members.values()
            if m.left_at is not None and m.lost is None and not m.said_bye and now - m.left_at >= RETURN_S
        ]  # fmt: skip

    def leaving(self) -> bool:
        """Whether the connection of a node of the cycle has ended, and it is not given up yet."""
        return any(m.left_at is not None and m.ends is None for m in self.working())

    def usable(self) -> list[str]:
        """Nodes that can be worked on, in order."""
        return [node for node, member in self.members.items() if member.usable]

    def working(self) -> list[Member]:
        """Members of the current cycle that are still there."""
        return [self.members[node] for node in self.training if self.members[node].lost is None]

    def places(self, ranks_per_node: int) -> dict[int, str]:
        """Rank → its node, of the current cycle."""
        return {
            index * ranks_per_node + local: node
            for index, node in enumerate(self.training)
            for local in range(ranks_per_node)
        }

    def spares(self) -> list[str]:
        return [node for node in self.usable() if node not in self.training]

    def ended(self) -> bool:
        """Whether every member of the cycle has told how its ranks ended, or is gone."""
        return all(member.ends is not None for member in self.working())

    def ends(self) -> list[RankEnd]:
        return [end for node in self.training for end in (self.members[node].ends or ())]

    def lost_members(self) -> list[Member]:
        """Members of the cycle that were lost before they told how their ranks ended."""
        mine = (self.members[node] for node in self.training)
        return [member for member in mine if member.lost is not None and member.ends is None]

    def first_failed(self) -> RankEnd | None:
        """The earliest failed rank of the cycle, of those that were told; one that died by itself before
        those that only show that it had gone."""
        told = [member.failed for member in self.working() if member.failed is not None]
        told += [end for member in self.working() for end in (member.ends or ()) if end.failed]
        return min(told, key=lambda end: (end.followed, end.at), default=None)

    # -- changes -------------------------------------------------------------------------------

    def begin(self, cycle: int, training: Sequence[str]) -> None:
        """A new cycle on these nodes: what was said of an earlier one no longer counts."""
        self.cycle, self.training = cycle, tuple(training)
        self.suspected.clear()
        for member in self.members.values():
            member.failed, member.ends, member.evidence, member.step = None, None, None, None
            member.records_cycle, member.last_words = -1, ""

    def lose(self, node: str, why: str) -> None:
        member = self.members[node]
        member.lost = member.lost or why

    def bar(self, node: str, why: str) -> None:
        member = self.members[node]
        member.barred = member.barred or why
