"""Backends behind one Protocol (``base.Scheduler``); this file only chooses one.

A backend is imported when it is opened: a run on the local scheduler loads nothing of Slurm's, and
the other way round. ``tests/orchestrator/test_schedulers.py`` runs one suite over both.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from resiliency.errors import SpecError

if TYPE_CHECKING:
    from orchestrator.clusters import Profile
    from resiliency.edges import Clock, Runner

    from .base import Scheduler


def open_scheduler(
    profile: Profile,
    *,
    home: Path,
    runner: Runner | None = None,
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
) -> Scheduler:
    """The scheduler of a cluster profile. ``home``: TRAINMASTER_HOME, where the local one lives.

    Contacts nothing. Raises SpecError for an unknown ``scheduler``.
    """
    if profile.scheduler == "slurm":
        from .slurm import SlurmScheduler

        return SlurmScheduler(
            name=profile.cluster_name,
            cluster=profile.cluster,
            runner=runner,
            clock=clock,
            environ=environ,
            template_dir=Path(profile.templates).expanduser() if profile.templates else None,
            pass_env=profile.pass_env,
        )
    if profile.scheduler == "local":
        from .local.backend import LocalScheduler

        return LocalScheduler(
            home,
            cluster=profile.cluster_name,
            max_running=profile.max_running,
            cpus=profile.cpus_per_node,
            clock=clock,
            environ=environ,
            pass_env=profile.pass_env,
        )
    raise SpecError(
        f"the profile {profile.name} names the scheduler {profile.scheduler!r}",
        hint="it is slurm or local",
    )
