"""Making a run of a prepared experiment, or finding the one an interrupted submit already made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from resiliency import durable
from resiliency.errors import TrainmasterError

from . import control, runs, submission
from .prepare import Ready
from .session import Session


@dataclass
class Submitted:
    """``existing``: the run was there already (same experiment, not finished)."""

    run: runs.Run
    report: control.Report
    existing: bool = False

    @property
    def worst(self) -> str:
        """The worst outcome of the first links: accepted, deferred, unreachable, uncertain or rejected."""
        order = ["accepted", "deferred", "unreachable", "uncertain", "rejected"]
        words = [o.word for r in self.report.runs for o in r.outcomes]
        return max(words, key=order.index, default="accepted")


def submit(
    session: Session,
    ready: Ready,
    *,
    new: bool = False,
    on_outcome: Callable[[submission.Outcome], None] = lambda outcome: None,
) -> Submitted:
    """Submit, exactly once: the same experiment that is under way already is brought forward instead,
    unless ``new`` asks for another run of it. Two submits at once make one run.

    Raises StorageError, LockBusy, SchedulerError.
    """
    ready.raise_faults()
    session.home.ensure()
    with durable.locked(session.home.submit_lock, wait_s=60.0, what="the list of runs"):
        found = None if new else _under_way(session, ready)
        run = found or runs.create_run(
            session.home, ready.record, ready.loaded.text, runs_root=ready.runs_root
        )
    report = session.reconcile([run], on_outcome=on_outcome)
    return Submitted(run, report, existing=found is not None)


def _under_way(session: Session, ready: Ready) -> runs.Run | None:
    for run in runs.same_experiment(session.home, ready.record):
        try:
            if not control.read_state(run).finished:
                return run
        except TrainmasterError:
            continue
    return None
