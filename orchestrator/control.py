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
from resiliency.contract import HOME_JOURNAL
from resiliency.edges import Clock, SystemClock
from resiliency.errors import LockBusy, TrainmasterError
from resiliency.jobstate import Observation
from resiliency.journal import JournalWriter, files, login_writer, read_control
from resiliency.state import RunState, fold

from . import acting, nodes, observing, submission
from . import advance as adv
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
        watch = nodes.Watch(home, clock=clock, ledger=ledger)
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
                            watch,
                            act=act,
                            clock=clock,
                            on_outcome=on_outcome,
                        )
                    )
            except LockBusy as error:
                report.runs.append(RunReport(run.id, notes=[error.message], state=looks[run.id].state))
            except TrainmasterError as error:
                report.problems.append(f"{run.id}: {error}")
        report.problems += watch.problems
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
    watch: nodes.Watch,
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
                kept = watch.keep_off(run, view.state, scheduler)
                for stage, order in kept.orders:
                    journal.append("node.excluded", order.as_data(), stage=stage, sync=True)
                acts = adv.advance(
                    view.state,
                    run.plan.stages,
                    artifact_ok=lambda name: artifact_ok(run, name),
                    decided=view.decided,
                    keep_off=kept.nodes,
                )
                acts = room.limit(acts, run, report.notes)
                for one in {a.stage for a in acts if isinstance(a, (adv.SubmitLink, adv.ExcludeNodes))}:
                    report.notes += [text for text in kept.notes.get(one, ()) if text not in report.notes]
                if not acts:
                    break
                report.acts += acts
                notes, state = report.notes, view.state
                outcomes = acting.carry_out(run, acts, state, scheduler, journal, notes, on_outcome)
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


def index(home: Home, runs: Sequence[Run]) -> list[str]:
    """Bring the ledger up to date with the journals. A ledger that cannot be written loses nothing:
    the journals hold it, and the answer says so."""
    from metrics.ledger import Ledger

    if not runs and not (home.root / HOME_JOURNAL).exists():
        return []
    try:
        with Ledger.open(home.ledger) as ledger:
            problems = []
            for run in runs:
                problems += ledger.ingest_run(run.paths.root).problems
            problems += ledger.ingest_home(home.root).problems
            return [str(problem) for problem in problems]
    except TrainmasterError as error:
        return [f"ledger not updated (nothing is lost, the journals hold it): {error}"]
