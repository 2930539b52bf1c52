"""A run directory as ``submit`` makes it, and the segment started in it as the job script does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from resiliency import contract, journal
from resiliency.events import Event
from resiliency.state import RunState, fold

ROOT = Path(__file__).resolve().parents[2]
RUN_ID = "quick-20261130-120000-beef"
CLUSTER = f"test{os.getpid()}"  # other tests on this machine have node-local files too
PATIENCE_S = 60.0


def until(what: Callable[[], Any], *, patience_s: float = PATIENCE_S) -> Any:
    """Wait for something to become true and return it."""
    deadline = time.monotonic() + patience_s
    while not (found := what()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found


@dataclass
class Running:
    """A started segment."""

    popen: subprocess.Popen[bytes]
    log: Path
    tag: str

    def send(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        try:
            return self.popen.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            raise AssertionError(f"the segment did not end:\n{self.text()}") from None

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def strays(self) -> list[str]:
        """Processes that still carry this segment's mark in their environment."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self.tag.encode() in (entry / "environ").read_bytes():
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    if state not in "ZX":
                        found.append(f"{entry.name} {(entry / 'cmdline').read_bytes()!r}")
            except (OSError, ValueError):
                continue
        return found


@dataclass
class RunDir:
    """A run with one stage ``work`` (and whatever else a test adds)."""

    root: Path
    started: list[Running] = field(default_factory=list)

    @property
    def paths(self) -> contract.RunPaths:
        return contract.RunPaths(self.root)

    def stage(self, name: str = "work", *, kind: str = "command", **changes: Any) -> dict[str, Any]:
        """Write the stage's stage.json; keys of ``launch`` and of the top level may be given."""
        launch: dict[str, Any] = {
            "nodes": 1, "ranks_per_node": 1, "gpus_per_node": 0, "cpus_per_node": 1,
            "launcher": "auto", "program": None, "argv": None, "python": sys.executable,
            "stop_signal": "TERM", "grace_s": 20, "env": {}, "env_from": [], "container": None,
            "srun_args": [], "progress": None, "startup_s": 60, "restarts_in_job": 0,
            "spare_nodes": 0, "min_nodes": None, "exclude": [], "signal_lead_s": 0, "warm": [], "roles": [],
        }  # fmt: skip
        config: dict[str, Any] = {
            "v": 1, "run": RUN_ID, "name": name, "kind": kind, "cluster": CLUSTER,
            "scheduler": "local", "stage": {}, "stage_dir": str(self.paths.stage(name)),
            "artifact_dir": str(self.paths.artifact(name)), "inputs": {}, "input_kinds": {},
            "artifact_kind": "command", "launch": launch,
            "budgets": {"unexplained": 3, "no_progress": 3, "same_signature": 2, "launch": 5,
                        "max_links": 10, "total_wall_s": None},
            "advance": "ahead",
        }  # fmt: skip
        for key, value in changes.items():
            (launch if key in launch else config)[key] = value
        path = self.paths.stage_config(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(config))
        return config

    def tell(self, *items: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
        """Append events as the control plane does: (type, data, fields)."""
        with journal.JournalWriter(self.paths.journal, run=RUN_ID, writer="login-test") as writer:
            writer.append_many(items)

    def queue(self, link: int, job_id: str, stage: str = "work", epoch: int = 0) -> None:
        """A link that was submitted and accepted."""
        token = contract.token(RUN_ID, stage, link)
        intent = {"token": token, "stage": stage, "link": link, "cluster": CLUSTER, "epoch": epoch}
        accepted = {"token": token, "job_id": job_id, "via": "sbatch"}
        self.tell(
            ("submission.intent", intent, {"stage": stage}),
            ("submission.accepted", accepted, {"stage": stage}),
        )

    def start(
        self,
        *,
        stage: str = "work",
        link: int = 1,
        job_id: str = "17",
        restart: int = 0,
        nodes: str = "local-0",
        env: dict[str, str] | None = None,
        program: list[str] | None = None,
    ) -> Running:
        log = self.root / f"segment-{len(self.started)}.log"
        tag = f"TM_TEST_TAG={self.root}-{len(self.started)}-{os.getpid()}"
        argv = program or [sys.executable, "-m", "orchestrator.segment"]
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [*argv, "--run-dir", str(self.root), "--stage", stage, "--link", str(link),
                 "--home", str(self.root / "home")],
                stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=ROOT,
                env={**os.environ, "TM_TEST_TAG": tag.partition("=")[2],
                     "TRAINMASTER_LOCAL_JOB_ID": job_id,
                     "TRAINMASTER_LOCAL_RESTART_COUNT": str(restart),
                     "TRAINMASTER_LOCAL_NODELIST": nodes, **(env or {})},
            )  # fmt: skip
        running = Running(popen, log, tag)
        self.started.append(running)
        return running

    def run(self, **given: Any) -> int:
        return self.start(**given).wait()

    def events(self, type_: str | None = None) -> list[Event]:
        found, problems = journal.read_run(self.paths.journal)
        assert not problems
        return [event for event in found if type_ in (None, event.type)]

    def one(self, type_: str) -> Event:
        found = self.events(type_)
        assert len(found) == 1, [event.data for event in found]
        return found[0]

    def state(self) -> RunState:
        return fold(self.events())

    def node_log(self, node: str = "local-0", link: int = 1, restart: int = 0) -> str:
        return self.paths.node_log("work", link, restart, node).read_text(errors="replace")

    def has(self, type_: str) -> bool:
        return bool(self.events(type_))


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[RunDir]:
    """Whatever a test does, nothing of its segments may be left: no process, no node-local file."""
    run = RunDir(tmp_path / RUN_ID)
    run.paths.journal.mkdir(parents=True)
    stage = {"name": "work", "kind": "command", "needs": []}
    run.tell(("run.created", {"name": "quick", "stages": [stage]}, {}))
    yield run
    strays = []
    for one in run.started:
        if one.popen.poll() is None:
            one.popen.kill()
            one.popen.wait()
        strays += one.strays()
    for stray in strays:
        os.kill(int(stray.split()[0]), signal.SIGKILL)
    assert not strays
    assert not list(Path("/dev/shm").glob(f"trainmaster-{CLUSTER}-*"))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    from . import cycling  # it imports from here

    path = tmp_path / "rank.py"
    path.write_text(cycling.RANK)
    return path
