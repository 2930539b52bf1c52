"""What the parts of one attempt share: who we are, where things lie, how the run stands.

``tests/launch/test_segment.py``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from resiliency import contract, journal
from resiliency.state import RunState, fold

from .allocation import Allocation
from .config import StageConfig
from .journaling import SafeJournal
from .signals import OpenControl


@dataclass
class Segment:
    """One attempt of one link. ``notes``: for a person, added to the reason it ended for."""

    config: StageConfig
    paths: contract.RunPaths
    allocation: Allocation
    link: int
    journal: SafeJournal
    open_control: OpenControl
    epoch: int = 0
    drain_reason: str | None = None
    lost_nodes: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    cycle: int = 0  # the current one
    started_at: float = field(default_factory=time.time)  # Unix seconds

    @property
    def token(self) -> str:
        return contract.token(self.config.run, self.config.name, self.link)

    @property
    def attempt(self) -> str:
        return self.allocation.attempt(self.config.cluster)

    def state(self) -> RunState:
        """The run as its journals tell it now. Raises StorageError."""
        events, _ = journal.read_control(self.paths.journal)
        state = fold(events)
        state.run = self.config.run
        return state
