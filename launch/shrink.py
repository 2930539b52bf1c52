"""With how many nodes a stage can go on after a loss. Pure.

The split of the model stays as it is; what changes is the number of replicas, and the global batch must
still be a whole number of micro-batches for each. ``tests/launch/test_shrink.py``.
"""

from __future__ import annotations

from .config import StageConfig


def largest(config: StageConfig, usable: int) -> int | None:
    """The most nodes, at most ``usable`` and the stage's own, that it can run on; None: too few."""
    launch = config.launch
    if usable >= launch.nodes:
        return launch.nodes
    if launch.min_nodes is None:
        return None
    for nodes in range(usable, launch.min_nodes - 1, -1):
        if _fits(config, nodes):
            return nodes
    return None


def _fits(config: StageConfig, nodes: int) -> bool:
    world = nodes * config.launch.ranks_per_node
    parallel, train = config.stage.get("parallel"), config.stage.get("train")
    if not isinstance(parallel, dict) or not isinstance(train, dict):
        return True  # anyone's own command: its spec says that it can
    model = 1
    for name in ("tensor", "pipeline", "context"):
        model *= int(parallel.get(name) or 1)
    if world % model:
        return False
    replicas = world // model
    if replicas % int(parallel.get("expert") or 1):
        return False
    return int(train["global_batch_size"]) % (int(train.get("micro_batch_size") or 1) * replicas) == 0
