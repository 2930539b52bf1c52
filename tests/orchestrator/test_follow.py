"""Following a run to its very end: also the scheduler's last word on its jobs, but not for ever."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.cli import follow
from resiliency.state import RunState


class Over(RunState):
    """A run whose stages are all complete."""

    finished = True  # type: ignore[assignment]


class FakeSession:
    """The scheduler says its last word after ``late`` looks; until then the run is marked unfinished."""

    def __init__(self, run_dir: Path, late: int) -> None:
        self.run_dir, self.late, self.looks = run_dir, late, 0
        self.home = self

    def reconcile(self, runs: Any, **_: Any) -> Any:
        self.looks += 1
        return SimpleNamespace(problems=[], runs=[SimpleNamespace(state=Over(), notes=[])])

    def active_run_dirs(self) -> list[Path]:
        return [self.run_dir] if self.looks < self.late else []


@pytest.mark.parametrize(("late", "looks"), [(0, 1), (3, 3), (1000, follow._LAST_LOOKS + 1)])
def test_it_waits_a_bounded_time_for_the_schedulers_last_word(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, late: int, looks: int
) -> None:
    monkeypatch.setattr(follow, "_LOCAL_S", 0.0)
    session = FakeSession(tmp_path, late)
    run = SimpleNamespace(paths=SimpleNamespace(root=tmp_path))
    state = follow._loop(session, run, lambda state, problems: None)  # type: ignore[arg-type]
    assert state.finished
    assert session.looks == looks
