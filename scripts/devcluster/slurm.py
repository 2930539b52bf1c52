"""Runs Slurm's own commands against one emulated cluster and reads their answers.

The only module that knows their output formats. Every call has a time limit: a frozen or dead
controller makes a client hang for 10 to 20 s, and that must never hang dev-cluster.
"""

from __future__ import annotations

import subprocess
from collections import Counter

from .errors import DevClusterError
from .processes import clean_environment
from .settings import Cluster, Layout

CALL_TIMEOUT_S = 25.0
# sinfo's %T, without its suffix; "*" means the node does not answer
USABLE = frozenset({"idle", "mixed", "allocated", "completing", "planned"})
RESUMABLE = frozenset({"down", "drained", "draining", "drng", "drain", "fail", "failing", "error", "unknown"})


def call(
    layout: Layout, cluster: str, *command: str, timeout_s: float = CALL_TIMEOUT_S, stdin: str = ""
) -> str:
    """Standard output of a Slurm command; DevClusterError with its complaint when it fails."""
    environment = clean_environment(layout.root, SLURM_CONF=str(layout.slurm_conf(cluster)))
    shown = " ".join(command)
    try:
        done = subprocess.run(
            command,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            cwd="/",
        )
    except subprocess.TimeoutExpired as error:
        raise DevClusterError(
            f"`{shown}` gave no answer within {timeout_s:g} s", hint="see `dev-cluster status`"
        ) from error
    if done.returncode:
        complaint = (done.stderr or done.stdout).strip()
        raise DevClusterError(
            f"`{shown}` failed ({done.returncode}): {complaint}", hint="see `dev-cluster status`"
        )
    return done.stdout


def try_call(layout: Layout, cluster: str, *command: str, timeout_s: float = CALL_TIMEOUT_S) -> str | None:
    """As `call`, but None instead of an error."""
    try:
        return call(layout, cluster, *command, timeout_s=timeout_s)
    except DevClusterError:
        return None


def node_states(layout: Layout, cluster: Cluster) -> dict[str, str]:
    """node -> sinfo's long state in lower case, as in "idle", "down*", "drained". Empty: no
    answer."""
    out = try_call(layout, cluster.name, "sinfo", "--noheader", "-N", "-p", "low", "-o", "%N %T")
    return dict(line.split()[:2] for line in (out or "").splitlines() if len(line.split()) >= 2)


def is_usable(state: str) -> bool:
    return not state.endswith("*") and state.rstrip("~#!%$@+^-") in USABLE


def needs_resume(state: str) -> bool:
    return state.rstrip("*~#!%$@+^-") in RESUMABLE


def job_counts(layout: Layout, cluster: Cluster) -> dict[str, int] | None:
    """Job state -> count; None: no answer."""
    out = try_call(layout, cluster.name, "squeue", "--noheader", "-o", "%T")
    return None if out is None else dict(sorted(Counter(out.split()).items()))


def resume(layout: Layout, cluster: Cluster, nodes: list[str]) -> None:
    # A node that is neither down nor drained any more by now makes this fail; that is what was
    # wanted.
    if nodes:
        try_call(
            layout,
            cluster.name,
            "scontrol",
            "update",
            f"nodename={','.join(nodes)}",
            "state=resume",
        )


def ping(layout: Layout, cluster: Cluster) -> bool:
    return try_call(layout, cluster.name, "scontrol", "ping", timeout_s=3) is not None
