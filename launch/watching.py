"""An agent's view of its ranks' heartbeats: what to report, and when.

Reads the step records that :mod:`resiliency.steprecord` keeps in node-local memory; touches no rank.
``tests/launch/test_cycles.py``.
"""

from __future__ import annotations

import time
from typing import Any

from resiliency import hang, steprecord
from resiliency.fleet import row

from .config import StageConfig
from .generation import Generation
from .processes import state_letter

#: Between two reports of a node that is well.
REPORT_S = 10.0
#: Between two reports of one that stands still.
_AGAIN_S = 1.0


class Heart:
    """One cycle's ranks on one node."""

    def __init__(self, config: StageConfig, generation: Generation, node: str) -> None:
        self._settings = hang.Settings.read(config.recovery.get("hang") or {})
        self._generation, self._node = generation, node
        self._history = hang.History()
        self._reported_at = time.monotonic()
        self._suspected_at = 0.0

    def snapshots(self) -> dict[int, steprecord.Snapshot]:
        return steprecord.read_all(self._generation.records_dir)

    def rows(self) -> list[Any]:
        """One row a rank, as :class:`resiliency.fleet.Fleet` takes them."""
        now = time.monotonic()
        return [row(snapshot, now, self._state(snapshot.pid)) for snapshot in self.snapshots().values()]

    def _state(self, pid: int) -> str:
        # In a container a rank's own pid means another process out here, or none.
        return state_letter(pid) if self._generation.config.launch.container is None else "?"

    def step(self) -> int | None:
        """The furthest step of any rank here."""
        return max((s.step for s in self.snapshots().values() if s.step is not None), default=None)

    def due(self) -> list[str]:
        """Kinds of report that are due now: ``status``, ``suspect``."""
        now = time.monotonic()
        found: list[str] = []
        if now - self._reported_at >= REPORT_S:
            self._reported_at = now
            found.append("status")
        if self._settings.detect and now - self._suspected_at >= _AGAIN_S and self._stalled(now):
            self._suspected_at = now
            found.append("suspect")
        return found

    def _stalled(self, now: float) -> bool:
        snapshots = self.snapshots()
        if not snapshots:
            return False
        views = [hang.view(s, self._node, now, self._state(s.pid)) for s in snapshots.values()]
        self._history.learn(views)
        return hang.stalled(views, self._history, self._settings) is not None
