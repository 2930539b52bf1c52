"""Where a run goes on: the newest whole copy in the nodes' memory, else the newest good checkpoint.

All ranks look together: each compares its share of a checkpoint's files, rank 0 sets aside what is damaged.
Import only after ``runtime.prepare()``. ``tests/models/test_memory.py``, ``test_pretrain.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist

from resiliency.workload import Workload

from .checkpoint import CheckpointStore, Good, faults_of
from .local_tier import LocalTier, Restored
from .runtime import Ranks
from .settings import CheckpointFault
from .stage import say

# What must not differ between a checkpoint and the stage that resumes from it.
_INIT_ONLY = {"init_method_std", "hidden_dropout", "attention_dropout"}


def resume(
    ranks: Ranks,
    control: Any,
    store: CheckpointStore,
    copies: LocalTier,
    facts: Mapping[str, Any],
    load: Callable[[Good, bool], None],
    work: Workload,
) -> tuple[int, int, int | None] | None:
    """(step, samples consumed, step that is saved in a checkpoint) to go on from. Collective.

    ``load(good, same_layout)`` restores from a checkpoint. None: there is nothing to resume from.
    """
    newest = [next(iter(store.steps()), -1) if ranks.first else -1]
    dist.broadcast_object_list(newest, src=0, group=control)
    # A copy that is no older than any checkpoint spares reading those.
    restored = _from_memory(copies, after=newest[0] - 1)
    if restored is None:
        good = _newest_good(ranks, control, store, work)
        restored = _from_memory(copies, after=good.step if good else -1) if newest[0] >= 0 else None
        if restored is None:
            return None if good is None else _from_checkpoint(ranks, good, facts, load, work)
    if ranks.first:
        say(f"pretrain: resumed at step {restored.step} from copies in the nodes' memory")
        where = str(restored.directory)
        work.event("workload.resumed", step=restored.step, checkpoint=where, source="memory")
    return restored.step, restored.consumed, None


def _from_memory(copies: LocalTier, after: int) -> Restored | None:
    while (choice := copies.find(after)) is not None:
        restored = copies.restore(choice)
        if restored is not None:
            return restored
    return None


def _from_checkpoint(
    ranks: Ranks, good: Good, facts: Mapping[str, Any], load: Callable[[Good, bool], None], work: Workload
) -> tuple[int, int, int | None]:
    must_match(good, facts)
    same = good.meta["parallel"] == facts["parallel"] and good.meta["world_size"] == ranks.world
    load(good, same)
    if ranks.first:
        layout = "" if same else " (saved with another layout: random streams start anew)"
        say(f"pretrain: resumed at step {good.step} from {good.path}{layout}")
        work.event("workload.resumed", step=good.step, checkpoint=str(good.path), source="global")
    return good.step, int(good.meta["consumed_samples"]), good.step


def _newest_good(ranks: Ranks, control: Any, store: CheckpointStore, work: Workload) -> Good | None:
    """Rank 0 goes through them, all compare content, everybody gets the answer."""

    def damaged(path: Path, reason: str) -> None:
        say(f"pretrain: a checkpoint does not verify ({reason}): set aside as {path.name}")
        work.event("checkpoint.quarantined", path=str(path), reason=reason)

    def together(path: Path | None) -> list[str]:
        asked: list[Any] = [path]
        dist.broadcast_object_list(asked, src=0, group=control)
        if asked[0] is None:
            return []
        mine = faults_of(asked[0], ranks.rank, ranks.world)
        everybody: list[Any] = [None] * ranks.world
        dist.all_gather_object(everybody, mine, group=control)
        return list(dict.fromkeys(fault for some in everybody for fault in some)) or [""]

    answer: list[Any] = [None]
    if ranks.first:
        answer = [store.newest_good(damaged, lambda path: [fault for fault in together(path) if fault])]
        together(None)
    else:
        while together(None):
            pass
    dist.broadcast_object_list(answer, src=0, group=control)
    found: Good | None = answer[0]
    return found


def must_match(good: Good, facts: Mapping[str, Any]) -> None:
    """Raises CheckpointFault that names every difference which makes a checkpoint useless here."""
    faults = []
    mine, theirs = facts["model"], good.meta["model"]
    for key in sorted((mine.keys() | theirs.keys()) - _INIT_ONLY):
        if mine.get(key) != theirs.get(key):
            faults.append(f"model.{key} is {theirs.get(key)} there, {mine.get(key)} here")
    if good.meta["data"]["tokenizer"] != facts["data"]["tokenizer"]:
        faults.append("the tokenizer is another one")
    elif good.meta["data"]["train_bin"] != facts["data"]["train_bin"]:
        faults.append("the training data changed, its position means nothing")
    for key in ("seq_length", "seed", "precision"):
        if good.meta[key] != facts[key]:
            faults.append(f"train.{key} is {good.meta[key]} there, {facts[key]} here")
    # Megatron stores the optimizer's state under other keys: it cannot be resharded over these.
    for key in ("distributed_optimizer", "expert"):
        there, here = good.meta["parallel"][key], facts["parallel"][key]
        if there != here:
            faults.append(f"parallel.{key} is {there} there, {here} here")
    if faults:
        raise CheckpointFault(
            f"{good.path} does not match this stage: {'; '.join(faults)}",
            hint="resume with the settings it was saved with, or start in a new run",
        )
