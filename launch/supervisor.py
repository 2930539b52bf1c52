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
from pathlib import Path

from resiliency import contract, exitcodes
from resiliency.errors import TrainmasterError
from resiliency.state import RunState

from . import finish, steps
from .allocation import identify
from .channel import Hub
from .claim import claim
from .conductor import Conductor
from .config import read_stage_config
from .gate import Gate, decide_gate, input_faults, own_faults
from .journaling import SafeJournal, writer_id
from .outcome import RankEnd
from .segment import Segment
from .signals import Bell, OpenControl

#: Damage of a needed artifact is believed only after this long: a network file system may lag behind.
DAMAGE_S = (1.0, 5.0)
_TERMS = (signal.SIGTERM, signal.SIGINT)


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
    hub = Hub()
    ends = Conductor(segment, bell, hub, _start(segment, hub, environ)).run()
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


def _start(segment: Segment, hub: Hub, environ: Mapping[str, str]) -> steps.Steps | RankEnd:
    config = segment.config
    try:
        if config.is_command:
            for directory in (config.artifact_dir, config.checkpoint_dir):
                directory.mkdir(parents=True, exist_ok=True)
        return steps.start(
            config,
            segment.allocation,
            hub,
            run_dir=segment.paths.root,
            link=segment.link,
            environ=environ,
        )
    except (OSError, ValueError, TrainmasterError) as error:
        print(f"trainmaster: cannot start the agents: {error}", file=sys.stderr, flush=True)
        return RankEnd(None, 1, time.time(), f"cannot start the agents: {error}", "launch_failed")
