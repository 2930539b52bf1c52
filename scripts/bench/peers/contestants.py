"""The ways to keep a run going that are compared: how each submits ``work.py`` with this cluster's means.

Each is what a careful user writes today, tuned for short faults (heartbeat timeout 3 s, quick monitors), so
that what differs is the tool. Facts that shape them: ``--requeue`` acts on node loss and preemption only;
two torchrun agents may not share the rendezvous store on gloo (torch 2.13); a hot spare of a launcher is a
third node with ``--nnodes 2`` and ``--no-kill``; a chain of singletons needs no requeue and waits for none.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
WORK = HERE / "work.py"
OURS = "trainmaster"

#: NVRx: a rank that is silent for 3 s hangs; looked at twice a second.
FT_CONFIG = {
    "fault_tolerance": {
        "workload_check_interval": 0.5,
        "initial_rank_heartbeat_timeout": 40,
        "rank_heartbeat_timeout": 3,
        "node_health_check_interval": 5,
        "enable_nic_monitor": False,
    }
}


@dataclass(frozen=True)
class Setting:
    """One run: where it lies, its jobs' name, the limit in minutes, and what the work is told."""

    folder: Path
    name: str
    minutes: int
    env: Mapping[str, str] = field(default_factory=dict)
    fault: str = "none"


def _prologue(setting: Setting) -> str:
    """What every job script begins with: the environment, and a port of this start's own."""
    exports = {
        **setting.env,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
    }
    lines = [f"export {name}={shlex.quote(value)}" for name, value in exports.items()]
    lines.append(
        "export MASTER_PORT=$((23000 + (SLURM_JOB_ID * 41 + ${SLURM_RESTART_COUNT:-0} * 13) % 8000))"
    )
    return "\n".join(lines)


def _sbatch(setting: Setting, body: str, *options: str, nodes: int = 2) -> None:
    script = "\n".join(["#!/bin/bash", _prologue(setting), body]) + "\n"
    argv = [
        "sbatch", "--parsable", f"--job-name={setting.name}", "--partition=low", f"--nodes={nodes}",
        "--ntasks-per-node=1", "--exclusive", f"--time={setting.minutes}", "--open-mode=append",
        f"--output={setting.folder}/log", f"--chdir={setting.folder}", *options,
    ]  # fmt: skip
    subprocess.run(argv, input=script, text=True, check=True, stdout=subprocess.DEVNULL)


_RDZV = (
    "--nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-id $SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0} "
    "--rdzv-endpoint 127.0.0.1:$MASTER_PORT --rdzv-conf is_host=$((SLURM_NODEID == 0)) --local-addr 127.0.0.1"
)


def _each_node(command: str, *srun: str) -> str:
    """``srun`` of one shell a node, so that what differs between nodes is known where it is used."""
    return f"srun {' '.join(srun)} bash -c {shlex.quote('exec ' + command)}"


def _torchrun() -> str:
    return f"torchrun {_RDZV} --max-restarts 3 --monitor-interval 0.3 {WORK}"


def _ft_launcher(setting: Setting) -> str:
    config = setting.folder / "ft.yaml"
    config.write_text(json.dumps(FT_CONFIG))  # JSON is YAML
    return (
        f"ft_launcher {_RDZV} --max-restarts 3 --monitor-interval 0.3 --workers-stop-timeout 2 "
        f"--ft-cfg-path {config} {WORK}"
    )


def requeue(setting: Setting) -> None:
    """``sbatch --requeue``, as manuals have it."""
    _sbatch(setting, f"srun python {WORK}", "--requeue")


def loop(setting: Setting) -> None:
    """A loop in the job script that tries again, and a trap that requeues before the limit."""
    body = f"""
trap 'scontrol requeue "$SLURM_JOB_ID"' USR1
for try in 1 2 3 4; do
  srun --kill-on-bad-exit=1 python {WORK} &
  wait $! && exit 0
  MASTER_PORT=$((MASTER_PORT + 1))
done
exit 1"""
    _sbatch(setting, body, "--requeue", "--signal=B:USR1@15")


def torchrun(setting: Setting) -> None:
    """torchrun's restarts, with the variable without which two agents hang."""
    body = "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1\n" + _each_node(_torchrun())
    _sbatch(setting, body, "--requeue")


def ft_launcher(setting: Setting) -> None:
    """NVRx's launcher with heartbeats."""
    _sbatch(setting, _each_node(_ft_launcher(setting)), "--requeue")


def ft_spare(setting: Setting) -> None:
    """The same with a third node as a hot spare."""
    body = _each_node(_ft_launcher(setting), "--no-kill")
    _sbatch(setting, body, "--requeue", "--no-kill", nodes=3)


def chain(setting: Setting) -> None:
    """Three links queued as singletons, each NVRx's launcher; the first that finds it done leaves."""
    body = f"[ -e {setting.folder}/done ] && exit 0\n" + _each_node(_ft_launcher(setting))
    for _ in range(3):
        _sbatch(setting, body, "--no-requeue", "--dependency=singleton")


def trainmaster(setting: Setting) -> None:
    """A command stage of the same script: under NVRx's launcher too, modules imported ahead."""
    import yaml

    limit = setting.fault == "limit"
    spare = 1 if setting.fault == "crash-spare" else 0
    experiment = {
        "name": setting.name,
        "cluster": "bench",
        "stages": {
            "work": {
                "kind": "command",
                "run": [sys.executable, str(WORK)],
                "launcher": "ft_launcher",
                "warm": ["torch", "torch.distributed.checkpoint", "torch.nn.parallel", "torch.optim"],
                "env": {**setting.env, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
                "resources": {
                    "nodes": 2,
                    "spare_nodes": spare,
                    "time": f"00:{setting.minutes:02d}:00",
                    "exclusive": True,
                },
                "chain": {
                    "startup": "10s",
                    "save_time": "1s",
                    "signal_lead": "5s" if limit else "20s",
                    "lookahead": 5 if limit else 2,
                },
                "recovery": {"hang": {"floor": 3, "factor": 3, "first": 40}},
            }
        },
    }
    home = setting.folder / "home"
    home.mkdir()
    profile = {
        "scheduler": "slurm",
        "partition": "low",
        "runs_dir": str(setting.folder / "runs"),
        "settle_s": 3,
        "signal_early_s": 0 if limit else 15,
    }
    (home / "clusters.yaml").write_text(yaml.safe_dump({"bench": profile}))
    path = setting.folder / "work.yaml"
    path.write_text(yaml.safe_dump(experiment))
    env = {**os.environ, "TRAINMASTER_HOME": str(home), "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "orchestrator", "submit", str(path), "--offline"]
    subprocess.run(argv, env=env, check=True, stdout=(setting.folder / "submit.log").open("w"))


CONTESTANTS: dict[str, Callable[[Setting], None]] = {
    "requeue": requeue,
    "loop": loop,
    "torchrun": torchrun,
    "ft_launcher": ft_launcher,
    "ft_spare": ft_spare,
    "chain": chain,
    OURS: trainmaster,
}
