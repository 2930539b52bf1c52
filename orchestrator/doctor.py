"""What this cluster and environment can do, and the fix for each gap.

Each check looks at one thing and never raises: a check that cannot run says so. Nothing is changed,
except a small file written and removed in the runs directory. ``tests/orchestrator/test_doctor.py``.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from resiliency.edges import Runner
from resiliency.errors import TrainmasterError

from .clusters import Profile
from .home import Home
from .schedulers import open_scheduler


@dataclass(frozen=True)
class Check:
    """``status``: ok, warn, fail or unknown. ``fix``: what to do, empty when nothing need be done."""

    name: str
    status: str
    detail: str
    fix: str = ""


def examine(home: Home, profile: Profile, runner: Runner) -> list[Check]:
    """Every check, in the order in which a newcomer would mend things."""
    checks = [_python(), _home(home), _runs(home, profile)]
    checks += _scheduler(home, profile)
    checks += _training(profile, runner)
    checks.append(_ledger(home))
    return checks


def _python() -> Check:
    version = platform.python_version()
    return Check("python", "ok", f"{version} ({sys.executable})")


def _writable(path: Path) -> str | None:
    """None if a file can be written below ``path`` (made if missing), else why not."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path, prefix=".doctor-") as stream:
            stream.write(b"x" * 4096)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        return error.strerror or str(error)
    return None


def _filesystem(path: Path) -> str:
    """Type of the file system that holds ``path``, from /proc/mounts; ``unknown`` elsewhere."""
    best, kind = "", "unknown"
    try:
        lines = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return kind
    real = os.path.realpath(path)
    for line in lines:
        parts = line.split()
        if len(parts) >= 3 and len(parts[1]) >= len(best):
            mount = parts[1].rstrip("/") + "/"
            if (real + "/").startswith(mount):
                best, kind = parts[1], parts[2]
    return kind


def _home(home: Home) -> Check:
    why = _writable(home.root)
    if why:
        return Check(
            "home",
            "fail",
            f"{home.root}: {why}",
            "set TRAINMASTER_HOME to a directory you can write",
        )
    return Check("home", "ok", f"{home.root} ({_filesystem(home.root)})")


def _runs(home: Home, profile: Profile) -> Check:
    root = Path(profile.runs_dir).expanduser() if profile.runs_dir else home.default_runs
    why = _writable(root)
    if why:
        return Check(
            "runs directory",
            "fail",
            f"{root}: {why}",
            "set runs_dir in clusters.yaml to your scratch space",
        )
    free = shutil.disk_usage(root).free / 1e9
    kind = _filesystem(root)
    detail = f"{root} ({kind}, {free:.0f} GB free)"
    if profile.scheduler == "slurm" and kind in ("tmpfs", "ext4", "xfs", "btrfs", "overlay"):
        return Check(
            "runs directory",
            "warn",
            f"{detail}: looks local to this machine",
            "compute nodes must see it: set runs_dir in clusters.yaml to a shared file system "
            "(ignore this if the cluster is one machine)",
        )
    if free < 5:
        return Check("runs directory", "warn", detail, "free space: checkpoints will not fit")
    return Check("runs directory", "ok", detail)


