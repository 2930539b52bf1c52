"""What a failed sbatch says, and what that proves. Data, with provenance; no I/O.

Every row was seen on a real Slurm (22.05.8 and 24.11.5, unless noted) or stands in its source; the
recorded answers are in ``tests/orchestrator/data/slurm/sbatch``. A text no row matches proves
nothing: the job may exist.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Meaning(str, Enum):
    """What an answer proves about the job."""

    REJECTED = "rejected"  # read and refused: no job exists
    DEFERRED = "deferred"  # a limit that passes: no job exists
    UNREACHABLE = "unreachable"  # nothing was sent: no job exists
    UNCERTAIN = "uncertain"  # a job may exist
    DEPENDENCY = "dependency"  # a dependency was refused: no job exists


@dataclass(frozen=True)
class Row:
    """``pattern`` is searched in standard error, without regard to case."""

    pattern: str
    meaning: Meaning
    hint: str = ""
    seen: str = "22.05.8, 24.11.5"


_R, _D = Meaning.REJECTED, Meaning.DEFERRED
_U, _X = Meaning.UNREACHABLE, Meaning.UNCERTAIN
_SIZES: Final = "ask for less (nodes, time, memory), or another partition or qos; `doctor` shows the limits"
_QUEUE_FULL: Final = "wait until some of your jobs have ended; the next `tick` or `resume` goes on"

#: Searched in this order; the first match decides. Doubt stands before refusals: one line of it
#: outweighs what else was printed.
ROWS: Final[tuple[Row, ...]] = (
    # No message could even be made.
    Row(
        r"Munge encode failed|auth_g_create: .* has authentication error",
        _U,
        "ask the site: munge is down on this node",
    ),
    Row(
        r"Could not establish a configuration source|Unable to process configuration file",
        _U,
        "set SLURM_CONF, or ask the site how to reach its Slurm",
    ),
    # -M asks slurmdbd first where the cluster is.
    Row(
        r"problem talking to the database",
        _U,
        "slurmdbd is down, and -M needs it: try again later, or set SLURM_CONF to that cluster's",
    ),
    # The request may have arrived: a frozen slurmctld accepted the job and ran it.
    Row(r"Socket timed out on send/recv operation", _X),
    Row(r"Unable to contact slurm controller", _X),
    Row(r"Zero Bytes were transmitted or received", _X, seen="slurm_errno.c"),
    Row(
        r"(Unexpected message|Insane message length|Message (send|receive) failure)",
        _X,
        seen="slurm_errno.c",
    ),
    Row(
        r"Transport endpoint is not connected|Connection (reset|refused|timed out)|Broken pipe",
        _X,
        seen="errno",
    ),
    # Limits on the number of jobs. Slurm's last line is the same for these and for limits on a
    # job's size; the reason is on the line before.
    Row(r"\b\w*MaxSubmitJob\w*Limit\b", _D, _QUEUE_FULL),
    Row(r"\b\w*GrpSubmitJobs\w*Limit\b", _D, _QUEUE_FULL),
    Row(r"\bMaxSubmitJobsPer(Account|User)\b", _D, _QUEUE_FULL),
    Row(r"\b(QOS|Assoc)(Max|Min|Grp)\w+", _R, _SIZES),
    Row(
        r"violates accounting/QOS policy",
        _D,
        f"{_QUEUE_FULL}; if none are queued, the job's size breaks a limit: {_SIZES}",
        seen="slurm_errno.c (without the reason line, as a job_submit plugin gives it)",
    ),
    # MaxJobCount reached: sbatch says so each time it tries again, then gives up.
    Row(
        r"(?s)sleeping and retrying.*Resource temporarily unavailable\s*\Z",
        _D,
        "the cluster's queue is full (MaxJobCount): wait; the next `tick` goes on",
        seen="22.05.8",
    ),
    Row(
        r"No cluster '.*' known by database",
        _R,
        "name a cluster of `sacctmgr show clusters` as `slurm_cluster` in clusters.yaml",
    ),
    Row(
        r"can't be reached now, or it is an invalid entry for --cluster",
        _U,
        "slurmdbd must be up for -M: try again later",
        seen="slurmdb (a cluster whose slurmctld has not registered)",
    ),
    # Refused.
    Row(r"Job dependency problem", Meaning.DEPENDENCY),
    Row(
        r"Invalid partition name specified",
        _R,
        "`doctor` lists the partitions; set `partition` in clusters.yaml or the experiment",
    ),
    Row(
        r"Invalid account or account/partition combination",
        _R,
        "`doctor` lists your accounts; set `account`",
    ),
    Row(r"Invalid qos specification", _R, "`doctor` lists the qos you may use; set `qos`"),
    Row(
        r"Requested reservation is (invalid|in use)",
        _R,
        "`scontrol show reservation` lists them; set or drop `reservation`",
    ),
    Row(
        r"Invalid feature specification",
        _R,
        "`sinfo -o '%N %f'` lists the features; set or drop `constraint`",
    ),
    Row(
        r"Invalid generic resource \(gres\) specification",
        _R,
        "this partition has no such GPUs; `doctor` shows what it has",
    ),
    Row(r"Invalid license specification", _R, "`scontrol show licenses` lists them"),
    Row(
        r"Invalid node name specified",
        _R,
        "`sinfo -N` lists the nodes; an excluded node may have left the cluster",
    ),
    Row(r"Requested node configuration is not available", _R, _SIZES),
    Row(
        r"Node count specification invalid|More processors requested than permitted",
        _R,
        _SIZES,
        seen="slurm_errno.c",
    ),
    Row(
        r"Memory (specification|required by task) (can not be satisfied|is not available)",
        _R,
        _SIZES,
        seen="slurm_errno.c",
    ),
    Row(
        r"Requested time limit is (invalid|exceeds)|Time limit specification",
        _R,
        _SIZES,
        seen="slurm_errno.c",
    ),
    Row(r"Requested partition configuration not available now", _R, _SIZES, seen="slurm_errno.c"),
    Row(
        r"Required (node|partition) not available \(down, drained or reserved\)",
        _R,
        "wait, or use another partition",
        seen="slurm_errno.c",
    ),
    Row(
        r"User's group not permitted to use this partition",
        _R,
        "use another partition, or ask the site for access",
        seen="slurm_errno.c",
    ),
    Row(
        r"Access/permission denied|Invalid user id|User not found on host",
        _R,
        "ask the site for an account on this cluster",
        seen="slurm_errno.c",
    ),
    Row(
        r"Pathname of a file, directory or other parameter too long",
        _R,
        "the script is too large for this Slurm: shorten env or argv",
    ),
    Row(
        r"Invalid --?\S+ specification|Invalid directive found in batch script",
        _R,
        "an #SBATCH line is wrong: see the script",
    ),
    Row(
        r"unrecognized option|invalid option --|option requires an argument|requires an argument",
        _R,
        "this Slurm does not know an option: see the script and `extra_directives`",
    ),
    Row(
        r"This does not look like a batch script|Batch script (contains DOS|is empty)"
        r"|Unable to open file",
        _R,
        "the script was changed or removed: see its path",
    ),
    Row(
        r"Requested operation is presently disabled",
        _R,
        "the site does not take jobs now",
        seen="slurm_errno.c",
    ),
    Row(
        r"Submission is disabled|Job submission disabled",
        _R,
        "the site does not take jobs now",
        seen="sites",
    ),
)


def meaning(stderr: str) -> Row | None:
    """The row that decides; None: nothing known matches, so nothing is proved."""
    for row in ROWS:
        if re.search(row.pattern, stderr, re.IGNORECASE):
            return row
    return None
