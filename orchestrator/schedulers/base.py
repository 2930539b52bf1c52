"""What a scheduler backend must do; nothing outside ``orchestrator.schedulers`` knows sbatch's syntax.

``tests/orchestrator/test_schedulers.py`` runs one suite over every backend.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from resiliency.jobstate import Observation


@dataclass(frozen=True)
class Container:
    """A container to run roles in. ``runtime``: ``pyxis`` or ``apptainer``; mounts are ``src:dst[:ro]``."""

    runtime: str
    image: str
    mounts: tuple[str, ...] = ()
    extra_args: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobSpec:
    """One link, ready to be rendered. None or empty: leave it to the site's default.

    ``argv`` replaces the batch shell (``exec``), so it receives the batch shell's signals.
    ``env`` holds literal values, never secrets; ``env_from`` names variables of the submitting
    environment that the job gets without their values being written anywhere.
    """

    token: str
    argv: tuple[str, ...]
    chdir: Path
    output: Path
    nodes: int = 1
    time_limit_s: int | None = None
    signal_lead_s: int | None = None
    cpus_per_node: int | None = None
    gpus_per_node: int = 0
    mem_per_node: str | None = None  # Slurm's spelling, e.g. 64G
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    exclude: tuple[str, ...] = ()
    nodelist: tuple[str, ...] = ()
    exclusive: bool = False
    no_kill: bool = False  # the job outlives a lost node
    requeue: bool = False
    modules: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()  # shell lines of the site's profile (the site's, never the experiment's)
    env: Mapping[str, str] = field(default_factory=dict)
    env_from: tuple[str, ...] = ()
    extra_directives: tuple[str, ...] = ()  # whole options such as --licenses=x, from the site's profile
    container: Container | None = None  # applied by the launcher to roles, shown in the script's header
    about: str = ""  # one line for a person, in the script's header


class Scheduler(Protocol):
    """A backend bound to one cluster. Times are Unix seconds; job ids are strings."""

    kind: str  # slurm or local
    cluster: str  # name used in attempt ids, the ledger and -M

    def render(self, job: JobSpec) -> str:
        """The script of a job, as text for a person and for :meth:`submit`. Pure."""
        ...

    def submit(self, job: JobSpec, script: Path, *, after: Sequence[str] = (), held: bool = False) -> str:
        """Queue the job after (``afterany``) the given job ids and return its id.

        Raises SubmissionRejected (no job exists), SubmissionDeferred (a limit on queued jobs; no job
        exists), SubmissionUncertain (a job may exist) or SchedulerUnreachable (nothing was sent).
        """
        ...

    def observe(
        self, job_ids: Collection[str], *, tokens: Collection[str] = (), since: float | None = None
    ) -> Observation:
        """One batched look: the number of scheduler calls does not grow with the number of jobs.

        ``tokens`` are looked up among jobs of any state submitted after ``since``. Never raises for
        an unreachable scheduler: the Observation says what did not answer. ``cancelled_by`` is set as
        soon as it is known, while the job is still ending: its supervisor asks why it got a TERM.
        """
        ...

    def cancel(self, job_ids: Collection[str]) -> None:
        """Cancel; unknown or ended ids are no error. Raises SchedulerUnreachable."""
        ...

    def release(self, job_id: str) -> None:
        """Release a held job. Raises SchedulerError when refused."""
        ...

    def exclude(self, job_id: str, nodes: Sequence[str]) -> None:
        """Keep a pending job off nodes. Raises SchedulerError when refused."""
        ...

    def unchain(self, job_id: str) -> None:
        """Let a pending job wait for no other. Raises SchedulerError when refused."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """What this cluster is and can do, for ``doctor`` and ``validate``.

        Keys (absent: could not be found out): ``version``, ``reachable`` (bool), ``accounting`` (bool),
        ``partitions`` {name: {"default": bool, "nodes": int, "max_time_s": int | None, "max_nodes":
        int | None, "cpus_per_node": int | None, "gpus_per_node": int, "mem_mb": int | None, "up": bool}},
        ``accounts`` [names this user may charge], ``qos`` [names], ``limits`` {"max_submit_jobs": int |
        None, "max_jobs": int | None, "max_array_size": int | None}, ``preemption`` str, ``requeue`` bool,
        ``kill_wait_s`` int, ``message_timeout_s`` int, ``problems`` [str].
        """
        ...
