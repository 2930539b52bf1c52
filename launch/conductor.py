"""One attempt's cycles: agents up, nodes checked, ranks started, watched, ended, and started again.

Signals in, orders out; every wait is bounded. What an incident means and what is done about it is said
by :mod:`launch.incidents`, which asks ``resiliency.policy``. ``tests/launch/test_cycles.py``,
``test_segment.py``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from resiliency import exitcodes
from resiliency.policy import Decision

from . import incidents, pairing, reading
from .channel import Hub, Message
from .incidents import Incident
from .outcome import RankEnd
from .pulse import Pulse
from .roster import Roster, next_roster
from .segment import Segment
from .shrink import largest
from .signals import Bell
from .steps import Steps
from .stopping import Stopping
from .team import Member, Team

#: After the first failed rank: time for the others to show what they died of. One that only shows that
#: another has gone is worth waiting for that one's word.
SETTLE_S, SHORT_SETTLE_S = 0.5, 0.1
#: A command's processes may not know each other at all: after one has failed the others may save.
PEER_GRACE_COMMAND_S = 15.0
#: Agents kill in time; beyond this much more they are taken to be stuck.
BACKSTOP_S = 6.0
#: Enough agents are there: how long the missing ones are waited for.
_STRAGGLING_S = 20.0
#: An agent's way to end a cycle: SIGKILL, reaping, the rest of the output.
_STOPPING_S = 15.0
_TICK_S = 0.25


class Conductor:
    """Runs one attempt's agents to their end; :meth:`run` tells how every rank of the last cycle ended."""

    def __init__(self, segment: Segment, bell: Bell, hub: Hub, started: Steps | RankEnd) -> None:
        self.segment, self.bell, self.hub, self.started = segment, bell, hub, started
        self.team = Team.of(() if isinstance(started, RankEnd) else started.nodes)
        self.pulse = Pulse(segment, self.team)
        self.stopping = Stopping(segment, lambda order: self.hub.send(self.hub.nodes, order))
        self.began = time.monotonic()

    # -- the attempt ---------------------------------------------------------------------------

    def run(self) -> list[RankEnd]:
        if isinstance(self.started, RankEnd):
            return [self.started]
        try:
            ends = self._gather() or self._cycles()
        finally:
            self._dismiss(self.started)
        self.stopping.settle(wait=True, preempted=self.steps.preempted)
        return ends

    @property
    def steps(self) -> Steps:
        assert isinstance(self.started, Steps)
        return self.started

    def _cycles(self) -> list[RankEnd]:
        cycle = 0
        reason = ""
        while True:
            refused = self._ready(cycle, reason)
            if refused is not None:
                return refused
            self._start(cycle)
            if cycle == 0 and self.segment.config.launch.restarts_in_job:
                reading.prepare()
            incident = self._watch()
            incident, ends = self._settle(incident)
            if incident is None or self.stopping.asked:
                incidents.over(self.segment, self.team, ends, self.pulse.step)
                return ends
            decision = incidents.decide(self.segment, self.team, incident, ends, self.pulse.step)
            if not decision.stays:
                return ends
            self._act_on(decision, incident)
            reason = decision.reason
            cycle += 1

    def _act_on(self, decision: Decision, incident: Incident) -> None:
        for node in decision.exclude:
            if node in self.team.members:
                self.team.bar(node, decision.reason)
        if decision.node in self.team.members:
            self.team.bar(str(decision.node), decision.reason)
        print(
            f"trainmaster: cycle {self.team.cycle}: {incident.detail}; {decision.action.value} "
            f"by {decision.rule}",
            flush=True,
        )

    # -- agents up -----------------------------------------------------------------------------

    def _gather(self) -> list[RankEnd] | None:
        """Wait for the agents; ends instead when the work cannot begin."""
        launch = self.segment.config.launch
        limit = self.began + max(5 * launch.startup_s, 300.0)
        enough_at: float | None = None
        while True:
            self._pump()
            now = time.monotonic()
            seen = self.team.usable()
            if self.stopping.asked:
                return [RankEnd(None, exitcodes.PROGRESS_MADE, time.time())]
            missing = [n for n, m in self.team.members.items() if not m.seen and m.lost is None]
            if not missing and seen:
                return None
            for node in missing:
                if self.steps.gone(node):
                    self.team.lose(node, f"the agent on {node} did not start")
            if self.steps.over() and not seen:
                return [self._no_agent()]
            if not missing:
                continue
            if len(seen) >= launch.nodes:
                enough_at = enough_at or now
                if now - enough_at > _STRAGGLING_S:
                    for node in missing:
                        self.team.lose(node, f"the agent on {node} did not come up")
            if now > limit and not launch.container:
                if not seen:
                    return [RankEnd(None, 1, time.time(), "no agent started", "launch_failed")]
                for node in missing:
                    self.team.lose(node, f"the agent on {node} did not come up")

    def _no_agent(self) -> RankEnd:
        steps = self.steps
        code = exitcodes.from_returncode(steps.code_of(steps.nodes[0])) or 1
        steps.close()
        why = steps.trouble[-1] if steps.trouble else f"no agent started; the launch ended with {code}"
        return RankEnd(None, 1, time.time(), why, "launch_failed")

    # -- a cycle -------------------------------------------------------------------------------

    def _ready(self, cycle: int, reason: str) -> list[RankEnd] | None:
        """Check the nodes and choose those that train; ends instead when there are too few."""
        config = self.segment.config
        self.segment.cycle = cycle  # what goes wrong from here on is not said of the cycle before
        asked = self.team.usable()
        order = {"do": "prepare", "cycle": cycle, "checks": True, "attempt": self.segment.attempt}
        order["pairs"] = pairing.token(self.segment, cycle, asked)
        self.hub.send(asked, order)
        timeout = float((config.recovery.get("preflight") or {}).get("timeout") or 30.0)
        limit = timeout + config.launch.warming_s + 5.0

        def answered() -> bool:
            return all(m.ready_cycle == cycle or not m.usable for m in map(self.team.members.get, asked) if m)

        self._until(answered, limit)
        if self.stopping.asked:
            return [RankEnd(None, exitcodes.PROGRESS_MADE, time.time())]
        for node in asked:
            member = self.team.members[node]
            if member.usable and member.ready_cycle != cycle:
                self.team.bar(node, f"{node} did not answer within {limit:.0f} s")
        if order["pairs"]:
            pairing.pair_up(self.segment, self.team, cycle, asked, self.hub.send, self._until)
        incidents.checked(self.segment, self.team, cycle, asked)
        usable = self.team.usable()
        count = largest(config, len(usable))
        if count is None:
            return self._too_few(usable)
        roster = next_roster(self.team.training if cycle else (), usable, count)
        self._journal_roster(cycle, roster, reason)
        self.team.begin(cycle, roster.nodes)
        return None

    def _too_few(self, usable: Sequence[str]) -> list[RankEnd]:
        """The allocation cannot do the work: say which nodes are why."""
        found: list[RankEnd] = []
        for member in self.team.members.values():
            if member.lost is not None:
                found.append(self._lost_end(member))
            elif member.barred is not None:
                category = incidents.health_category(member)
                found.append(RankEnd(None, 1, time.time(), member.barred, category, node=member.node))
        if found:
            return found
        why = f"only {len(usable)} of {self.segment.config.launch.nodes} nodes can be used"
        return [RankEnd(None, 1, time.time(), why, "launch_failed")]

    def _journal_roster(self, cycle: int, roster: Roster, reason: str) -> None:
        journal, config = self.segment.journal, self.segment.config
        for out, into in roster.swapped:
            data = {"out": out, "in": into, "reason": reason}
            journal.append("node.swapped", data, sync=True, cycle=cycle)
            print(f"trainmaster: {into} takes the place of {out} ({reason})", flush=True)
        if len(roster.nodes) < (len(self.team.training) if cycle else config.launch.nodes):
            world = len(roster.nodes) * config.launch.ranks_per_node
            fewer = {"nodes": list(roster.nodes), "world": world, "reason": reason}
            journal.append("node.shrunk", fewer, sync=True, cycle=cycle)
            print(f"trainmaster: goes on with {len(roster.nodes)} nodes ({reason})", flush=True)

    def _start(self, cycle: int) -> None:
        team, launch = self.team, self.segment.config.launch
        nodes = team.training
        first = team.members[nodes[0]]
        self.pulse.begin(cycle)
        self.segment.cycle = cycle
        data = {
            "cycle": cycle,
            "nodes": list(nodes),
            "spares": team.spares(),
            "world": len(nodes) * launch.ranks_per_node,
            "port": first.port,
        }
        self.segment.journal.append("cycle.started", data, cycle=cycle)
        for index, node in enumerate(nodes):
            order = {
                "do": "start", "cycle": cycle, "index": index, "count": len(nodes),
                "master": first.address or "127.0.0.1", "port": first.port,
            }  # fmt: skip
            self.hub.send([node], order)

    def _watch(self) -> Incident | None:
        """Until every rank has ended, or something happens that must be decided on."""
        heard: float | None = None
        while True:
            self._pump(_TICK_S if heard is None else SHORT_SETTLE_S / 2)
            now = time.monotonic()
            if self.stopping.asked:
                if self.team.ended() or now > self.stopping.deadline + BACKSTOP_S or self.steps.over():
                    return None
                continue
            if self.team.lost_members():
                return incidents.node_lost(self.team)
            if self.team.ended():
                return incidents.rank_end(self.team)
            if self.team.first_failed() is not None:
                heard = heard or now
                if self.team.leaving():
                    continue  # a node may have gone, and be why: that is known in a moment
                first = self.team.first_failed()
                if now - heard >= (SETTLE_S if first and first.followed else SHORT_SETTLE_S):
                    return incidents.rank_end(self.team)
                continue
            incident = self.pulse.check(self._tell)
            if incident is None:
                continue
            if incident.kind != "straggler" or incidents.worth_a_restart(self.segment, self.team, incident):
                return incident

    def _settle(self, incident: Incident | None) -> tuple[Incident | None, list[RankEnd]]:
        """End the cycle everywhere: what happened, as far as is known now, and how its ranks ended."""
        team, config = self.team, self.segment.config
        if incident is not None and incident.kind == "hang":
            incident = self._gather_evidence(incident)
        if not team.ended():
            alone = config.is_command and config.launch.launcher in ("none", "auto")
            launched = any(end.rank is None for end in team.ends())
            hang = incident is not None and incident.kind == "hang"
            gentle = alone and not launched and not hang
            grace = min(config.launch.grace_s, PEER_GRACE_COMMAND_S) if gentle else 0.0
            self._tell({"do": "stop", "cycle": team.cycle, "grace_s": grace})
            self._until(lambda: team.ended() or self.steps.over(), grace + _STOPPING_S)
        for member in team.working():
            if member.ends is None:
                team.lose(member.node, f"the agent on {member.node} does not answer")
        ends = team.ends()
        ends += [self._lost_end(member) for member in team.lost_members()]
        if incident is not None and incident.end is not None:
            ends.append(incident.end)
        return incident, ends

    def _gather_evidence(self, incident: Incident) -> Incident:
        """Stacks and records of all ranks, before anything is killed."""
        directory = incidents.evidence_dir(self.segment, self.team.cycle)
        timeout = 2.0
        self._tell({"do": "dump", "cycle": self.team.cycle, "dir": str(directory), "timeout_s": timeout})
        working = self.team.working()
        self._until(lambda: all(m.evidence is not None for m in working if m.lost is None), timeout + 1.5)
        found = [item for member in working for item in (member.evidence or [])]
        frames = {int(i["rank"]): str(i["top_frame"]) for i in found if i.get("kind") == "stack"}
        incident = replace(self.pulse.blame(frames), onset=incident.onset, detected=incident.detected)
        incidents.keep_evidence(self.segment, self.team, incident, directory)
        return incident

    # -- what comes in -------------------------------------------------------------------------

    def _pump(self, timeout_s: float = _TICK_S) -> None:
        """Signals and messages, as they come, for at most ``timeout_s``."""
        for number in self.bell.wait(timeout_s, self.hub.fileno()):
            self.stopping.signal(number)
        for node, message in self.hub.poll():
            self._heard(node, message)
        self.stopping.settle(wait=False, preempted=self.steps.preempted)
        now = time.monotonic()
        steps = self.steps
        for member in self.team.members.values():
            if member.lost is None and member.node in steps.lost_nodes:  # srun's own word
                self._lose(member, f"node {member.node} was lost")
        for member in self.team.overdue(now):
            alive = steps.gone(member.node)
            why = f"the agent on {member.node} vanished" if alive else f"node {member.node} does not answer"
            self._lose(member, why)

    def _heard(self, node: str, message: Message | None) -> None:
        kind = self.team.take(node, message)
        if kind == "hello" and self.stopping.asked:
            self.hub.send([node], self.stopping.order())
        elif kind == "terminated":
            self.stopping.step_told()
        elif message is not None:
            self.pulse.heard(node, kind, message)

    def _lose(self, member: Member, why: str) -> None:
        self.team.lose(member.node, why)
        self.segment.lost_nodes.add(member.node)
        print(f"trainmaster: {why}", file=sys.stderr, flush=True)
        data = {"node": member.node, "reason": why}
        self.segment.journal.append("node.lost", data, sync=True, cycle=self.team.cycle)

    def _lost_end(self, member: Member) -> RankEnd:
        """What is known of ranks whose node is gone."""
        code = exitcodes.from_returncode(self.steps.code_of(member.node))
        named = self.steps.named_lost(member.node)
        if code in (exitcodes.COMPLETE, exitcodes.PROGRESS_MADE):
            code = 1
        why = f"node {member.node} was lost" if named else str(member.lost)
        return RankEnd(
            None,
            code,
            time.time(),
            why,
            "" if self.steps.vanished(member.node) else "node_down",
            killed=self.stopping.asked and not named,
            node=member.node,
        )

    def _until(self, done: Callable[[], bool], limit_s: float) -> bool:
        """Pump until ``done`` or the time is over (or, when told to stop, the grace)."""
        until = time.monotonic() + limit_s
        while not done():
            now = time.monotonic()
            if now > until or (self.stopping.asked and now > self.stopping.deadline + BACKSTOP_S):
                return False
            self._pump(min(_TICK_S, max(0.0, until - now)))
        return True

    def _tell(self, order: Message) -> None:
        """An order for the nodes of the cycle."""
        self.hub.send(self.team.training, order)

    def _dismiss(self, steps: Steps) -> None:
        """Send every agent home; those that do not go are ended."""
        self.hub.send(self.hub.nodes, {"do": "exit"})
        gone = [member.node for member in self.team.members.values() if member.lost is not None]
        killed = [node for node in gone if steps.vanished(node)]
        lost = bool(gone)
        until = time.monotonic() + (1.0 if lost else BACKSTOP_S)
        while not steps.over() and time.monotonic() < until:
            for number in self.bell.wait(0.05, self.hub.fileno()):
                self.stopping.signal(number)
            for node, message in self.hub.poll():
                self.team.take(node, message)
        if not steps.over():
            if not lost:
                print("trainmaster: agents did not end in time", file=sys.stderr, flush=True)
            steps.end()
        steps.close(killed if not self.stopping.asked else ())
        self.hub.close()
