"""Submitting a link exactly once, and settling what is not known about one.

Call only under the run's lock. Order of the durable steps: intent (fsync) → script → scheduler →
outcome. Whatever step a crash hits, the next command finds the intent and looks its token up before
anything is tried again. ``tests/chaos/test_crash_points.py`` kills every step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from resiliency import contract, durable
from resiliency.crashpoint import point
from resiliency.errors import (
    SchedulerUnreachable,
    SubmissionDeferred,
    SubmissionRejected,
    SubmissionUncertain,
)
from resiliency.events import Event
from resiliency.jobstate import Observation
from resiliency.journal import JournalWriter
from resiliency.state import RunState, Submission

from .advance import SubmitLink
from .schedulers.base import JobSpec, Scheduler


@dataclass(frozen=True)
class Outcome:
    """``word``: accepted, rejected, deferred, uncertain or unreachable."""

    token: str
    word: str
    job_id: str | None = None
    reason: str = ""


def submit_links(
    acts: Sequence[SubmitLink],
    jobs: Mapping[str, JobSpec],
    state: RunState,
    *,
    paths: contract.RunPaths,
    scheduler: Scheduler,
    journal: JournalWriter,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Submit links in order; ``jobs`` by token. Stops at the first that is not accepted, since the
    next ones queue behind it; their intents are then taken back (no job was asked for).

    All intents of the batch become durable with one fsync before the first job is asked for.
    """
    if not acts:
        return []
    run = state.run
    scripts: dict[str, str] = {}
    intents = []
    for act in acts:
        token = act.token(run)
        scripts[token] = scheduler.render(jobs[token])
        digest = hashlib.sha256(scripts[token].encode()).hexdigest()
        intents.append(
            (
                "submission.intent",
                {
                    "token": token,
                    "stage": act.stage,
                    "link": act.link,
                    "cluster": scheduler.cluster,
                    "epoch": act.epoch,
                    "script_sha256": digest,
                    **({"exclude": list(jobs[token].exclude)} if jobs[token].exclude else {}),
                },
                {"stage": act.stage},
            )
        )
    for token, text in scripts.items():
        # Before the intent: a script without an intent is harmless, an intent without one is not.
        durable.write_plain(paths.script(token), text)
    point("submit.before_intent")
    journal.append_many(intents, sync=True)
    point("submit.after_intent")

    job_ids = {s.token: s.job_id for stage in state.stages.values() for s in stage.links()}
    outcomes: list[Outcome] = []
    for number, act in enumerate(acts):
        token = act.token(run)
        after = [job_ids[t] for t in act.after if job_ids.get(t)]
        outcome = _submit_one(token, jobs[token], paths, scheduler, [j for j in after if j])
        point("submit.before_outcome")
        if outcome.word == "accepted":
            job_ids[token] = outcome.job_id
            journal.append(
                "submission.accepted",
                {"token": token, "job_id": outcome.job_id, "via": "submit"},
                stage=act.stage,
            )
        elif outcome.word == "rejected":
            journal.append(
                "submission.rejected",
                {"token": token, "reason": outcome.reason},
                stage=act.stage,
                sync=True,
            )
        elif outcome.word == "uncertain":
            journal.append(
                "submission.uncertain",
                {"token": token, "reason": outcome.reason},
                stage=act.stage,
                sync=True,
            )
        point("submit.after_outcome")
        outcomes.append(outcome)
        on_outcome(outcome)
        if outcome.word != "accepted":
            unsent = list(acts[number + 1 :])
            if outcome.word in ("deferred", "unreachable"):
                unsent.insert(0, act)
            journal.append_many(
                [
                    (
                        "submission.absent",
                        {"token": a.token(run), "reason": "not sent"},
                        {"stage": a.stage},
                    )
                    for a in unsent
                ],
                sync=True,
            ) if unsent else None
            break
    journal.sync()
    return outcomes


def _submit_one(
    token: str,
    job: JobSpec,
    paths: contract.RunPaths,
    scheduler: Scheduler,
    after: Sequence[str],
) -> Outcome:
    try:
        job_id = scheduler.submit(job, paths.script(token), after=after)
    except SubmissionRejected as error:
        return Outcome(token, "rejected", reason=str(error))
    except SubmissionDeferred as error:
        return Outcome(token, "deferred", reason=error.message)
    except SubmissionUncertain as error:
        return Outcome(token, "uncertain", reason=error.message)
    except SchedulerUnreachable as error:
        return Outcome(token, "unreachable", reason=error.message)
    return Outcome(token, "accepted", job_id)


def unsettled(state: RunState) -> list[Submission]:
    """Links of which it is not known whether a job exists."""
    return [
        link
        for stage in state.stages.values()
        for link in stage.links()
        if link.outcome in ("intent", "uncertain")
    ]


def settle(
    state: RunState,
    seen: Observation,
    *,
    observed_at: float,
    asked: frozenset[str],
    settle_s: float,
    journal: JournalWriter,
) -> list[Event]:
    """Settle unsettled links from a look at the scheduler that began at ``observed_at`` (Unix seconds).

    ``asked``: tokens the look was about. A job found is accepted. Not found is believed only when the
    queue answered, ``settle_s`` after the intent, and ``settle_s`` after an earlier look that found nothing
    either: a request may still wait in a frozen controller's backlog.
    """
    written: list[Event] = []
    for link in unsettled(state):
        if link.token not in asked:
            continue
        found = list(seen.tokens.get(link.token, ()))
        fields = {"stage": link.stage}
        if found:
            for job_id in found:
                written.append(
                    journal.append(
                        "submission.accepted",
                        {"token": link.token, "job_id": job_id, "via": "lookup"},
                        sync=True,
                        **fields,
                    )
                )
            continue
        if not seen.queue_answered or observed_at < max(link.intents, default=0.0):
            continue
        first = link.first_negative
        newest = max(link.intents, default=0.0)
        if settle_s <= 0 or (
            first is not None and observed_at - first >= settle_s and observed_at - newest >= settle_s
        ):
            written.append(
                journal.append(
                    "submission.absent",
                    {"token": link.token, "reason": "looked up and not found", "looked_up": True},
                    sync=True,
                    **fields,
                )
            )
        elif first is None:
            written.append(
                journal.append(
                    "submission.uncertain",
                    {
                        "token": link.token,
                        "reason": "no answer recorded; looked up once, not found yet",
                        "looked_up": True,
                    },
                    sync=True,
                    **fields,
                )
            )
    return written
