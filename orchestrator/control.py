"""Reconcile: observe → settle → ingest → decide → act. Idempotent, one writer per run at a time.

Any command may call it; ``orchestrator tick`` does only this. The scheduler is looked at once per cluster
for all runs together, then each run is brought forward under its own lock. Nothing is concluded from
a look that got no answer. ``tests/orchestrator/test_control.py``; crash safety in ``tests/chaos/``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from resiliency import artifact, durable
from resiliency.edges import Clock, SystemClock
from resiliency.errors import LockBusy, SchedulerError, TrainmasterError
from resiliency.jobstate import Observation
from resiliency.journal import JournalWriter, files, login_writer, read_control
from resiliency.state import RunState, fold

from . import advance as adv
from . import observing, submission
from .home import Home
from .runs import Run
from .schedulers.base import Scheduler


@dataclass
class RunReport:
    """What one reconcile did to one run."""

    run_id: str
    outcomes: list[submission.Outcome] = field(default_factory=list)
    acts: list[adv.Act] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    state: RunState | None = None

    @property
    def finished(self) -> bool:
        return self.state is not None and self.state.finished


@dataclass
class Report:
    """What one reconcile did."""

    runs: list[RunReport] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


def reconcile(
    home: Home,
    runs: Sequence[Run],
    *,
    scheduler_for: Callable[[Run], Scheduler],
    act: bool = True,
    clock: Clock | None = None,
    lock_wait_s: float = 30.0,
    on_outcome: Callable[[submission.Outcome], None] = lambda outcome: None,
    ledger: bool = True,
) -> Report:
    """Bring ``runs`` forward. ``act=False`` observes and records only; ``ledger=False`` leaves the index.

    A run whose lock is held by a live process is skipped with a note: that process is doing this.
    """
    clock = clock or SystemClock()
    started = time.monotonic()
    report = Report()
    groups: dict[tuple[str, str], tuple[Scheduler, list[Run]]] = {}
    for run in runs:
        scheduler = scheduler_for(run)
        groups.setdefault((scheduler.kind, scheduler.cluster), (scheduler, []))[1].append(run)
    for scheduler, members in groups.values():
        looks = {run.id: View.of(run) for run in members}
        wanted = {run.id: _wanted(looks[run.id].state) for run in members}
        states = [look.state for look in looks.values()]
        seen, began = _observe(scheduler, states, wanted.values(), clock)
        report.problems += seen.problems
        room = _Room.of(members, looks)
        for run in members:
            try:
                with durable.locked(run.paths.lock, wait_s=lock_wait_s, what=f"run {run.id}"):
                    report.runs.append(
                        _advance_run(
                            run,
                            looks[run.id],
                            scheduler,
                            seen,
                            began,
                            wanted[run.id],
                            room,
                            act=act,
                            clock=clock,
                            on_outcome=on_outcome,
                        )
                    )
            except LockBusy as error:
                report.runs.append(RunReport(run.id, notes=[error.message], state=looks[run.id].state))
            except TrainmasterError as error:
                report.problems.append(f"{run.id}: {error}")
    if ledger:
        report.problems += index(home, runs)
    report.seconds = time.monotonic() - started
    return report


def read_state(run: Run) -> RunState:
    """Fold a run's journal (of progress only the latest word)."""
    return View.of(run).state


@dataclass(frozen=True)
class View:
    """A run's folded state, and how far the journal had been written when it was read."""

    state: RunState
    decided: dict[str, str]  # attempt -> rule of its journaled decision
    extent: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, run: Run) -> View:
        extent = _extent(run)  # before reading: what comes later is seen as new
        events, _ = read_control(run.paths.journal)
        state = fold(events)
        state.run = run.id
        for stage in run.plan.stages:
            folded = state.stage(stage.name)
            folded.kind, folded.needs = stage.kind, tuple(stage.needs)
        decided = {e.attempt: str(e.data.get("rule")) for e in events if e.type == "decision" and e.attempt}
        return cls(state, decided, extent)

    def fresh(self, run: Run) -> View:
        """This view, or a new one if the journal has grown since."""
        return self if _extent(run) == self.extent else View.of(run)


def _extent(run: Run) -> tuple[tuple[str, int], ...]:
    return tuple((path.name, path.stat().st_size) for path in files(run.paths.journal))


@dataclass(frozen=True)
class _Wanted:
    job_ids: frozenset[str]
    tokens: frozenset[str]


def _wanted(state: RunState) -> _Wanted:
    """Jobs whose next word matters, and tokens that are not settled."""
    ids: set[str] = set()
    for stage in state.stages.values():
        for link in stage.links():
            for job_id in link.job_ids:
                attempts = [a for a in stage.attempts_of(link.token) if a.job_id == job_id]
                # An attempt that ended by its own word still lacks the scheduler's: times, state.
                if not attempts or not (
                    attempts[-1].gone or (attempts[-1].record and attempts[-1].record.ended)
                ):
                    ids.add(job_id)
    return _Wanted(frozenset(ids), frozenset(s.token for s in submission.unsettled(state)))


