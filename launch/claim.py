"""Who owns a link: the first job that starts creates ``claims/<token>.json``, exclusively.

The last line of defence of exactly-once submission. A requeued job keeps its id and so its claim.
``tests/launch/test_segment.py``.
"""

from __future__ import annotations

import json
from pathlib import Path

from resiliency.durable import create_exclusive, read_json

from .allocation import Allocation


def claim(path: Path, cluster: str, allocation: Allocation) -> str | None:
    """Claim a link for this job; None: it is ours, else ``cluster/job id`` of its owner.

    Raises StorageError: then nobody may start, since two jobs could both believe they own the link.
    """
    mine = {"cluster": cluster, "job_id": allocation.job_id}
    path.parent.mkdir(parents=True, exist_ok=True)
    if create_exclusive(path, json.dumps(mine) + "\n"):
        return None
    owner = read_json(path)
    if owner.get("job_id") == mine["job_id"] and owner.get("cluster") == mine["cluster"]:
        return None
    return f"{owner.get('cluster')}/{owner.get('job_id')}"
