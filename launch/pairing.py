"""Nodes exchange data in pairs before they train together: the supervisor's end of it.

Before the first cycle and after a communication failure that nothing explains, for three nodes or more.
A node that fails with several peers is not used, as long as enough remain; a slow one, or a wrong clock,
is only told. Nodes ask each other in :mod:`launch.partner`; judged in :mod:`launch.preflight.pairwise`.
``tests/launch/test_pairing.py``.
"""

from __future__ import annotations

import ipaddress
import math
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from resiliency.errors import StorageError
from resiliency.health import Check, NodeHealth, Status

from .leftover import say
from .partner import CLOCK_TRIPS, DEADLINE_S
from .preflight import Settings
from .preflight import clock as clocks
from .preflight.pairwise import Pair, Result, Suspect, judge, plan_round, rounds
from .segment import Segment
from .shrink import largest
from .team import Member, Team

#: Fewer cannot tell which of them is bad.
FEWEST: Final = 3
#: Each round is a new peer; so many are enough for two witnesses and one more.
ROUNDS: Final = 3
#: For the orders and the words about them.
_SLACK_S: Final = 2.0
#: Ends that may be one node's network, though no node is named.
UNEXPLAINED: Final = frozenset({"comm_timeout", "rendezvous", "ib_transport", "net_other"})

Send = Callable[[Iterable[str], Mapping[str, Any]], None]
Until = Callable[[Callable[[], bool], float], bool]


def token(segment: Segment, cycle: int, nodes: Sequence[str]) -> str:
    """For the order to prepare: empty when there is nothing to be exchanged."""
    settings = Settings.read(segment.config.recovery.get("preflight") or {})
    if not settings.run or "pairwise" in settings.skip or len(nodes) < FEWEST:
        return ""
    if cycle and _ended_with(segment, cycle - 1) not in UNEXPLAINED:
        return ""
    return secrets.token_hex(16)


def _ended_with(segment: Segment, cycle: int) -> str:
    try:
        attempt = segment.state().stage(segment.config.name).attempts.get(segment.attempt)
    except StorageError:
        return ""
    known = attempt.cycles.get(cycle) if attempt is not None else None
    return known.category if known is not None else ""


def pair_up(segment: Segment, team: Team, cycle: int, nodes: Sequence[str], send: Send, until: Until) -> None:
    """Let those that are ready meet; what it shows is added to their health."""
    members = [m for m in (team.members[node] for node in nodes) if _can_meet(m, cycle)]
    lonely = {m.node for m in members if _is_loopback(m.address)}
    if len(lonely) < len(members):  # such an address is of use only if all are on one host
        members = [m for m in members if m.node not in lonely]
    if len(members) >= FEWEST:
        _pair_up(segment, team, cycle, members, send, until)
    send(nodes, {"do": "exchange", "cycle": cycle, "over": True})


def _pair_up(
    segment: Segment, team: Team, cycle: int, members: Sequence[Member], send: Send, until: Until
) -> None:
    named = [member.node for member in members]
    pairs: list[Pair] = []
    offsets: dict[str, list[float]] = defaultdict(list)
    for number in range(min(ROUNDS, rounds(len(members)))):
        met = plan_round(named, number)
        if not _meet(team, cycle, number, met, send, until):
            break  # told to stop
        for asker, answerer in met:
            _take(team.members[asker], answerer, cycle, number, pairs, offsets)
    suspects = judge(pairs)
    rates = [pair.result.mb_per_s for pair in pairs if pair.result.ok]
    if rates:
        span = f"{min(rates):.0f} to {max(rates):.0f} MB/s"
        say(f"{len(members)} nodes exchanged data in {len(pairs)} pairs, {span}")
    # Who agrees with any of its peers has no clock of its own.
    ahead = {node: min(found, key=abs) for node, found in offsets.items() if len(found) > 1}
    _add(segment, team, suspects, ahead)


def _can_meet(member: Member, cycle: int) -> bool:
    ready = member.usable and member.ready_cycle == cycle and member.pair_port > 0
    return ready and not (member.health is not None and member.health.failed)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address in ("", "localhost")


def _meet(
    team: Team, cycle: int, number: int, met: Sequence[tuple[str, str]], send: Send, until: Until
) -> bool:
    """One round; False when it was cut short, and not only late."""
    for asker, answerer in met:
        peer = team.members[answerer]
        peers = [{"node": answerer, "host": peer.address or "127.0.0.1", "port": peer.pair_port}]
        send([asker], {"do": "exchange", "cycle": cycle, "round": number, "peers": peers})
    askers = [team.members[asker] for asker, _ in met]

    def answered() -> bool:
        return all(m.exchanged[:2] == (cycle, number) or not m.usable for m in askers)

    done = until(answered, DEADLINE_S + 0.5 * CLOCK_TRIPS + _SLACK_S)
    return done or any(m.exchanged[:2] == (cycle, number) for m in askers)


def _take(
    member: Member, answerer: str, cycle: int, number: int, pairs: list[Pair], offsets: dict[str, list[float]]
) -> None:
    """What one asker told. Who tells nothing, or nonsense, is not blamed on its peer."""
    told_cycle, told_round, results = member.exchanged
    if (told_cycle, told_round) != (cycle, number):
        return
    for one in results:
        try:
            if one["peer"] != answerer:
                continue
            result = Result.from_data(one)
            offset, error = float(one.get("offset") or 0.0), float(one.get("offset_error") or 0.0)
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
        pairs.append(Pair(member.node, answerer, result))
        if "offset" in one and math.isfinite(offset) and math.isfinite(error):
            # What the measurement itself may be wrong by does not count.
            sure = math.copysign(max(0.0, abs(offset) - abs(error)), offset)
            offsets[answerer].append(sure)
            offsets[member.node].append(-sure)


def _add(segment: Segment, team: Team, suspects: Sequence[Suspect], ahead: Mapping[str, float]) -> None:
    """Checks ``pairwise`` and ``clock_offset`` of those of which there is something to tell."""
    usable = [team.members[node] for node in team.usable()]
    left = sum(member.health is None or not member.health.failed for member in usable)
    for suspect in suspects:
        fails = suspect.why.startswith("fails")
        enough = largest(segment.config, left - 1) is not None
        # Without it the work could not be done at all: then the work itself shall tell.
        status = Status.CRITICAL if fails and enough else Status.WARN
        left -= status is Status.CRITICAL
        _more(team.members[suspect.node], Check("pairwise", status, f"exchanging data: {suspect.why}"))
    for node, seconds in ahead.items():
        check = clocks.judge(node, clocks.Offset(seconds, 0.0))
        if check.status is not Status.OK:
            _more(team.members[node], check)


def _more(member: Member, check: Check) -> None:
    health = member.health or NodeHealth(member.node, ())
    member.health = replace(health, checks=(*health.checks, check))
