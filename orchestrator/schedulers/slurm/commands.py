"""The one place that runs Slurm's commands: argument lists, deadlines, a chosen environment.

The environment is built anew, so that neither an allocation this runs in (``SLURM_*``,
``SBATCH_*``) nor a user's formats (``SQUEUE_FORMAT`` …) change what is asked or answered, and so
that a job gets only what was chosen for it. ``tests/orchestrator/test_slurm_backend.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from resiliency.edges import Completed, Runner
from resiliency.errors import SchedulerError, SchedulerUnreachable
from resiliency.redact import redact

#: Passed on when set. The Slurm ones say which Slurm, and with what credential, not what to do.
PASSED: Final = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "SLURM_CONF",
    "SLURM_CONF_SERVER",
    "SLURM_JWT",
)
# Clusters to talk to when -M names none; a site with a shared front end sets it for everybody.
_CLUSTERS: Final = "SLURM_CLUSTERS"


def environment(
    environ: Mapping[str, str], *, extra: Sequence[str] = (), cluster: str | None = None
) -> dict[str, str]:
    """The variables a Slurm command gets. ``extra``: more names, passed on when they are set."""
    names = [*PASSED, *extra, *([] if cluster else [_CLUSTERS])]
    return {name: environ[name] for name in names if name in environ}


def said(done: Completed) -> str:
    """What went wrong, on one line."""
    if done.returncode is None:
        return f"no answer in {done.seconds:.0f} s"
    words = " ".join((done.stderr.strip() or done.stdout.strip()).split())
    return redact(words[:400]) or f"exit code {done.returncode}"


class Commands:
    """Runs commands for one cluster (``-M`` when ``cluster`` is given)."""

    def __init__(
        self,
        runner: Runner,
        environ: Mapping[str, str],
        *,
        cluster: str | None,
        timeout_s: float,
    ) -> None:
        self._runner = runner
        self._cluster = cluster
        self.timeout_s = timeout_s
        # %s: Unix seconds, whatever the zone
        self._env = {**environment(environ, cluster=cluster), "SLURM_TIME_FORMAT": "%s"}

    def with_cluster(self, argv: Sequence[str]) -> list[str]:
        """``-M`` right behind the command, before its positional words."""
        return [argv[0], *(["-M", self._cluster] if self._cluster else []), *argv[1:]]

    def ask(self, argv: Sequence[str], *, timeout_s: float | None = None) -> Completed:
        """Run and return whatever comes of it."""
        return self._runner(self.with_cluster(argv), timeout_s=timeout_s or self.timeout_s, env=self._env)

    def ask_database(self, argv: Sequence[str]) -> Completed:
        """As :meth:`ask` for a command that speaks to slurmdbd alone and knows no ``-M``."""
        return self._runner(argv, timeout_s=self.timeout_s, env=self._env)

    def submit(self, argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Completed:
        """Run sbatch; it dies with this process (see :class:`resiliency.edges.SystemRunner`)."""
        return self._runner(self.with_cluster(argv), timeout_s=timeout_s, env=env, die_with_parent=True)

    def do(self, argv: Sequence[str], what: str, *, timeout_s: float | None = None) -> Completed:
        """Run a command that changes something; raises unless it succeeds."""
        done = self.ask(argv, timeout_s=timeout_s)
        if done.ok:
            return done
        words = said(done)
        if is_unreachable(done):
            raise SchedulerUnreachable(
                f"{what}: {argv[0]} did not reach Slurm: {words}", hint="try again later"
            )
        raise SchedulerError(f"{what}: {argv[0]} refused: {words}")


NOT_FOUND, NOT_EXECUTABLE = 127, 126  # what a Runner answers for a program it could not start

_NO_CONTACT: Final = (
    "unable to contact slurm controller",
    "socket timed out",
    "unexpected message received",  # scontrol release while slurmctld is down
    "connection refused",
    "munge encode failed",
    "could not establish a configuration source",
    "can't be reached now",
    "problem talking to the database",
    "unable to process configuration file",
)


def is_unreachable(done: Completed) -> bool:
    """Whether a command failed because nobody answered, rather than being refused."""
    if done.ok:
        return False
    if done.returncode is None or done.returncode < 0:
        return True
    if done.returncode in (NOT_FOUND, NOT_EXECUTABLE):
        return True
    words = f"{done.stderr}\n{done.stdout}".lower()
    return any(phrase in words for phrase in _NO_CONTACT)