def expects(state: RunState) -> bool:
    """Whether the scheduler still owes a word about a job or a token of this run."""
    wanted = _wanted(state)
    return bool(wanted.job_ids or wanted.tokens)


@dataclass
class _Room:
    """How many more of our jobs a site's ``max_queued_jobs`` lets into the queue, over the runs at hand."""

    free: dict[str, int]  # profile key -> jobs

    @classmethod
    def of(cls, members: Sequence[Run], looks: Mapping[str, View]) -> _Room:
        free: dict[str, int] = {}
        for run in members:
            most = run.plan.profile.max_queued_jobs
            if most is not None:
                key = run.record.profile_key
                live = sum(len(stage.live_links()) for stage in looks[run.id].state.stages.values())
                free[key] = free.get(key, most) - live
        return cls(free)

    def limit(self, acts: Sequence[adv.Act], run: Run, notes: list[str]) -> list[adv.Act]:
        """``acts`` without the links there is no room for; says so once."""
        key = run.record.profile_key
        if key not in self.free:
            return list(acts)
        kept: list[adv.Act] = []
        left_out = 0
        for one in acts:
            if isinstance(one, adv.SubmitLink):
                if self.free[key] <= 0:
                    left_out += 1
                    continue
                self.free[key] -= 1
            kept.append(one)
        if left_out:
            most = run.plan.profile.max_queued_jobs
            notes.append(
                f"waiting for room in the queue: {left_out} link(s) more than max_queued_jobs = {most}"
            )
        return kept


def _observe(
    scheduler: Scheduler, states: Iterable[RunState], wanted: Iterable[_Wanted], clock: Clock
) -> tuple[Observation, float]:
    ids = frozenset().union(*(w.job_ids for w in wanted)) if (wanted := list(wanted)) else frozenset()
    tokens = frozenset().union(*(w.tokens for w in wanted)) if wanted else frozenset()
    began = clock.wall()
    if not ids and not tokens:
        return Observation(), began
    since = min((s.created_ts for s in states if s.created_ts), default=None)
    return scheduler.observe(ids, tokens=tokens, since=since), began


def _advance_run(
    run: Run,
    view: View,
    scheduler: Scheduler,
    seen: Observation,
    began: float,
    wanted: _Wanted,
    room: _Room,
    *,
    act: bool,
    clock: Clock,
    on_outcome: Callable[[submission.Outcome], None],
) -> RunReport:
    report = RunReport(run.id)
    with JournalWriter(run.paths.journal, run=run.id, writer=login_writer(), clock=clock) as journal:
        view = view.fresh(run)
        if view.state.created is None:
            journal.append("run.created", run.created_event(), sync=True)
        observing.record_changes(view.state, scheduler, seen, began, wanted.job_ids, journal)
        submission.settle(
            view.state,
            seen,
            observed_at=began,
            asked=wanted.tokens,
            settle_s=run.plan.settle_s,
            journal=journal,
        )
        view = view.fresh(run)
        if act:
            # Twice: completing or stopping a stage in the first round can start or end others.
            for _ in range(2):
                acts = adv.advance(
                    view.state,
                    run.plan.stages,
                    artifact_ok=lambda name: artifact_ok(run, name),
                    decided=view.decided,
                )
                acts = room.limit(acts, run, report.notes)
                if not acts:
                    break
                report.acts += acts
                outcomes = carry_out(run, acts, view.state, scheduler, journal, report.notes, on_outcome)
                report.outcomes += outcomes
                view = view.fresh(run)
                if any(outcome.word != "accepted" for outcome in outcomes):
                    break
        report.state = view.state
    return report


def artifact_ok(run: Run, stage: str) -> bool:
    """Whether a stage's artifact verifies (sizes; checksums are for the stage that reads it)."""
    directory = run.paths.artifact(stage)
    return (directory / artifact.MANIFEST).exists() and artifact.verifies(
        directory, kind=run.plan.artifact_kind(stage), deep=False
    )


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
            decision = one.decision
            journal.append(
                "decision",
                {
                    "action": decision.action.value,
                    "rule": decision.rule,
                    "reason": decision.reason,
                    "category": decision.category,
                },
                stage=one.stage,
                attempt=one.attempt,
            )
    if cancels:
        journal.sync()
        try:
            scheduler.cancel(cancels)
        except SchedulerError as error:
            notes.append(f"could not cancel {len(cancels)} queued job(s) yet: {error.message}")
    jobs = {a.token(run.id): run.plan.job(a.stage, a.link) for a in submits}
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


def index(home: Home, runs: Sequence[Run]) -> list[str]:
    """Bring the ledger up to date with the journals. A ledger that cannot be written loses nothing:
    the journals hold it, and the answer says so."""
    from metrics.ledger import Ledger

    if not runs:
        return []
    try:
        with Ledger.open(home.ledger) as ledger:
            problems = []
            for run in runs:
                problems += ledger.ingest_run(run.paths.root).problems
            return [str(problem) for problem in problems]
    except TrainmasterError as error:
        return [f"ledger not updated (nothing is lost, the journals hold it): {error}"]
