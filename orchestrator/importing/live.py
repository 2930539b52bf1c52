"""``ledger import --live``: the dump, asked from sacct now. ``tests/orchestrator/importing/test_live.py``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from orchestrator.schedulers.slurm.commands import Commands, is_unreachable, said
from orchestrator.schedulers.slurm.fields import FIELD_END
from resiliency.edges import Runner
from resiliency.errors import SchedulerError, SchedulerUnreachable, UsageError

COLUMNS: Final = (
    "JobIDRaw,JobID,User,Cluster,State,ExitCode,Submit,Eligible,Start,End,NNodes,NodeList,AllocTRES,Reason,"
    "WorkDir,JobName"
)
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_TIMEOUT_S: Final = 300.0  # months of a large site's jobs


def ask(runner: Runner, environ: Mapping[str, str], since: str, cluster: str | None) -> list[str]:
    """Lines of all users' jobs since then (``30d``: units m, h, d, w). Raises UsageError, SchedulerError."""
    match = re.fullmatch(r"([1-9]\d{0,5})([mhdw])", since)
    if match is None:
        raise UsageError(f"--since {since!r} is no length of time", hint="such as 12h, 30d or 8w")
    argv = ["sacct", "--allusers", "--duplicates", "--parsable2", f"--delimiter={FIELD_END}"]
    argv += [f"--starttime=now-{match[1]}{_UNITS[match[2]]}", "--endtime=now", f"--format={COLUMNS}"]
    done = Commands(runner, environ, cluster=cluster, timeout_s=_TIMEOUT_S).ask(argv)
    if done.ok:
        return done.stdout.split("\n")
    if is_unreachable(done):
        raise SchedulerUnreachable(f"sacct did not answer: {said(done)}", hint="try again later")
    raise SchedulerError(f"sacct refused: {said(done)}")
