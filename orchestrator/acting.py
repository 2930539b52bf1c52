"""Carrying out what ``advance`` says: each act is journaled before its effect, or around it.

Called by ``control`` under the run's lock. ``tests/chaos/test_crash_points.py`` kills every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from resiliency.errors import SchedulerError
from resiliency.journal import JournalWriter
from resiliency.state import RunState

from . import advance as adv
from . import submission
from .runs import Run
from .schedulers.base import JobSpec, Scheduler


def carry_out(
    run: Run,
    acts: Sequence[adv.Act],
    state: RunState,
    scheduler: Scheduler,
    journal: JournalWriter,
    notes: list[str],
    on_outcome: Callable[[submission.Outcome], None] = lambda outcome: None,
) -> list[submission.Outcome]:
    """Do the acts, each journaled before (stops, cancels) or around (submissions) its effect."""
    cancels: list[str] = []
    submits: list[adv.SubmitLink] = []
    for one in acts:
        if isinstance(one, adv.SubmitLink):
            submits.append(one)
        elif isinstance(one, adv.CancelLink):
            stage = one.token.split(".")[1]
            known = state.stage(stage).submissions[one.token].cancelled
            for job_id in one.job_ids:
                # Asked again until the scheduler says that it is over, told once.
                if not known:
                    data = {"token": one.token, "job_id": job_id, "reason": one.reason}
                    journal.append("link.cancelled", data, stage=stage)
                cancels.append(job_id)
        elif isinstance(one, adv.ExcludeNodes):
            _exclude(one, scheduler, journal, notes)
        elif isinstance(one, adv.ReleaseJob):
            _release(one, scheduler, journal, notes)
        elif isinstance(one, adv.CompleteStage):
            journal.append(
                "stage.completed",
                {"epoch": one.epoch, "artifact": str(run.paths.artifact(one.stage))},
                stage=one.stage,
                sync=True,
            )
        elif isinstance(one, adv.StopStage):  # and HoldStage
            word = "stage.held" if isinstance(one, adv.HoldStage) else "stage.stopped"
            facts = {
                "epoch": one.epoch,
                "rule": one.rule,
                "reason": one.reason,
                "category": one.category,
            }
            journal.append(word, facts, stage=one.stage, sync=True)
        else:
            journal.append("decision", one.decision.as_data(), stage=one.stage, attempt=one.attempt)
    if cancels:
        journal.sync()
        try:
            scheduler.cancel(cancels)
        except SchedulerError as error:
            notes.append(f"could not cancel {len(cancels)} queued job(s) yet: {error.message}")
    jobs = {a.token(run.id): _job(run, a) for a in submits}
    outcomes = submission.submit_links(
        submits,
        jobs,
        state,
        paths=run.paths,
        scheduler=scheduler,
        journal=journal,
        on_outcome=on_outcome,
    )
    for outcome in outcomes:
        if outcome.word == "deferred":
            notes.append(f"waiting for room in the queue: {outcome.reason}")
        elif outcome.word != "accepted":
            notes.append(f"{outcome.token}: {outcome.word}: {outcome.reason}")
    return outcomes


def _job(run: Run, link: adv.SubmitLink) -> JobSpec:
    job = run.plan.job(link.stage, link.link)
    return job if link.exclude is None else replace(job, exclude=link.exclude)


def _exclude(one: adv.ExcludeNodes, scheduler: Scheduler, journal: JournalWriter, notes: list[str]) -> None:
    for job_id in one.job_ids:
        try:
            scheduler.exclude(job_id, one.nodes)
        except SchedulerError as error:
            off = ", ".join(one.nodes) or "nothing"
            notes.append(
                f"job {job_id} could not be told to keep off {off} (it may have started): {error.message}"
            )
            continue
        data = {"token": one.token, "job_id": job_id, "nodes": list(one.nodes), "reason": "excluded nodes"}
        journal.append("link.excluding", data, stage=one.stage)


def _release(one: adv.ReleaseJob, scheduler: Scheduler, journal: JournalWriter, notes: list[str]) -> None:
    try:
        scheduler.release(one.job_id)
    except SchedulerError as error:
        notes.append(f"job {one.job_id} is held ({one.reason}) and cannot be released: {error.message}")
        return
    journal.append(
        "job.released",
        {"token": one.token, "job_id": one.job_id, "reason": one.reason},
        stage=one.stage,
        attempt=one.attempt,
    )
