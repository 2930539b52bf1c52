"""What the logs of a failed cycle say: triage of the nodes' last words, kept as evidence.

A log line is weaker than an exit code or the scheduler's word. So a category that would stop the stage for
good is not taken from it: the failure is tried again within its budget, and a deterministic one stops by the
second time. ``tests/launch/test_reading.py``.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from resiliency.errors import StorageError
from resiliency.redact import redact
from resiliency.taxonomy import Budget, category

from .leftover import say

#: Below this the logs do not know.
SURE = 0.6
_DEADLINE_S = 1.0
#: Words as those of a failed cycle.
_SAMPLE = """[rank0]: Traceback (most recent call last):
[rank0]:   File "train.py", line 1, in <module>
[rank0]:     main()
[rank0]: RuntimeError: Connection closed by peer [127.0.0.1]:1
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: exitcode : -9 (pid: 1)
slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.
"""
#: Failed nodes whose last words are read; more say the same.
_NODES = 16


@dataclass(frozen=True)
class Reading:
    """``category``: empty when the logs do not decide; ``words``: what they show, for a person."""

    category: str
    words: str
    node: str | None = None
    rank: int | None = None
    confidence: float = 0.0
    evidence: tuple[str, ...] = ()


def prepare() -> None:
    """Load what :func:`read` needs, in a thread of its own: the better part of a second that no recovery
    should wait for. Nothing is lost when it fails: reading then says so itself."""

    def load() -> None:
        with contextlib.suppress(Exception), tempfile.TemporaryDirectory() as directory:
            # Its patterns are compiled when they are first wanted: so let it read something.
            read({"a": _SAMPLE}, Path(directory) / "a", ranks={})

    threading.Thread(target=load, name="reading", daemon=True).start()


def read(last_words: Mapping[str, str], directory: Path, *, ranks: Mapping[int, str]) -> Reading | None:
    """``last_words``: node → the end of its log; ``ranks``: rank → its node. None: nothing was found."""
    told = {node: text for node, text in last_words.items() if text.strip()}
    if not told:
        return None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for node, text in list(told.items())[:_NODES]:
            (directory / f"{node}.log").write_text(redact(text), encoding="utf-8", errors="replace")
        from resiliency.triage import api
        from resiliency.triage.slurmtext import Place

        places = {rank: Place(node=node) for rank, node in ranks.items()}
        found = api.triage_paths([directory], deadline_s=_DEADLINE_S, nodes=list(told), places=places)
    except (OSError, StorageError) as error:
        say(f"logs of the failed cycle are not read: {error}")
        return None
    if found.category in ("unknown", "healthy") or found.confidence < SURE:
        return None
    row = category(found.category)
    lines = tuple(
        f"{item.get('file')}:{item.get('line')}: {item.get('text')}"[:300] for item in found.evidence[:5]
    )
    words = redact(f"{row.name}: {found.reason or row.phrase}")
    final = row.budget is Budget.TERMINAL or row.domain == "scheduler"
    name = "" if final else row.name
    return Reading(name, words, found.node, found.rank, found.confidence, tuple(map(redact, lines)))
