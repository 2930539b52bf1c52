"""The agents of an attempt as the supervisor sees them: one ``srun`` step, or one process per emulated node.

Knows how they are started, told, watched and ended; decides nothing. ``tests/launch/test_steps.py``.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from resiliency import contract

from . import control, processes
from .allocation import Allocation
from .config import StageConfig
from .journaling import writer_id
from .localdir import sweep
from .rendezvous import free_port
from .roles import python_path

#: srun's word that a node was lost, as opposed to a task that was killed.
_NODE_LOST = re.compile(r"Node failure on (\S+)|DUE TO NODE FAILURE|Unable to contact slurmd|NODE_FAIL")
#: slurmstepd's word, faster than any question to the scheduler: "*** STEP 3.0 ON a1 CANCELLED AT … DUE TO
#: PREEMPTION ***". Without a reason it says nothing: srun's own ending of a step reads the same.
_PREEMPTED = re.compile(r"\bCANCELLED AT \S+ DUE TO PREEMPTION\b")
#: "srun: error: a2: task 1: Exited with exit code 5", "…: Killed". 0 is not said; 75 is a drain.
_TASK_ENDED = re.compile(r"srun: error: \S+: tasks? [\d,\[\]-]+: (?P<how>.*)")
_PEACEFUL = re.compile(r"Exited with exit code (?:0|75)\b")


@dataclass
class Steps:
    """Started agents. ``nodes``: those that take part, in order; ``trouble``: srun's complaints."""

    nodes: tuple[str, ...]
    control_file: Path
    journal: Path
    attempt: str
    local: bool
    popens: list[subprocess.Popen[bytes]] = field(default_factory=list)
    lost_nodes: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    preempted: bool = False
    reports: dict[str, control.NodeReport] = field(default_factory=dict)
    _readers: list[threading.Thread] = field(default_factory=list)

    # -- watching ------------------------------------------------------------------------------

    def look(self) -> None:
        """Read what is new of the nodes' reports."""
        for node in self.nodes:
            if node not in self.reports:
                found = control.read_report(self.control_file, node)
                if found is not None:
                    self.reports[node] = found

    def up(self, node: str) -> bool:
        """Whether a node's agent has started its work."""
        name = writer_id(self.attempt, f"agent-{node}")
        return node in self.reports or (self.journal / f"{name}.jsonl").exists()

    def over(self) -> bool:
        return all(popen.poll() is not None for popen in self.popens)

    def vanished(self) -> list[str]:
        """Nodes whose agent is gone without a report (locally only: srun speaks for all at once)."""
        if not self.local:
            return []
        return [
            node
            for node, popen in zip(self.nodes, self.popens, strict=False)
            if popen.poll() is not None and node not in self.reports
        ]

    def code_of(self, node: str) -> int:
        """The exit code of an agent that left no report."""
        if self.local:
            return self.popens[self.nodes.index(node)].returncode or 0
        return self.popens[0].returncode or 0

    # -- acting --------------------------------------------------------------------------------

    def tell(self, line: str) -> None:
        """Send a line to every agent's standard input; one that does not read it polls the file."""
        for popen in self.popens:
            if popen.stdin is not None and popen.poll() is None:
                with contextlib.suppress(OSError):
                    os.write(popen.stdin.fileno(), line.encode())

    def end(self) -> None:
        """The backstop: agents that did not end in their time. Bounded."""
        if not self.local:
            for popen in self.popens:
                if popen.poll() is None:
                    popen.terminate()  # srun: "forcing job termination"
            for popen in self.popens:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    popen.wait(3)  # it would wait KillWait for a node that may be gone
        processes.kill_descendants(known=[popen.pid for popen in self.popens])
        for popen in self.popens:
            with contextlib.suppress(subprocess.TimeoutExpired):
                popen.wait(5)

    def close(self) -> None:
        """After the end: srun's last words, and what killed local agents left behind."""
        for reader in self._readers:
            reader.join(2.0)
        if self.local:
            processes.kill_descendants(known=[popen.pid for popen in self.popens])
            sweep()

    @staticmethod
    def listens(popen: subprocess.Popen[bytes]) -> None:
        """A reader that is stuck must not block the supervisor."""
        assert popen.stdin is not None
        os.set_blocking(popen.stdin.fileno(), False)

    def listen(self, stream: IO[bytes]) -> None:
        """Pass srun's stderr on, and learn from it."""

        def read() -> None:
            for raw in stream:
                line = raw.decode("utf-8", "replace")
                sys.stderr.write(line)
                sys.stderr.flush()
                if lost := _NODE_LOST.search(line):
                    self.lost_nodes.append(lost[1] or "")
                if _PREEMPTED.search(line):
                    self.preempted = True
                ended = _TASK_ENDED.search(line)
                if lost or (ended and not _PEACEFUL.search(ended["how"])):
                    self.trouble.append(line.strip())

        self._readers.append(threading.Thread(target=read, daemon=True))
        self._readers[-1].start()


