"""From a file and overrides to something that can be submitted, with every fault found on the way."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from resiliency.edges import SystemClock, SystemRunner
from resiliency.errors import SpecError

from . import __version__, runs
from .clusters import Profile, load_profiles, resolve_profile
from .home import Home
from .plan import RunPlan, RunRecord, check_against, make_record
from .schedulers import open_scheduler
from .schedulers.base import Scheduler
from .spec.load import LoadedExperiment, load_experiment


@dataclass
class Ready:
    """An experiment, checked. ``faults`` are texts; nothing may be submitted while there are any."""

    loaded: LoadedExperiment
    profile: Profile
    record: RunRecord
    scheduler: Scheduler
    runs_root: Path
    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @cached_property
    def plan(self) -> RunPlan:
        return self.record.plan(self.runs_root / self.record.run_id)

    def raise_faults(self) -> None:
        """Raises SpecError with every fault."""
        if self.faults:
            count = len(self.faults)
            raise SpecError(
                f"{self.loaded.path}: {count} fault{'s' if count > 1 else ''} against cluster "
                f"{self.plan.cluster}",
                hint="correct them, or see what the cluster offers: python -m orchestrator doctor",
                faults=tuple(self.faults),
            )


def prepare(
    home: Home,
    path: Path,
    overrides: Sequence[str],
    *,
    cluster: str | None = None,
    ask: bool = True,
    shadow: bool = False,
) -> Ready:
    """Load, check, and plan an experiment. Raises SpecError with the faults of the file itself.

    ``ask``: also ask the scheduler for its limits; what does not answer becomes a warning. ``shadow``: sets
    ``recovery.shadow`` of every stage.
    """
    runner, now = SystemRunner(), SystemClock().wall()
    profiles = load_profiles(home.root)
    loaded = load_experiment(path, overrides, profiles=profiles, cluster=cluster, runner=runner)
    if shadow:
        more = [f"stages.{name}.recovery.shadow=true" for name in loaded.resolved["stages"]]
        loaded = load_experiment(path, [*overrides, *more], profiles=profiles, cluster=cluster, runner=runner)
    profile = loaded.profile or resolve_profile(cluster or loaded.experiment.cluster, profiles, runner)
    record = make_record(
        loaded,
        profile,
        run_id=runs.new_run_id(loaded.experiment.name, now),
        created=now,
        version=__version__,
        python=sys.executable,
        home=home.root,
    )
    runs_root = Path(profile.runs_dir).expanduser() if profile.runs_dir else home.default_runs
    ready = Ready(loaded, profile, record, open_scheduler(profile, home=home.root), runs_root)
    ready.faults += missing_environment(ready.plan)
    ready.warnings += unreachable_for_group(record, runs_root)
    if ask:
        facts: dict[str, Any] = dict(ready.scheduler.facts())
        ready.faults += check_against(facts, ready.plan)
        ready.warnings += [f"{ready.plan.cluster}: {problem}" for problem in facts.get("problems", ())]
    return ready


def missing_environment(plan: RunPlan) -> list[str]:
    """Variables that a stage names in ``env_from`` and this environment does not have. A site's
    ``pass_env`` is what to pass where it is set."""
    faults = []
    for stage in plan.stages:
        for name in stage.spec["env_from"]:
            if name not in os.environ:
                faults.append(
                    f"stage {stage.name}: env_from names {name}, which is not set here; "
                    "export it and try again"
                )
    return faults


def unreachable_for_group(record: RunRecord, runs_root: Path) -> list[str]:
    """Whether a directory above the run keeps the experiment's ``group`` out."""
    if record.group is None:
        return []
    for directory in [runs_root, *runs_root.parents]:
        if directory.exists() and not directory.stat().st_mode & 0o011:
            return [
                f"group {record.group} cannot enter {directory}: set runs_dir in clusters.yaml to a "
                "directory it can enter, or change the mode"
            ]
    return []
