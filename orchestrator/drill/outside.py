"""Harm that no rank can do to itself: to nodes, jobs, agents, supervisor and controller; and its undoing.

Knows how on the local scheduler, on a dev cluster (``scripts/dev-cluster``) and, for what its owner may do
to a job, on any Slurm. Whatever is done is undone by :meth:`Outside.undo`, whatever happens in between.
``tests/chaos`` and ``tests/slurm/test_bad_days.py`` do it to real runs.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from launch import faulting
from resiliency.edges import Runner, SystemRunner
from resiliency.errors import TrainmasterError
from resiliency.faultkinds import OUTSIDE, Kind

from ..runs import Run

if TYPE_CHECKING:
    from ..schedulers.local.backend import LocalScheduler

_TIMEOUT_S = 60.0
#: What a fake line looks like: the driver's own words for "the GPU has fallen off the bus".
_XID = "[rehearsal] Fake: NVRM: Xid (PCI:0000:00:00): 79, pid=0, GPU has fallen off the bus."


class CannotHarm(TrainmasterError):
    """This fault cannot be done here, or could not be done now."""


@dataclass(frozen=True)
class Scene:
    """Where a run stands: its attempt, and the node the fault is about (empty: none). ``host``: the node
    that holds the batch script, where its name is plain."""

    attempt: str
    job_id: str
    link: int
    restart_count: int
    node: str = ""
    host: str = ""


class Outside:
    """The harm of one run. A subclass per scheduler; here is what needs none."""

    where = "this scheduler"

    def __init__(
        self, run: Run, stage: str, *, runner: Runner | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        self.run, self.stage = run, stage
        self.runner = runner or SystemRunner()
        self.environ = dict(os.environ if environ is None else environ)
        self._undo: list[tuple[str, Callable[[], object]]] = []
        self._until: list[tuple[float, str, Callable[[], object]]] = []

    # -- to be asked ---------------------------------------------------------------------------

    def cannot(self, kind: Kind) -> str:
        """Why this kind cannot be done here; empty when it can."""
        if kind.by != OUTSIDE or hasattr(self, self._method(kind.name)):
            return ""
        return f"{kind.name} cannot be rehearsed on {self.where}"

    def do(self, kind: Kind, scene: Scene, seconds: float) -> str:
        """Do it; what was done, for a person. Raises CannotHarm."""
        method = getattr(self, self._method(kind.name), None)
        if method is None:
            raise CannotHarm(self.cannot(kind))
        try:
            return str(method(scene, seconds))
        except (OSError, TrainmasterError) as error:
            raise CannotHarm(f"{kind.name} could not be done: {error}") from error

    def tend(self) -> list[str]:
        """End what lasts a number of seconds, once they are over."""
        now = time.monotonic()
        over = [item for item in self._until if now >= item[0]]
        self._until = [item for item in self._until if now < item[0]]
        return [self._end(text, action) for _, text, action in over]

    def undo(self) -> list[str]:
        """Undo all that was done, last first; what was done about it."""
        pending = [(text, action) for _, text, action in self._until] + self._undo[::-1]
        self._until, self._undo = [], []
        return [self._end(text, action) for text, action in pending]

    @staticmethod
    def _method(kind: str) -> str:
        return f"do_{kind.replace('-', '_')}"

    @staticmethod
    def _end(text: str, action: Callable[[], object]) -> str:
        try:
            action()
        except (OSError, TrainmasterError) as error:
            return f"could not undo ({text}): {error}"
        return text

    def _for(self, seconds: float, text: str, action: Callable[[], object]) -> None:
        self._until.append((time.monotonic() + seconds, text, action))

    # -- what is the same everywhere -----------------------------------------------------------

    def do_xid(self, scene: Scene, seconds: float) -> str:
        path = self.run.paths.node_log(self.stage, scene.link, scene.restart_count, scene.node)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S")
        with path.open("a", encoding="utf-8") as log:
            log.write(f"{stamp} {scene.node} kernel: {_XID}\n")
        return f"a fake Xid line in {path.name}"

    def do_agent_kill(self, scene: Scene, seconds: float) -> str:
        pid = self._agent(scene)
        os.kill(pid, signal.SIGKILL)
        return f"agent of {scene.node} (process {pid}) killed"

    def _agent(self, scene: Scene) -> int:
        found = faulting.agents(scene.attempt, self.run.paths.root)
        if scene.node not in found:
            there = ", ".join(sorted(found)) or "none"
            raise CannotHarm(
                f"no agent of {scene.node} runs on this host (there are: {there})",
                hint="name a node of the running attempt, or run the rehearsal where its agents run",
            )
        return found[scene.node]


class LocalOutside(Outside):
    """Emulated nodes: everything is a process of this host."""

    where = "the local scheduler"

    def do_node_crash(self, scene: Scene, seconds: float) -> str:
        agent = self._agent(scene)
        if scene.node == scene.host:
            self._scheduler().fail_node(scene.job_id)
            return f"{scene.node}: job {scene.job_id} killed with all its processes"
        count = faulting.kill_node(agent)
        return f"{scene.node}: {count} processes killed"

    def do_preempt(self, scene: Scene, seconds: float) -> str:
        self._scheduler().preempt(scene.job_id)
        return f"job {scene.job_id} preempted"

    def do_time_limit(self, scene: Scene, seconds: float) -> str:
        os.kill(self._supervisor(scene), signal.SIGUSR2)
        return f"job {scene.job_id} got the signal that comes before its limit"

    def do_supervisor_freeze(self, scene: Scene, seconds: float) -> str:
        pid = self._supervisor(scene)
        os.kill(pid, signal.SIGSTOP)
        self._for(seconds, "supervisor goes on", lambda: os.kill(pid, signal.SIGCONT))
        return f"supervisor (process {pid}) stopped for {seconds:g} s"

    def _scheduler(self) -> LocalScheduler:
        from ..schedulers.local.backend import LocalScheduler

        return LocalScheduler(Path(self.run.record.home), environ=self.environ)

    def _supervisor(self, scene: Scene) -> int:
        pid = faulting.supervisor(self.run.paths.root, self.stage, scene.link)
        if pid is None:
            raise CannotHarm(f"the supervisor of job {scene.job_id} does not run on this host")
        return pid


class SlurmOutside(Outside):
    """What the owner of a job may do to it."""

    where = "a Slurm cluster that is nobody's toy (scripts/dev-cluster brings one up that is)"

    def do_time_limit(self, scene: Scene, seconds: float) -> str:
        self._slurm("scancel", "--batch", "--signal=USR2", scene.job_id)
        return f"job {scene.job_id} got the signal that comes before its limit"

    def do_supervisor_freeze(self, scene: Scene, seconds: float) -> str:
        self._slurm("scancel", "--batch", "--signal=STOP", scene.job_id)
        self._for(
            seconds,
            "supervisor goes on",
            lambda: self._slurm("scancel", "--batch", "--signal=CONT", scene.job_id),
        )
        return f"supervisor of job {scene.job_id} stopped for {seconds:g} s"

    def do_node_drain(self, scene: Scene, seconds: float) -> str:
        name = f"NodeName={scene.node}"
        self._slurm("scontrol", "update", name, "State=DRAIN", "Reason=rehearsal")
        self._undo.append(
            (f"{scene.node} resumed", lambda: self._slurm("scontrol", "update", name, "State=RESUME"))
        )
        return f"{scene.node} drained"

    def _slurm(self, *argv: str) -> str:
        cluster = self.run.plan.profile.cluster
        words = [argv[0], *(["-M", cluster] if cluster else []), *argv[1:]]
        return self._command(words)

    def _command(self, argv: list[str]) -> str:
        done = self.runner(argv, timeout_s=_TIMEOUT_S, env=self.environ)
        if not done.ok:
            said = " ".join((done.stderr.strip() or done.stdout.strip()).split())[-300:]
            raise CannotHarm(f"{' '.join(argv[:4])}: {said or f'exit code {done.returncode}'}")
        return done.stdout


class DevClusterOutside(SlurmOutside):
    """A dev cluster's nodes and daemons are there to be killed. Needs root, as it does."""

    where = "a dev cluster"

    def __init__(self, *argv: object, state_dir: Path, script: Path, cluster: str, **more: object) -> None:
        super().__init__(*argv, **more)  # type: ignore[arg-type]
        self.state_dir, self.script, self.cluster_name = state_dir, script, cluster

    def _verb(self, *argv: str) -> str:
        return self._command([sys.executable, str(self.script), *argv, "--dir", str(self.state_dir)])

    def do_node_crash(self, scene: Scene, seconds: float) -> str:
        self._undo.append((f"{scene.node} booted", lambda: self._verb("start-node", scene.node)))
        return self._verb("kill-node", scene.node).strip()

    def do_prolog_failure(self, scene: Scene, seconds: float) -> str:
        node = scene.node or self._first_idle()
        self._undo.append((f"prolog of {node} works", lambda: self._verb("clear-prolog", node)))
        self._verb("fail-prolog", node)
        return f"prolog of {node} fails"

    def do_preempt(self, scene: Scene, seconds: float) -> str:
        node = scene.node or self._nodes_of(scene.job_id)[-1]
        job = self._slurm(
            "sbatch", "--parsable", "-p", "high", "-w", node, "--exclusive", "-t", "1", "-o", "/dev/null",
            "--job-name", "rehearsal-preempts", "--wrap", "sleep 20",
        ).strip()  # fmt: skip
        self._undo.append((f"job {job} cancelled", lambda: self._slurm("scancel", job)))
        return f"job {job} of the partition high takes {node}"

    def do_controller_freeze(self, scene: Scene, seconds: float) -> str:
        self._verb("freeze-controller", self.cluster_name)
        self._for(seconds, "controller goes on", lambda: self._verb("thaw-controller", self.cluster_name))
        return f"slurmctld of {self.cluster_name} stopped for {seconds:g} s"

    def _nodes_of(self, job_id: str) -> list[str]:
        names = self._slurm("squeue", "-h", "-j", job_id, "-o", "%N").split()
        if not names:
            raise CannotHarm(f"job {job_id} does not run")
        return self._slurm("scontrol", "show", "hostnames", names[0]).split()

    def _first_idle(self) -> str:
        partition = self.run.plan.stage(self.stage).setting("partition")
        ask = ["sinfo", "-h", "-N", "-t", "idle", "-o", "%N", *(["-p", partition] if partition else [])]
        idle = self._slurm(*ask).split()
        if not idle:
            raise CannotHarm("no node is idle")
        return idle[0]


def open_outside(run: Run, stage: str, environ: Mapping[str, str] | None = None) -> Outside:
    """For the run's scheduler; a dev cluster is known by where its slurm.conf lies."""
    if run.plan.profile.scheduler == "local":
        return LocalOutside(run, stage, environ=environ)
    env = os.environ if environ is None else environ
    conf = Path(env.get("SLURM_CONF", ""))
    script = Path(__file__).resolve().parents[2] / "scripts" / "dev-cluster"
    if len(conf.parts) > 3 and (conf.parents[2] / "settings.json").is_file() and script.is_file():
        return DevClusterOutside(
            run, stage, environ=environ, state_dir=conf.parents[2], script=script, cluster=conf.parent.name
        )
    return SlurmOutside(run, stage, environ=environ)
