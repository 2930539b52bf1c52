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

from . import processes
from .allocation import Allocation, expand_nodelist
from .channel import ENV_CHANNEL, Hub, channel_address
from .config import StageConfig
from .localdir import sweep
from .roles import python_path

#: srun's word that a node was lost, as opposed to a task that was killed.
_NODE_LOST = re.compile(r"Node failure on (\S+)|DUE TO NODE FAILURE|Unable to contact slurmd|NODE_FAIL")
#: slurmstepd's word, faster than any question to the scheduler: "*** STEP 3.0 ON a1 CANCELLED AT … DUE TO
#: PREEMPTION ***". Without a reason it says nothing: srun's own ending of a step reads the same.
_PREEMPTED = re.compile(r"\bCANCELLED AT \S+ DUE TO PREEMPTION\b")
#: "srun: error: a2: task 1: Exited with exit code 5", "…: Killed". 0 is not said; 75 is a drain.
_TASK_ENDED = re.compile(r"srun: error: (?P<nodes>[\w.,\[\]-]+): tasks? [\d,\[\]-]+: (?P<how>.*)")
#: A step of a moment: an allocation is not held longer for tidiness.
_SWEEP_S = 10.0
_PEACEFUL = re.compile(r"Exited with exit code (?:0|75)\b")


@dataclass
class Steps:
    """Started agents. ``nodes``: in order, spares last; ``trouble``: srun's complaints."""

    nodes: tuple[str, ...]
    local: bool
    popens: list[subprocess.Popen[bytes]] = field(default_factory=list)
    lost_nodes: list[str] = field(default_factory=list)
    ended_tasks: set[str] = field(default_factory=set)
    trouble: list[str] = field(default_factory=list)
    preempted: bool = False
    _readers: list[threading.Thread] = field(default_factory=list)

    # -- watching ------------------------------------------------------------------------------

    def over(self) -> bool:
        return all(popen.poll() is not None for popen in self.popens)

    def gone(self, node: str) -> bool:
        """Whether the node's agent is known to have ended: then the node itself still answers."""
        if self.local:
            return self.popens[self.nodes.index(node)].poll() is not None
        return node in self.ended_tasks or self.over()

    def named_lost(self, node: str) -> bool:
        """Whether srun said that the node failed; without a name it may be any."""
        return node in self.lost_nodes or "" in self.lost_nodes

    def vanished(self, node: str) -> bool:
        """Whether only its agent is gone: from a node that answers, which proves nothing about the node."""
        return self.gone(node) and not self.named_lost(node)

    def code_of(self, node: str) -> int:
        """The exit code of an agent that did not say how it went."""
        if self.local:
            return self.popens[self.nodes.index(node)].returncode or 0
        return self.popens[0].returncode or 0

    # -- acting --------------------------------------------------------------------------------

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

    def close(self, killed: Sequence[str] = ()) -> None:
        """After the end: srun's last words, and what killed agents left behind on nodes that answer."""
        for reader in self._readers:
            reader.join(2.0)
        if self.local:
            processes.kill_descendants(known=[popen.pid for popen in self.popens])
            sweep()
        elif killed:
            _sweep_nodes(killed)

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
                if ended:
                    self.ended_tasks.update(expand_nodelist(ended["nodes"]))
                if lost or (ended and not _PEACEFUL.search(ended["how"])):
                    self.trouble.append(line.strip())

        self._readers.append(threading.Thread(target=read, daemon=True))
        self._readers[-1].start()


def _sweep_nodes(nodes: Sequence[str]) -> None:
    """Free what an agent held in a node's memory: nobody else does it before our next job comes there."""
    count = len(nodes)
    argv = [
        "srun", f"--nodelist={','.join(nodes)}", f"--nodes={count}", f"--ntasks={count}",
        "--ntasks-per-node=1", "--overlap", "--kill-on-bad-exit=0", "--export=ALL", "--input=none",
        sys.executable, "-m", "launch.localdir",
    ]  # fmt: skip
    env = agent_environment(os.environ)
    try:
        subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, timeout=_SWEEP_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"trainmaster: memory of {','.join(nodes)} not swept: {error}", file=sys.stderr, flush=True)


def agent_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The supervisor's own, and a path on which our modules import."""
    # The user's directory may hold a `launch` or `models` of its own: never import from it (3.11 on).
    return {**environ, **python_path(environ), "PYTHONSAFEPATH": "1"}


def srun_argv(config: StageConfig, allocation: Allocation) -> list[str]:
    """``srun`` with one task a node. Everything a site may have set otherwise is said."""
    launch = config.launch
    count = len(agent_nodes(config, allocation))
    argv = [
        "srun",
        f"--nodes={count}",
        f"--ntasks={count}",
        "--ntasks-per-node=1",
        # An agent that ends must not take the others with it: they may be saving.
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--export=ALL",
        "--input=none",
    ]
    if launch.spare_nodes or launch.min_nodes:
        argv.append("--no-kill")  # the step outlives a lost node
    cpus = launch.cpus_per_node or allocation.cpus_per_node
    if cpus:
        # From 22.05 on srun no longer takes sbatch's value: one CPU would hold all ranks.
        argv.append(f"--cpus-per-task={cpus}")
    if launch.container:
        from .container import container_srun_args

        argv += container_srun_args(launch.container, workdir=os.getcwd(), env_names=("PYTHONPATH",))
    return [*argv, *launch.srun_args]


def agent_nodes(config: StageConfig, allocation: Allocation) -> tuple[str, ...]:
    """The nodes that get an agent: those that train and the spares."""
    return allocation.nodes[: config.launch.nodes + config.launch.spare_nodes]


def agent_argv(config: StageConfig, run_dir: Path, link: int, attempt: str, python: str) -> list[str]:
    return [
        python, "-m", "launch.agent",
        "--run-dir", str(run_dir), "--stage", config.name, "--link", str(link), "--attempt", attempt,
    ]  # fmt: skip


def start(
    config: StageConfig,
    allocation: Allocation,
    hub: Hub,
    *,
    run_dir: Path,
    link: int,
    environ: Mapping[str, str],
) -> Steps:
    """Start an agent on each node. Must be called from the main thread (see ``child_hook``)."""
    attempt = allocation.attempt(config.cluster)
    steps = Steps(agent_nodes(config, allocation), allocation.scheduler == "local")
    # By environment, which only this user can read, not by arguments, which everybody can.
    env = agent_environment(environ) | {ENV_CHANNEL: channel_address(allocation.address, hub)}
    in_container = bool((config.launch.container or {}).get("runtime") == "pyxis")
    python = config.launch.python if in_container else sys.executable
    argv = agent_argv(config, run_dir, link, attempt, python)
    if steps.local:
        processes.become_subreaper()
        for node in steps.nodes:
            own: Sequence[str] = [*argv, "--node", node]
            steps.popens.append(
                subprocess.Popen(own, env=env, stdin=subprocess.DEVNULL, preexec_fn=processes.child_hook())
            )
        return steps
    popen = subprocess.Popen(
        [*srun_argv(config, allocation), *argv],
        env=env,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=processes.child_hook(),
    )
    steps.popens.append(popen)
    assert popen.stderr is not None
    steps.listen(popen.stderr)
    return steps
