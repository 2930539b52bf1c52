"""What the next link must know when this one ends early: which nodes to keep off, and that it need not wait.

A job with a dead node is not over for Slurm before the node is declared down (half a minute and more), and
a link queued behind it waits that long. Its work is over when the supervisor says so: commits of an
attempt that has a successor are refused (``resiliency.fence``). What fails here costs time only: the link
starts when Slurm lets it. ``tests/launch/test_successor.py``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from resiliency.errors import TrainmasterError
from resiliency.state import Stage

from .leftover import say
from .segment import Segment


def prepare(segment: Segment, stage: Stage, exclude: Sequence[str]) -> None:
    """Tell the scheduler about the queued links of this stage."""
    queued = [
        (link, job)
        for link in stage.live_links()
        if link.token != segment.token
        for job in link.job_ids
        if job != segment.allocation.job_id
    ]
    jobs = [job for _, job in queued]
    off = sorted(segment.lost_nodes | set(exclude))
    if not jobs or not off:
        return
    try:
        scheduler = segment.open_control()
        if scheduler is None:
            return
        keep_off = list(dict.fromkeys([*segment.config.launch.exclude, *off]))
        facts = scheduler.facts()
        if not _enough(segment, facts, keep_off):
            say(f"{', '.join(off)} is not kept from the next link: too few other nodes")
            return
        for link, job in queued:
            # What it keeps off already, by an order on a node, is not let back by this.
            more = list(dict.fromkeys([*keep_off, *link.exclude]))
            nodes = more if _enough(segment, facts, more) else keep_off
            scheduler.exclude(job, nodes)
            data = {"token": link.token, "job_id": job, "nodes": nodes, "reason": f"left {', '.join(off)}"}
            segment.journal.append("link.excluding", data, stage=stage.name, attempt=None)
        if segment.lost_nodes:
            scheduler.unchain(jobs[0])
            say(f"job {jobs[0]} goes on without waiting for {', '.join(sorted(segment.lost_nodes))}")
    except TrainmasterError as error:
        say(f"the next link is left as it is: {error.message}")


def _enough(segment: Segment, facts: Mapping[str, Any], off: Sequence[str]) -> bool:
    """Whether a link can still run when it is kept off these nodes. Not known: no."""
    partitions = facts.get("partitions") or {}
    name = os.environ.get("SLURM_JOB_PARTITION")
    mine = [it for key, it in partitions.items() if key == name or (name is None and it.get("default"))]
    if segment.config.scheduler == "local":
        return True  # emulated nodes are as many as are asked for
    launch = segment.config.launch
    return bool(mine) and int(mine[0].get("nodes") or 0) - len(off) >= launch.nodes + launch.spare_nodes
