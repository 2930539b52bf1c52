"""One rehearsal from its submission to its figures: submit, follow, harm when it is time, undo, tell.

The run is an ordinary one, submitted and reconciled like any other; it has a plan of faults beside its
``run.json``, and a name of its own, so that nobody takes it for the real one.
``tests/chaos`` runs them by the dozen.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from resiliency import contract, durable, faults, journal
from resiliency.faultkinds import OUTSIDE
from resiliency.faults import FIRED, REACHED, Fault
from resiliency.journal import JournalWriter
from resiliency.state import RunState

from .. import control, lifecycle, runs
from ..prepare import Ready
from ..session import Session
from . import figures
from .outside import CannotHarm, Outside, Scene, open_outside
from .planning import BEFORE_START, PLAN

#: Seconds between two looks at markers, and between two at the scheduler.
_LOOK_S = 0.1
_LOCAL_S, _SHARED_S = 1.0, 3.0
#: Looks after the run is over, for the scheduler's last word on its jobs.
_LAST_LOOKS = 8

Say = Callable[[str], None]


class Drill:
    """One run with its plan. ``asked_nodes``: fault id → the node a person named."""

    def __init__(
        self,
        session: Session,
        ready: Ready,
        stage: str,
        plan: Sequence[Fault],
        *,
        asked_nodes: Mapping[str, str] | None = None,
        say: Say = lambda text: None,
    ) -> None:
        self.session, self.stage, self.plan, self.say = session, stage, tuple(plan), say
        self._nodes = dict(asked_nodes or {})
        ready.raise_faults()
        self.run = runs.create_run(
            session.home, ready.record, ready.loaded.text, runs_root=ready.runs_root, amend=self._amend
        )
        self.path = self.run.paths.root / PLAN
        self.outside: Outside = open_outside(self.run, stage)
        self._journal: JournalWriter | None = None
        self._pending = [fault for fault in self.plan if fault.row.by == OUTSIDE]

    def _amend(self, building: contract.RunPaths, final: Path) -> None:
        """Put the plan into the run's directory before anything can start in it."""
        if not self.plan:
            return
        text = json.dumps([fault.as_data() for fault in self.plan], indent=1)
        durable.write_plain(building.root / PLAN, text + "\n")
        path = building.stage_config(self.stage)
        config = durable.read_json(path)
        config["launch"]["faults"] = str(final / PLAN)
        durable.write_plain(path, json.dumps(config, indent=1, sort_keys=True) + "\n")

    # -- following -----------------------------------------------------------------------------

    def follow(self, timeout_s: float) -> RunState:
        """Until the run is over or held, or the time is up: then it is cancelled. What was done is undone."""
        deadline = time.monotonic() + timeout_s
        try:
            for fault in [f for f in self._pending if f.kind in BEFORE_START]:
                self._harm(fault, {"step": 0}, Scene("", "", 1, 0, self._nodes.get(fault.id, "")))
            state = self._loop(deadline, timeout_s)
        finally:
            self._undo()
            if self._journal is not None:
                self._journal.close()
        return state

    def _loop(self, deadline: float, timeout_s: float) -> RunState:
        look_at, looks = 0.0, 0
        pause = _LOCAL_S if self.run.plan.profile.scheduler == "local" else _SHARED_S
        while True:
            now = time.monotonic()
            if now >= look_at:
                state = self._reconcile()
                look_at = time.monotonic() + pause
                if state.finished or state.status == "held":
                    self._undo()  # a job on a crashed node ends when the node is back
                    if self._settled(state) or looks > _LAST_LOOKS:
                        return state
                    looks += 1
                elif now > deadline:
                    self.say(f"not over after {timeout_s:.0f} s: cancelled")
                    lifecycle.cancel(self.session, self.run, [])
                    deadline = float("inf")
            self._look()
            for text in self.outside.tend():
                self.say(f"  {text}")
            time.sleep(_LOOK_S)

    def _reconcile(self) -> RunState:
        report = self.session.reconcile([self.run], lock_wait_s=5.0)
        for problem in report.problems:
            self.say(f"  {problem}")
        return next((one.state for one in report.runs if one.state), None) or control.read_state(self.run)

    def _settled(self, state: RunState) -> bool:
        attempts = [a for stage in state.stages.values() for a in stage.attempts.values()]
        return all(a.record is None or a.record.ended for a in attempts) and not control.expects(state)

    # -- harming -------------------------------------------------------------------------------

    def _look(self) -> None:
        """Do what is due: a rank said that it is there, or its progress does."""
        for fault in list(self._pending):
            facts = faults.marked(self.path, fault.id, REACHED)
            if facts is None:
                continue
            scene = self._scene(str(facts.get("attempt") or ""), str(facts.get("node") or ""), fault)
            if scene is not None:
                self._harm(fault, facts, scene)

    def _scene(self, attempt: str, node: str, fault: Fault) -> Scene | None:
        state = control.read_state(self.run)
        found = state.stage(self.stage).attempts.get(attempt)
        if found is None:
            return None
        node = self._nodes.get(fault.id) or (node if fault.row.node else "")
        # Emulated nodes are listed plainly; of a real node list the host is not asked for.
        host = str((found.started or {}).get("nodes", "")).split(",")[0]
        return Scene(attempt, found.job_id, found.link, found.restart_count, node, host)

    def _harm(self, fault: Fault, facts: Mapping[str, Any], scene: Scene) -> None:
        self._pending.remove(fault)
        said = {"step": facts.get("step"), "node": scene.node or None, "rank": None}
        self._tell("fault.injected", {"id": fault.id, "kind": fault.kind, **said}, scene)
        at = time.time()
        try:
            what = self.outside.do(fault.row, scene, fault.seconds)
        except CannotHarm as error:
            self.say(f"  {fault.id}: {error}")
            return
        self.say(f"  step {facts.get('step')}: {what}")
        # The moment it began: some of it takes its time, and is noticed before it is done.
        faults.mark(self.path, fault.id, FIRED, {**said, "time": at, "what": what, "attempt": scene.attempt})

    def _tell(self, type_: str, data: Mapping[str, Any], scene: Scene) -> None:
        if self._journal is None:
            self._journal = JournalWriter(self.run.paths.journal, run=self.run.id, writer="drill")
        self._journal.append(
            type_, data, sync=True, stage=self.stage, attempt=scene.attempt or None, node=scene.node or None
        )

    def _undo(self) -> None:
        for text in self.outside.undo():
            self.say(f"  {text}")

    # -- figures -------------------------------------------------------------------------------

    def steps(self) -> list[figures.Step]:
        events, _ = journal.read_run(self.run.paths.journal)
        return figures.steps_of(logged(self.run.paths.stage(self.stage)), events, self.stage)

    def outcome(self, state: RunState, baseline: Drill | None = None) -> figures.Outcome:
        events, _ = journal.read_run(self.run.paths.journal)
        done = {f.id: facts for f in self.plan if (facts := faults.marked(self.path, f.id, FIRED))}
        found = figures.outcome(
            self.run.id,
            self.stage,
            state.status if state.stage(self.stage).completed else state.stage(self.stage).status,
            self.plan,
            done,
            events,
            self.steps(),
            baseline.steps() if baseline else (),
        )
        if baseline is not None:
            found.baseline_run = baseline.run.id
            found.baseline_seconds = baseline.outcome(control.read_state(baseline.run)).seconds
        return found


def logged(stage_dir: Path) -> list[dict[str, Any]]:
    """What the stage logged of its steps: ``metrics/train-*.jsonl``, a line a step; torn lines left out."""
    found = []
    for path in sorted((stage_dir / "metrics").glob("train-*.jsonl")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                found.append(dict(json.loads(line)))
            except (ValueError, TypeError):
                continue
    return found