def _scheduler(home: Home, profile: Profile) -> list[Check]:
    try:
        facts: Mapping[str, Any] = open_scheduler(profile, home=home.root).facts()
    except TrainmasterError as error:
        return [Check("scheduler", "fail", error.message, error.hint)]
    if not facts.get("reachable", False):
        detail = "; ".join(map(str, facts.get("problems", ()))) or "no answer"
        return [
            Check(
                "scheduler",
                "fail",
                f"{profile.scheduler}: {detail}",
                "check SLURM_CONF and that slurmctld is up (scontrol ping), or use --cluster local",
            )
        ]
    checks = [Check("scheduler", "ok", f"{profile.scheduler} {facts.get('version', '')}".strip())]
    for name, part in dict(facts.get("partitions", {})).items():
        limit = part.get("max_time_s")
        text = f"{part.get('nodes')} nodes, time limit {'none' if limit is None else f'{limit / 3600:g} h'}"
        if part.get("gpus_per_node"):
            text += f", {part['gpus_per_node']} GPUs a node"
        status = "ok" if part.get("up", True) else "warn"
        checks.append(
            Check(
                f"partition {name}",
                status,
                text + (", default" if part.get("default") else ""),
                "" if status == "ok" else "it is down: ask the site, or choose another partition",
            )
        )
    if facts.get("accounts"):
        checks.append(Check("accounts", "ok", ", ".join(facts["accounts"])))
    limits = {k: v for k, v in dict(facts.get("limits", {})).items() if v is not None}
    if limits:
        checks.append(Check("limits", "ok", ", ".join(f"{k}={v}" for k, v in limits.items())))
    if profile.scheduler == "local":
        checks.append(Check("accounting", "ok", "kept by the local scheduler itself"))
    elif facts.get("accounting"):
        checks.append(Check("accounting", "ok", "sacct answers: causes and history are complete"))
    else:
        checks.append(
            Check(
                "accounting",
                "warn",
                "sacct does not answer",
                "runs work without it; run `tick` from cron at least every 4 minutes, since Slurm forgets "
                "ended jobs after MinJobAge (300 s by default)",
            )
        )
    if "preemption" in facts:
        checks.append(Check("preemption", "ok", str(facts["preemption"])))
    kill_wait = facts.get("kill_wait_s")
    if isinstance(kill_wait, (int, float)) and kill_wait < 30:
        checks.append(
            Check(
                "KillWait",
                "warn",
                f"{kill_wait} s between TERM and KILL",
                "a checkpoint on preemption or scancel must fit into it; rely on checkpoint.interval",
            )
        )
    checks += [Check("scheduler", "unknown", str(problem)) for problem in facts.get("problems", ())]
    return checks


_TRAINING: tuple[tuple[str, str, str], ...] = (
    ("torch", "fail", "install the training extra: pip install 'trainmaster[train]'"),
    ("megatron-core", "fail", "install the training extra: pip install 'trainmaster[train]'"),
    (
        "nvidia-resiliency-ext",
        "warn",
        "install the training extra; until then torchrun launches the ranks",
    ),
    (
        "transformer-engine",
        "warn",
        "GPU only: pip install --no-build-isolation 'trainmaster[te]'; "
        "until then Megatron's local layers are used",
    ),
)


_VERSIONS = """
import importlib.metadata as m, sys
for n in sys.argv[1:]:
    try: print(n, m.version(n))
    except m.PackageNotFoundError: print(n, "-")
"""


def _training(profile: Profile, runner: Runner) -> list[Check]:
    """Versions in the Python that stages run with (this one unless the profile names another)."""
    python = profile.environment.python if profile.environment else None
    if python and os.path.realpath(python) != os.path.realpath(sys.executable):
        code = _VERSIONS
        done = runner([python, "-c", code, *(n for n, _, _ in _TRAINING)], timeout_s=30)
        if not done.ok:
            return [
                Check(
                    "training python",
                    "fail",
                    f"{python}: {done.stderr.strip()[-200:]}",
                    "correct environment.python in clusters.yaml",
                )
            ]
        found = dict(line.split(None, 1) for line in done.stdout.splitlines() if " " in line)

        def version(name: str) -> str | None:
            return None if found.get(name, "-") == "-" else found[name]

    else:
        version = _version
    checks = []
    for name, missing, fix in _TRAINING:
        have = version(name)
        if have:
            checks.append(Check(name, "ok", have))
        else:
            checks.append(
                Check(
                    name,
                    missing if profile.container is None else "unknown",
                    "not installed in this Python",
                    fix,
                )
            )
    gpus = shutil.which("nvidia-smi")
    if gpus:
        done = runner(["nvidia-smi", "-L"], timeout_s=20)
        text = f"{len(done.stdout.splitlines())} on this machine" if done.ok else "nvidia-smi does not answer"
        checks.append(Check("GPUs", "ok" if done.ok else "warn", text, "" if done.ok else "check the driver"))
    else:
        checks.append(Check("GPUs", "ok", "none on this machine: training runs on the CPU (gloo) here"))
    return checks


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _ledger(home: Home) -> Check:
    from metrics.ledger import Ledger

    if not home.ledger.exists():
        return Check("ledger", "ok", "none yet; the first submit makes it")
    try:
        with Ledger.open(home.ledger, readonly=True):
            return Check("ledger", "ok", str(home.ledger))
    except TrainmasterError as error:
        return Check("ledger", "fail", error.message, error.hint)
