"""Jobs that are not needed any more, and the facts that must be on disk before they are cancelled.

What fails here the control plane repeats: it is journaled before it is done.
``tests/launch/test_segment.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from resiliency.errors import StorageError, TrainmasterError
from resiliency.state import RunState, Stage, Submission

from .segment import Segment


def say(text: str) -> None:
    """A word in the job's log."""
    print(f"trainmaster: {text}", file=sys.stderr, flush=True)


# -- while it drains ---------------------------------------------------------------------------


def draining(segment: Segment, reason: str, signal_name: str) -> None:
    """The attempt was told to stop: journaled at once, since the allocation may be gone any moment."""
    segment.drain_reason = segment.drain_reason or reason
    segment.journal.append("drain.requested", {"reason": reason, "signal": signal_name}, sync=True)


def cancelled(segment: Segment) -> None:
    """A person ended this job: stop the stage now, or the next link would start before we are done."""
    try:
        state = segment.state()
    except StorageError as error:
        say(str(error))
        return
    stage = state.stage(segment.config.name)
    mine = stage.submissions.get(segment.token)
    if stage.terminal or (mine is not None and mine.cancelled):
        return  # it was not a person: we cancelled this link ourselves, and journaled it before
    reason = "cancelled by a person (scancel); not retried"
    data = {
        "epoch": stage.epoch,
        "category": "user_cancelled",
        "rule": "user-cancelled",
        "reason": reason,
    }
    segment.journal.append("stage.stopped", data, sync=True)
    cancel(segment, name(segment, state, f"the stage is stopped: {reason}", True))


# -- left-overs --------------------------------------------------------------------------------


def name(segment: Segment, state: RunState, reason: str, downstream: bool) -> list[str]:
    """Journal as ours, and return, the jobs that are not needed any more: this stage's other links and,
    if it will not go on, the queued links of the stages that need it."""
    mine = state.stage(segment.config.name)
    links = [link for link in mine.live_links() if link.token != segment.token]
    if downstream:
        for stage in state.stages.values():
            if stage is not mine and stage.completed is None and _needs(state, stage, mine.name):
                links += [link for link in stage.live_links() if not _running(stage, link)]
    jobs: list[str] = []
    for link in links:
        for job_id in link.job_ids:
            if job_id == segment.allocation.job_id:
                continue
            if not link.cancelled:
                segment.journal.append(
                    "link.cancelled",
                    {"token": link.token, "job_id": job_id, "reason": reason},
                    sync=True,
                    stage=link.stage,
                    attempt=None,
                )
            jobs.append(job_id)
    return jobs


def _needs(state: RunState, stage: Stage, name: str) -> bool:
    """Whether ``stage`` needs ``name``, directly or not."""
    waiting, seen = list(stage.needs), set()
    while waiting:
        need = waiting.pop()
        if need == name:
            return True
        if need not in seen:
            seen.add(need)
            waiting += state.stage(need).needs if need in state.stages else ()
    return False


def _running(stage: Stage, link: Submission) -> bool:
    attempts = stage.attempts_of(link.token)
    return bool(attempts) and attempts[-1].started is not None and not attempts[-1].ended


def cancel(segment: Segment, jobs: Sequence[str]) -> None:
    """Ask the scheduler once. What fails here the control plane repeats: it is journaled already."""
    if not jobs:
        return
    try:
        scheduler = segment.open_control()
        if scheduler is None:
            say(f"no scheduler here: {len(jobs)} queued job(s) are left to the next reconcile")
        else:
            scheduler.cancel(list(jobs))
    except TrainmasterError as error:
        say(f"could not cancel {len(jobs)} queued job(s), the next reconcile will: {error.message}")
