"""The time while the agents run: signals in, orders out, until every node has ended.

Every wait is bounded: agents end their ranks when the grace is over, and a backstop ends the agents.
``tests/launch/test_segment.py``.
"""

from __future__ import annotations

import signal
import sys
import time

from resiliency import exitcodes
from resiliency.errors import StorageError

from . import control, leftover, steps
from .outcome import RankEnd
from .segment import Segment
from .signals import Bell, Classifier

#: After a node has failed the others wait in a collective for ever: their time to end. A command's
#: processes may not know each other at all, so they get time to save.
PEER_GRACE_S = 5.0
PEER_GRACE_COMMAND_S = 15.0
#: What is left of the grace after a second TERM: the allocation is about to be taken away.
HURRY_S = 10.0
#: Agents kill in time; beyond this much more they are taken to be stuck.
BACKSTOP_S = 6.0
_TICK_S = 0.25


class Watch:
    """One attempt's agents, from their start to the last report."""

    def __init__(self, segment: Segment, bell: Bell, started: steps.Steps | RankEnd) -> None:
        self.segment, self.bell, self.started = segment, bell, started
        self.order = 0
        self.deadline: float | None = None  # monotonic: agents are killed by then
        self.terms = 0
        self.classifier: Classifier | None = None
        self.began = time.monotonic()
        self.trouble_at: float | None = None
        self.startup_failed = False

    def run(self) -> list[RankEnd]:
        """How every rank ended, as far as anybody knows."""
        if isinstance(self.started, RankEnd):
            return [self.started]
        nodes = self.started
        while not nodes.over():
            for number in self.bell.wait(_TICK_S):
                self._signal(number)
            nodes.look()
            self._classified(wait=False)
            self._peers(nodes)
            self._startup(nodes)
            if self.deadline is not None and time.monotonic() > self.deadline + BACKSTOP_S:
                print("trainmaster: agents did not end in time", file=sys.stderr, flush=True)
                nodes.end()
                break
        nodes.close()
        self._last_reports(nodes)
        if self.segment.drain_reason is None and any(r.terminated for r in nodes.reports.values()):
            # Preemption with a GraceTime: only the step was told. Its TERM is the attempt's.
            self.classifier = self.classifier or Classifier(
                self.segment.open_control, self.segment.allocation.job_id
            )
        self._classified(wait=True)
        return self._ends(nodes)

    # -- being told to stop --------------------------------------------------------------------

    def _signal(self, number: signal.Signals) -> None:
        grace = self.segment.config.launch.grace_s
        if number == signal.SIGUSR2:
            if self.segment.drain_reason is None and not self.terms:
                leftover.draining(self.segment, "time_limit", "USR2")
                self._stop("time_limit", grace)
            return
        self.terms += 1
        if self.classifier is None:
            self.classifier = Classifier(self.segment.open_control, self.segment.allocation.job_id)
        hurry = self.terms > 1 or self.segment.drain_reason is not None
        self._stop("terminated", min(grace, HURRY_S) if hurry else grace)

    def _classified(self, *, wait: bool) -> None:
        """Journal why the TERM came, once it is known; a cancelled stage stops at once."""
        if self.classifier is None:
            return
        told = isinstance(self.started, steps.Steps) and self.started.preempted
        reason = "preempted" if told else self.classifier.result(wait=wait)
        if reason is None:
            return
        self.classifier = None
        if self.segment.drain_reason is None or reason == "cancelled":
            leftover.draining(self.segment, reason, "TERM")
        if reason == "cancelled":
            leftover.cancelled(self.segment)

    def _stop(self, reason: str, grace_s: float) -> None:
        """Order every agent to stop; later orders can only shorten the time."""
        deadline = time.monotonic() + grace_s
        if self.deadline is not None and deadline >= self.deadline:
            return
        self.deadline = deadline
        self.order += 1
        print(f"trainmaster: stopping ({reason}), at most {grace_s:.0f} s", flush=True)
        if isinstance(self.started, RankEnd):
            return
        order = control.Order(self.order, reason, grace_s)
        self.started.tell(control.line(order))
        try:
            control.give(self.started.control_file, order)
        except (StorageError, OSError) as error:
            print(f"trainmaster: {error}", file=sys.stderr, flush=True)

    # -- nodes that end before the others ------------------------------------------------------

    def _peers(self, nodes: steps.Steps) -> None:
        if self.deadline is not None or len(nodes.nodes) == 1:
            return
        failed = any(end.failed for r in nodes.reports.values() for end in r.ends)
        if not failed and (nodes.vanished() or nodes.trouble):
            # A report may still be on its way through the file system.
            self.trouble_at = self.trouble_at or time.monotonic()
            failed = time.monotonic() - self.trouble_at > 2.0
        if failed:
            config = self.segment.config
            grace = PEER_GRACE_COMMAND_S if config.is_command else PEER_GRACE_S
            self._stop("a node failed", min(config.launch.grace_s, grace))

    def _startup(self, nodes: steps.Steps) -> None:
        """An srun that never gets its tasks running must not burn the allocation."""
        launch = self.segment.config.launch
        limit = max(5 * launch.startup_s, 300.0)
        if self.deadline is not None or launch.container or time.monotonic() - self.began < limit:
            return
        if not any(map(nodes.up, nodes.nodes)):
            self.startup_failed = True
            self._stop("no agent started", 1.0)

    # -- afterwards ----------------------------------------------------------------------------

    def _last_reports(self, nodes: steps.Steps) -> None:
        """Reports of other nodes may take a moment to be seen here."""
        until = time.monotonic() + (0.0 if nodes.local else 3.0)
        nodes.look()
        while len(nodes.reports) < len(nodes.nodes) and time.monotonic() < until:
            if not nodes.local and not any(map(nodes.up, nodes.nodes)):
                break
            time.sleep(0.2)
            nodes.look()

    def _ends(self, nodes: steps.Steps) -> list[RankEnd]:
        ends = [end for r in nodes.reports.values() for end in r.ends]
        silent = [node for node in nodes.nodes if node not in nodes.reports]
        if not silent:
            return ends
        now = time.time()
        if not any(map(nodes.up, nodes.nodes)):
            code = exitcodes.from_returncode(nodes.code_of(silent[0])) or 1
            why = nodes.trouble[-1] if nodes.trouble else f"no agent started; the launch ended with {code}"
            drained = self.segment.drain_reason is not None
            return [*ends, RankEnd(None, 1, now, why, "" if drained else "launch_failed")]
        if ends:
            self.segment.notes.append(f"no word from {', '.join(silent[:8])}")
        for node in silent:
            code = exitcodes.from_returncode(nodes.code_of(node))
            named = node in nodes.lost_nodes or (nodes.lost_nodes and len(silent) == 1)
            why = f"node {node} was lost" if named else f"the agent on {node} vanished"
            ends.append(
                RankEnd(
                    None,
                    code if code not in (exitcodes.COMPLETE, exitcodes.PROGRESS_MADE) else 1,
                    now,
                    why,
                    # Slurm's own word for it; a vanished process alone proves nothing about its node.
                    "node_down" if named else "",
                    killed=self.deadline is not None and not named,
                    node=node,
                )
            )
        return ends
