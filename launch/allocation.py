"""Which allocation this is: job id, restart count, nodes. Reads the environment, asks nobody.

Slurm sets SLURM_*; the local scheduler sets TRAINMASTER_LOCAL_*. ``tests/launch/test_allocation.py``.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from resiliency.contract import attempt_id
from resiliency.errors import UsageError

ENV_LOCAL_JOB_ID = "TRAINMASTER_LOCAL_JOB_ID"
ENV_LOCAL_RESTART_COUNT = "TRAINMASTER_LOCAL_RESTART_COUNT"
ENV_LOCAL_NODELIST = "TRAINMASTER_LOCAL_NODELIST"


@dataclass(frozen=True)
class Allocation:
    """One allocation. ``nodelist`` is as the scheduler wrote it (``a[1-2]``), short for the journal."""

    scheduler: str
    job_id: str
    restart_count: int
    nodelist: str
    address: str  # the batch host, for other nodes; agents of a step know its IP address better
    time_limit_s: float | None = None
    cpus_per_node: int | None = None
    ends_at: float | None = None  # Unix seconds, as the scheduler said when the job started

    def attempt(self, cluster: str) -> str:
        return attempt_id(cluster, self.job_id, self.restart_count)

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Node names in Slurm's order; expanded on first use only, since it may cost an import."""
        return expand_nodelist(self.nodelist)


def identify(scheduler: str, environ: Mapping[str, str]) -> Allocation:
    """The allocation this process runs in. Raises UsageError outside of one."""
    if scheduler == "local":
        names = (ENV_LOCAL_JOB_ID, ENV_LOCAL_RESTART_COUNT, ENV_LOCAL_NODELIST)
    else:
        # SLURM_RESTART_COUNT is not set on a job's first run.
        names = ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_JOB_NODELIST")
    job_id, restart, nodelist = (environ.get(name, "") for name in names)
    if not job_id or not nodelist:
        raise UsageError(
            f"not in an allocation of the scheduler {scheduler!r}: {names[0]} or {names[2]} is not set",
            hint="this program is started by the job script; use `python -m orchestrator submit`",
        )
    if scheduler == "local":
        return Allocation("local", job_id, int(restart or 0), nodelist, "127.0.0.1")
    return Allocation(
        "slurm",
        job_id,
        int(restart or 0),
        nodelist,
        environ.get("SLURMD_NODENAME") or os.uname().nodename,
        _time_limit_s(environ),
        _fewest_cpus(environ.get("SLURM_JOB_CPUS_PER_NODE", "")),
        _number(environ.get("SLURM_JOB_END_TIME")),
    )


def _time_limit_s(environ: Mapping[str, str]) -> float | None:
    try:
        return float(environ["SLURM_JOB_END_TIME"]) - float(environ["SLURM_JOB_START_TIME"])
    except (KeyError, ValueError):
        return None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _fewest_cpus(text: str) -> int | None:
    """Smallest count in Slurm's ``64(x2),32``; None if it is not there."""
    counts = [part.split("(")[0] for part in text.split(",")]
    numbers = [int(count) for count in counts if count.isdigit()]
    return min(numbers) if numbers else None


def expand_nodelist(text: str) -> tuple[str, ...]:
    """``a[1-2],b7`` → a1, a2, b7. Plain names cost nothing, ranges submitit's parser or scontrol."""
    if "[" not in text:
        return tuple(name for name in text.split(",") if name)
    try:
        from submitit.slurm.slurm import _parse_node_list

        return tuple(_parse_node_list(text))
    except Exception:
        # submitit absent, changed, or puzzled by this list: Slurm's own tool knows its own syntax.
        done = subprocess.run(
            ["scontrol", "show", "hostnames", text],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        return tuple(done.stdout.split())