def agent_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The supervisor's own, and a path on which our modules import."""
    # The user's directory may hold a `launch` or `models` of its own: never import from it (3.11 on).
    return {**environ, **python_path(environ), "PYTHONSAFEPATH": "1"}


def srun_argv(config: StageConfig, allocation: Allocation) -> list[str]:
    """``srun`` with one task a node. Everything a site may have set otherwise is said."""
    launch = config.launch
    argv = [
        "srun",
        f"--nodes={launch.nodes}",
        f"--ntasks={launch.nodes}",
        "--ntasks-per-node=1",
        # An agent that ends must not take the others with it: they may be saving.
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--export=ALL",
        "--input=all",
    ]
    cpus = launch.cpus_per_node or allocation.cpus_per_node
    if cpus:
        # From 22.05 on srun no longer takes sbatch's value: one CPU would hold all ranks.
        argv.append(f"--cpus-per-task={cpus}")
    if launch.container:
        from .container import container_srun_args

        argv += container_srun_args(launch.container, workdir=os.getcwd(), env_names=("PYTHONPATH",))
    return [*argv, *launch.srun_args]


def agent_argv(
    config: StageConfig, run_dir: Path, link: int, attempt: str, master: str, python: str
) -> list[str]:
    return [
        python, "-m", "launch.agent",
        "--run-dir", str(run_dir), "--stage", config.name, "--link", str(link),
        "--attempt", attempt, "--master", master,
    ]  # fmt: skip


def start(
    config: StageConfig,
    allocation: Allocation,
    *,
    run_dir: Path,
    link: int,
    environ: Mapping[str, str],
) -> Steps:
    """Start an agent on each node. Must be called from the main thread (see ``child_hook``)."""
    paths = contract.RunPaths(run_dir)
    attempt = allocation.attempt(config.cluster)
    nodes = allocation.nodes[: config.launch.nodes]
    steps = Steps(
        nodes,
        paths.control(config.name, link, allocation.restart_count),
        paths.journal,
        attempt,
        allocation.scheduler == "local",
    )
    master = f"{allocation.address}:{free_port(attempt)}"
    env = agent_environment(environ)
    in_container = bool((config.launch.container or {}).get("runtime") == "pyxis")
    python = config.launch.python if in_container else sys.executable
    argv = agent_argv(config, run_dir, link, attempt, master, python)
    if steps.local:
        processes.become_subreaper()
        for index, node in enumerate(nodes):
            own: Sequence[str] = [*argv, "--node", node, "--index", str(index)]
            steps.popens.append(
                subprocess.Popen(own, env=env, stdin=subprocess.DEVNULL, preexec_fn=processes.child_hook())
            )
        return steps
    popen = subprocess.Popen(
        [*srun_argv(config, allocation), *argv],
        env=env,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=processes.child_hook(),
    )
    steps.popens.append(popen)
    steps.listens(popen)
    assert popen.stderr is not None
    steps.listen(popen.stderr)
    return steps
