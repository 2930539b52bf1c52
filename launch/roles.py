"""The processes of a role on one node in one cycle: argument lists and environments, nothing is started.

A launcher never restarts its ranks (``--max-restarts 0``): the supervisor does, with a new launcher and a
new rendezvous. ``tests/launch/test_roles.py``.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from resiliency import contract

from . import rank as shim
from .config import StageConfig
from .placeholders import fill
from .rendezvous import own_address

_SHIM = os.path.abspath(shim.__file__)
_ROOT = Path(_SHIM).parent.parent
_STEP_WIDE = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
_MODULES = {
    "ft_launcher": "nvidia_resiliency_ext.fault_tolerance.launcher",
    "torchrun": "torch.distributed.run",
}
#: Stages whose program feeds NVRx's monitor all the time it runs.
_BEATING = ("pretrain",)
#: NVRx's own hang detection is the second: this many times later than ours could be.
_BACKSTOP = 3.0


@dataclass(frozen=True)
class Place:
    """One of the ``count`` nodes of a cycle. ``master``: address of the first; ``port``: free there."""

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


@functools.cache  # asked at each start, and a process to ask costs more than the start may
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


#: What torch imports only when it is first needed: DistributedDataParallel and every optimizer import
#: torch._dynamo (a second and more), a checkpoint fsspec.
_TORCH_LATER = ("torch.distributed", "torch._dynamo", "torch.distributed.checkpoint", "fsspec")


def warm_modules(config: StageConfig) -> list[str]:
    """What the node's warm server imports: the launcher and what the stage lists; empty: no server."""
    launch = config.launch
    if launch.container:
        return []
    launcher = _MODULES.get(choose_launcher(config))
    wanted = [*([launcher] if launcher else []), *launch.warm]
    if any(name.partition(".")[0] == "torch" for name in launch.warm):
        wanted += _TORCH_LATER
    return list(dict.fromkeys(wanted))


def warm_environment(config: StageConfig, base: Mapping[str, str]) -> dict[str, str]:
    """What the warm server is started with: all that the ranks will have and imports look at."""
    return _for_launcher(config, role_environment(config, base, {}))


def _for_launcher(config: StageConfig, env: Mapping[str, str]) -> dict[str, str]:
    """Variables of a launcher and its ranks; what the user set wins."""
    launcher = choose_launcher(config)
    if launcher == "none":
        return dict(env)
    # The rendezvous' own store serves the ranks: a second one costs them half a second, since the first rank
    # to ask for it waits that long. It is after a launcher's own restart that torch 2.13 on gloo often hangs
    # with it, and ours never restart.
    ours = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0"}
    if config.launch.ranks_per_node > 1:
        ours["OMP_NUM_THREADS"] = "1"  # as launchers do, but before anything is imported
    if launcher == "torchrun":
        # torchrun would answer a step-wide TERM by ending the ranks that are about to save. Variables, not
        # options: an older torch ignores them.
        ours["PET_SIGNALS_TO_HANDLE"] = "SIGINT,SIGHUP,SIGQUIT"
        ours["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = "5"
    return {**ours, **env}


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


def _shimmed(config: StageConfig, warm: bool, target: Sequence[str], *options: str) -> list[str]:
    """The target behind the shim. Asking a warm server needs no site-packages, starting cold does."""
    python = [config.launch.python, "-I", "-S"] if warm else [config.launch.python]
    return [*python, _SHIM, *options, *(["--warm"] if warm else []), "--", *target]


def _is_warm(config: StageConfig, env: Mapping[str, str]) -> bool:
    return bool(env.get(contract.ENV_WARM)) and not config.launch.container


def _plain(config: StageConfig, place: Place, env: Mapping[str, str], target: Sequence[str]) -> list[Process]:
    """Every rank a child of the agent. A command runs as it is: its code is its own."""
    count = config.launch.ranks_per_node
    world = place.count * count
    argv = list(target) if config.is_command else _shimmed(config, _is_warm(config, env), target)
    found = []
    for local in range(count):
        number = place.index * count + local
        ranks = {
            "RANK": str(number),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(world),
            "LOCAL_WORLD_SIZE": str(count),
            "NODE_RANK": str(place.index),
            "GROUP_RANK": str(place.index),
        }
        if world > 1:
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
    attempt = env.get(contract.ENV_ATTEMPT, "attempt").replace("/", "-")
    options = [
        "--nnodes", str(place.count),
        "--nproc-per-node", str(launch.ranks_per_node),
        "--rdzv-backend", "c10d",
        "--rdzv-endpoint", endpoint,
        # One rendezvous a cycle: what is left of an earlier one must not join it.
        "--rdzv-id", f"{attempt}-{env.get(contract.ENV_CYCLE) or 0}",
        # By number, not by name: names of nodes need not resolve to themselves.
        "--rdzv-conf", f"is_host={int(place.index == 0)},join_timeout=600,close_timeout=5",
        "--local-addr", own_address(place.master, place.port) if place.count > 1 else "127.0.0.1",
        "--max-restarts", "0",
        "--monitor-interval", "0.3",
    ]  # fmt: skip
    if launcher == "ft_launcher":
        options += [
            "--ft-cfg-path", str(_ft_config(config, local_dir)),
            "--term-timeout", str(int(launch.grace_s) + 10),
            "--workers-stop-timeout", "3",
        ]  # fmt: skip
    warm = _is_warm(config, env)
    program = _rank_words(config, target, env, warm)
    argv = ["-m", _MODULES[launcher], *options, "--no-python", *program]
    return Process(_shimmed(config, warm, argv, "--launcher"), _for_launcher(config, env), ignore=_STEP_WIDE)


def _rank_words(config: StageConfig, target: Sequence[str], env: Mapping[str, str], warm: bool) -> list[str]:
    """What a launcher starts for each rank. A command goes warm only where the user listed modules and
    its Python is the server's."""
    if not config.is_command:
        return _shimmed(config, warm, target, "--launched")
    warm = warm and bool(config.launch.warm) and same_python(target[0], config, env)
    return _shimmed(config, warm, target, "--exec", "--launched")


def same_python(word: str, config: StageConfig, env: Mapping[str, str]) -> bool:
    """Whether a command's first word starts ``launch.python``: the same file in the same environment."""
    if not re.fullmatch(r"python(3(\.\d+)?)?", os.path.basename(word)):
        return False
    if os.path.dirname(word):
        found: str | None = os.path.join(config.launch.workdir or os.getcwd(), word)
    else:
        found = shutil.which(word, path=env.get("PATH"))
    return found is not None and _identity(found) == _identity(config.launch.python)


def _identity(python: str) -> tuple[str, str]:
    """(the interpreter, its virtual environment): pyvenv.cfg lies above the name that was called."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(python)))
    has = os.path.exists(os.path.join(home, "pyvenv.cfg"))
    return os.path.realpath(python), os.path.realpath(home) if has else ""


def _ft_config(config: StageConfig, local_dir: Path) -> Path:
    """NVRx refuses to start without a configuration. Its timeouts are a backstop, for where ours fail."""
    path = local_dir / "ft.yaml"
    hang = config.recovery.get("hang") or {}
    timeout = None
    if config.kind in _BEATING and hang.get("detect", True):
        timeout = _BACKSTOP * max(float(hang.get("floor") or 60), float(hang.get("first") or 900))
    settings = {
        "workload_check_interval": 5.0,
        "initial_rank_heartbeat_timeout": timeout,
        "rank_heartbeat_timeout": timeout,
        "enable_nic_monitor": False,
    }
    path.write_text(json.dumps({"fault_tolerance": settings}), encoding="utf-8")  # JSON is YAML
    return path
