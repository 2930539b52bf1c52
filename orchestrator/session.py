"""What most verbs start with: the home, the runs, a scheduler per cluster, and a reconcile over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from resiliency.edges import Clock, SystemClock
from resiliency.errors import NotFound, TrainmasterError

from . import control, runs, submission
from .home import Home
from .schedulers.base import Scheduler


class Session:
    """One command's view of a home."""

    def __init__(self, home: Home, *, clock: Clock | None = None) -> None:
        self.home = home
        self.clock = clock or SystemClock()
        self._schedulers: dict[str, Scheduler] = {}

    def scheduler_for(self, run: runs.Run) -> Scheduler:
        """The scheduler of a run's frozen profile; one object per cluster and command."""
        from .schedulers import open_scheduler

        key = run.record.profile_key
        if key not in self._schedulers:
            self._schedulers[key] = open_scheduler(run.record.profile(), home=self.home.root)
        return self._schedulers[key]

    def find(self, text: str | None) -> runs.Run:
        """The run for an id, a prefix or a path; without one, the newest. Raises NotFound."""
        if text:
            return runs.open_run(self.home.find_run(text))
        newest = max(self.home.run_dirs(), key=_created, default=None)
        if newest is None:
            raise NotFound(
                f"no runs yet below {', '.join(map(str, self.home.run_roots()))}",
                hint="python -m orchestrator submit examples/quickstart.yaml",
            )
        return runs.open_run(newest)

    def active(self) -> list[runs.Run]:
        """Runs that are not finished."""
        return [runs.open_run(path) for path in self.home.active_run_dirs()]

    def reconcile(
        self,
        chosen: Sequence[runs.Run],
        *,
        act: bool = True,
        lock_wait_s: float = 30.0,
        on_outcome: Callable[[submission.Outcome], None] = lambda outcome: None,
    ) -> control.Report:
        """Bring runs forward; a run that cannot be opened becomes a problem, not an end."""
        usable, problems = [], []
        for run in chosen:
            try:
                self.scheduler_for(run)
                _ = run.plan
                usable.append(run)
            except TrainmasterError as error:
                problems.append(f"{run.id}: {error}")
        report = control.reconcile(
            self.home,
            usable,
            scheduler_for=self.scheduler_for,
            act=act,
            clock=self.clock,
            lock_wait_s=lock_wait_s,
            on_outcome=on_outcome,
        )
        report.problems = problems + report.problems
        for one in report.runs:
            if one.state is not None and one.finished and not control.expects(one.state):
                self.home.mark_finished(one.run_id)
        return report


def _created(path: Path) -> tuple[float, str]:
    try:
        return ((path / "run.json").stat().st_mtime, path.name)
    except OSError:
        return (0.0, path.name)
