"""The processes of a role on one node: argument lists and environments, nothing is started here.

``tests/launch/test_roles.py``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from . import rank as shim
from .config import StageConfig
from .placeholders import fill
from .rendezvous import own_address

_SHIM = os.path.abspath(shim.__file__)
_ROOT = Path(_SHIM).parent.parent
_STEP_WIDE = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True)
class Place:
    """One node of the attempt. ``master``: address of the first node; ``port``: free there."""

    node: str
    index: int
    count: int
    master: str
    port: int


@dataclass(frozen=True)
class Process:
    """One process to start. ``rank`` None: a launcher, whose ranks record their own ends.

    ``ignore``: signals to start with ignored, so that one sent to a whole step leaves the ranks time to save.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    rank: int | None = None
    ignore: tuple[signal.Signals, ...] = ()


def choose_launcher(config: StageConfig) -> str:
    """What ``auto`` means: no launcher for a command or a single rank, else NVRx where it is installed."""
    launch = config.launch
    if launch.launcher != "auto":
        return launch.launcher
    if config.is_command or launch.world == 1:
        return "none"
    return "ft_launcher" if _has_nvrx(launch.python) else "torchrun"


def _has_nvrx(python: str) -> bool:
    if os.path.realpath(python) == os.path.realpath(sys.executable) or not os.path.exists(python):
        return find_spec("nvidia_resiliency_ext") is not None
    code = "import sys, importlib.util as u; sys.exit(u.find_spec('nvidia_resiliency_ext') is None)"
    return subprocess.run([python, "-c", code], check=False, timeout=120).returncode == 0


def python_path(environ: Mapping[str, str]) -> dict[str, str]:
    """PYTHONPATH under which our own modules import, when they run from a checkout.

    Never for an installed package: its site-packages must not leak into another Python.
    """
    if _ROOT.name in ("site-packages", "dist-packages"):
        return {}
    parts = [p for p in environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    if str(_ROOT) not in parts:
        parts.append(str(_ROOT))
    return {"PYTHONPATH": os.pathsep.join(parts)}


def role_environment(config: StageConfig, base: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """What every process of the role sees: the allocation's, then the user's, then the contract's.

    The user's ``env`` may set anything but the names that this project's programs rely on.
    """
    env = {name: value for name, value in base.items() if name != "PYTHONSAFEPATH"}
    env.setdefault("PYTHONUNBUFFERED", "1")
    env |= config.launch.env
    env |= python_path(env)
    return {**env, **own}


def build(
    config: StageConfig,
    place: Place,
    env: Mapping[str, str],
    *,
    run_dir: Path,
    link: int,
    local_dir: Path,
) -> list[Process]:
    """The processes of this node. Raises TrainmasterError for a command that cannot be filled in."""
    launcher = choose_launcher(config)
    target = _target(config, run_dir, link)
    if launcher == "none":
        processes = _plain(config, place, env, target)
    else:
        processes = [_launched(launcher, config, place, env, target, local_dir)]
    if not config.launch.container:
        return processes
    from .container import container_wrap

    workdir = config.launch.workdir or os.getcwd()
    inside: dict[str, Any] = {"workdir": workdir, "gpus": config.launch.gpus_per_node > 0}
    container = config.launch.container
    return [replace(one, argv=container_wrap(container, one.argv, **inside)) for one in processes]


def _target(config: StageConfig, run_dir: Path, link: int) -> list[str]:
    launch = config.launch
    if launch.argv is not None:
        return fill(launch.argv, config, run_dir, link)
    assert launch.program is not None
    return [*launch.program, "--config", str(config.path)]


def _shimmed(config: StageConfig, target: Sequence[str], *options: str) -> list[str]:
    if config.is_command:
        options = ("--exec", *options)
    return [config.launch.python, _SHIM, *options, "--", *target]


def _plain(config: StageConfig, place: Place, env: Mapping[str, str], target: Sequence[str]) -> list[Process]:
    """Every rank a child of the agent. A command runs as it is: its code is its own."""
    count = config.launch.ranks_per_node
    argv = list(target) if config.is_command else _shimmed(config, target)
    found = []
    for local in range(count):
        number = place.index * count + local
        ranks = {
            "RANK": str(number),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(config.launch.world),
            "LOCAL_WORLD_SIZE": str(count),
            "NODE_RANK": str(place.index),
            "GROUP_RANK": str(place.index),
        }
        if config.launch.world > 1:
            ranks |= {"MASTER_ADDR": place.master, "MASTER_PORT": str(place.port)}
        found.append(Process(argv, {**env, **ranks}, rank=number))
    return found


def _launched(
    launcher: str,
    config: StageConfig,
    place: Place,
    env: Mapping[str, str],
    target: Sequence[str],
    local_dir: Path,
) -> Process:
    """One launcher for the node's ranks."""
    launch = config.launch
    # A launcher alone on its node needs no port that others know: 0 takes a free one.
    endpoint = f"{place.master}:{place.port}" if place.count > 1 else "127.0.0.1:0"
    options = [
        "--nnodes", str(place.count),
        "--nproc-per-node", str(launch.ranks_per_node),
        "--rdzv-backend", "c10d",
        "--rdzv-endpoint", endpoint,
        "--rdzv-id", env.get("TRAINMASTER_ATTEMPT", "attempt").replace("/", "-"),
        # By number, not by name: names of nodes need not resolve to themselves.
        "--rdzv-conf", f"is_host={int(place.index == 0)},join_timeout=600",
        "--local-addr", own_address(place.master, place.port) if place.count > 1 else "127.0.0.1",
        "--max-restarts", str(launch.restarts_in_job),
        "--monitor-interval", "0.3",
    ]  # fmt: skip
    # The two-agent rendezvous of torch 2.13 on gloo often hangs after a restart with a shared store.
    env = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **env}
    if launcher == "torchrun":
        module = "torch.distributed.run"
        # torchrun would answer a step-wide TERM by ending the ranks that are about to save. Variables, not
        # options: an older torch ignores them.
        env = {"PET_SIGNALS_TO_HANDLE": "SIGINT,SIGHUP,SIGQUIT", **env}
        env = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "10", **env}
    else:
        module = "nvidia_resiliency_ext.fault_tolerance.launcher"
        options += [
            "--ft-cfg-path", str(_ft_config(local_dir)),
            "--term-timeout", str(int(launch.grace_s) + 10),
            "--workers-stop-timeout", "5",
        ]  # fmt: skip
    program = _shimmed(config, target, "--launched")
    return Process([launch.python, "-m", module, *options, "--no-python", *program], env, ignore=_STEP_WIDE)


def _ft_config(local_dir: Path) -> Path:
    """NVRx refuses to start without a configuration. Programs send no heartbeats yet: no timeouts."""
    path = local_dir / "ft.yaml"
    config = {
        "workload_check_interval": 5.0,
        "initial_rank_heartbeat_timeout": None,
        "rank_heartbeat_timeout": None,
        "enable_nic_monitor": False,
    }
    path.write_text(json.dumps({"fault_tolerance": config}), encoding="utf-8")  # JSON is YAML
    return path
