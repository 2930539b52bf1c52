"""What a person may ask of a run: cancel it, resume it. Facts first (journal), effects by reconcile."""

from __future__ import annotations

import getpass
from collections.abc import Sequence

from resiliency import durable
from resiliency.crashpoint import point
from resiliency.errors import NotFound
from resiliency.journal import JournalWriter, login_writer
from resiliency.state import RunState

from . import control
from .runs import Run
from .session import Session


def _chosen(state: RunState, run: Run, wanted: Sequence[str]) -> list[str]:
    names = [stage.name for stage in run.plan.stages]
    for name in wanted:
        if name not in names:
            raise NotFound(f"run {run.id} has no stage {name!r}", hint=f"one of: {', '.join(names)}")
    return list(wanted) or names


def _append(session: Session, run: Run, type_: str, stages: dict[str, int]) -> None:
    session.home.mark_active(run.paths.root)
    point(f"{type_}.before")
    with JournalWriter(run.paths.journal, run=run.id, writer=login_writer(), clock=session.clock) as journal:
        journal.append(type_, {"stages": stages, "by": getpass.getuser()}, sync=True)
    point(f"{type_}.after")


def cancel(session: Session, run: Run, wanted: Sequence[str]) -> list[str]:
    """Journal that a person stops these stages (all by default); returns those that were not over.

    Call ``session.reconcile`` next: it cancels the jobs. Raises NotFound, LockBusy, StorageError.
    """
    with durable.locked(run.paths.lock, what=f"run {run.id}"):
        state = control.read_state(run)
        stages = {
            name: state.stage(name).epoch
            for name in _chosen(state, run, wanted)
            if state.stage(name).completed is None
            and state.stage(name).epoch not in state.stage(name).cancels
        }
        if stages:
            _append(session, run, "run.cancelled", stages)
        return list(stages)


def resume(session: Session, run: Run, wanted: Sequence[str]) -> list[str]:
    """Start a new epoch for stopped, held or cancelled stages and for those stopped because of them.

    Returns the stages resumed. A run that merely waits for a reconcile resumes nothing and goes on.
    """
    with durable.locked(run.paths.lock, what=f"run {run.id}"):
        state = control.read_state(run)
        chosen = set(_chosen(state, run, wanted))
        if wanted:
            for stage in run.plan.stages:  # in an order in which needs come first
                if chosen & set(stage.needs):
                    chosen.add(stage.name)
        stages = {
            name: state.stage(name).epoch + 1
            for name in (s.name for s in run.plan.stages)
            if name in chosen
            and state.stage(name).completed is None
            and (state.stage(name).stopped or state.stage(name).held)
        }
        if stages:
            _append(session, run, "run.resumed", stages)
        else:
            session.home.mark_active(run.paths.root)
        return list(stages)
