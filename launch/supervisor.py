"""The segment: one attempt of one link, from its claim to its exit code.

Runs on the batch host. Order of things: claim → attempt.started → gate → agents → last word
(:mod:`launch.finish`). Whatever happens is bounded in time and ends in a code of ``resiliency.exitcodes``.
``tests/launch/test_segment.py``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from resiliency import contract, exitcodes, journal
from resiliency.errors import StorageError, TrainmasterError
from resiliency.state import RunState, fold

from . import control, finish, steps
from .allocation import Allocation, identify
from .claim import claim
from .config import StageConfig, read_stage_config
from .gate import Gate, decide_gate, input_faults, own_faults
from .journaling import SafeJournal, writer_id
from .outcome import RankEnd
from .signals import Bell, Classifier, OpenControl

#: After a node has failed the others wait in a collective for ever: their time to end. A command's
#: processes may not know each other at all, so they get time to save.
PEER_GRACE_S = 5.0
PEER_GRACE_COMMAND_S = 15.0
#: What is left of the grace after a second TERM: the allocation is about to be taken away.
HURRY_S = 10.0
#: Agents kill in time; beyond this much more they are taken to be stuck.
BACKSTOP_S = 6.0
#: Damage of a needed artifact is believed only after this long: a network file system may lag behind.
DAMAGE_S = (1.0, 5.0)
_TICK_S = 0.25
_TERMS = (signal.SIGTERM, signal.SIGINT)


@dataclass
class Segment:
    """What the parts of one attempt share."""

    config: StageConfig
    paths: contract.RunPaths
    allocation: Allocation
    link: int
    journal: SafeJournal
    open_control: OpenControl
    epoch: int = 0
    drain_reason: str | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def token(self) -> str:
        return contract.token(self.config.run, self.config.name, self.link)

    @property
    def attempt(self) -> str:
        return self.allocation.attempt(self.config.cluster)

    def state(self) -> RunState:
        """The run as its journals tell it now. Raises StorageError."""
        events, _ = journal.read_control(self.paths.journal)
        state = fold(events)
        state.run = self.config.run
        return state


def run_segment(
    run_dir: Path,
    stage: str,
    link: int,
    *,
    open_control: OpenControl,
    environ: Mapping[str, str] | None = None,
) -> int:
    """One attempt; its exit code. ``open_control`` gives the scheduler, or None where there is none.

    Must run in the main thread. Raises TrainmasterError when it cannot even begin.
    """
    environ = os.environ if environ is None else environ
    # First of all: a signal that comes before this would end the job without a word.
    bell = Bell((*_TERMS, signal.SIGUSR2))
    paths = contract.RunPaths(run_dir)
    config = read_stage_config(paths.stage_config(stage))
    allocation = identify(config.scheduler, environ)
    attempt = allocation.attempt(config.cluster)
    segment = Segment(
        config,
        paths,
        allocation,
        link,
        SafeJournal(
            paths.journal,
            run=config.run,
            writer=writer_id(attempt, "supervisor"),
            defaults={"stage": stage, "attempt": attempt},
        ),
        open_control,
    )
    try:
        return _claimed(segment, bell, environ)
    finally:
        segment.journal.close()


def _claimed(segment: Segment, bell: Bell, environ: Mapping[str, str]) -> int:
    allocation, token = segment.allocation, segment.token
    owner = claim(segment.paths.claim(token), segment.config.cluster, allocation)
    if owner is not None:
        segment.journal.append(
            "duplicate.refused",
            {"token": token, "job_id": allocation.job_id, "owner": owner},
            sync=True,
        )
        print(f"trainmaster: {token} belongs to job {owner}; this duplicate ends", flush=True)
        return exitcodes.COMPLETE
    started = {
        "token": token,
        "link": segment.link,
        "job_id": allocation.job_id,
        "restart_count": allocation.restart_count,
        "nodes": allocation.nodelist,
        "host": os.uname().nodename,
        "time_limit_s": allocation.time_limit_s,
    }
    segment.journal.append("attempt.started", started, sync=True)
    state = segment.state()
    gate = _gate(segment, state)
    segment.journal.append("attempt.gate", {"verdict": gate.verdict, "detail": gate.detail}, sync=True)
    print(f"trainmaster: {segment.attempt} {token}: gate {gate.verdict} {gate.detail}", flush=True)
    if gate.verdict != "go":
        return finish.closed(segment, gate)
    ends = Watch(segment, bell, _start(segment, environ)).run()
    return finish.ended(segment, ends)


def _gate(segment: Segment, state: RunState) -> Gate:
    """Decide; damage only after a second look."""
    config = segment.config
    segment.epoch = state.stage(config.name).epoch
    for pause in (*DAMAGE_S, None):
        gate = decide_gate(state, config.name, input_faults(config), complete=not own_faults(config))
        if not gate.damaged or pause is None:
            return gate
        time.sleep(pause)
    raise AssertionError("the last pause is None")


def _start(segment: Segment, environ: Mapping[str, str]) -> steps.Steps | RankEnd:
    config = segment.config
    try:
        if config.is_command:
            for directory in (config.artifact_dir, config.checkpoint_dir):
                directory.mkdir(parents=True, exist_ok=True)
        return steps.start(
            config,
            segment.allocation,
            run_dir=segment.paths.root,
            link=segment.link,
            environ=environ,
        )
    except (OSError, ValueError, TrainmasterError) as error:
        print(f"trainmaster: cannot start the agents: {error}", file=sys.stderr, flush=True)
        return RankEnd(None, 1, time.time(), f"cannot start the agents: {error}", "launch_failed")


class Watch:
    """The time while the agents run: signals in, orders out, until every node has ended."""

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
                finish.draining(self.segment, "time_limit", "USR2")
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
            finish.draining(self.segment, reason, "TERM")
        if reason == "cancelled":
            finish.cancelled(self.segment)

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
