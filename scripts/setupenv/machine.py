"""What is on this machine: a GPU, a torch, a libc. Looks only, changes nothing."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
from pathlib import Path

# Metadata only: importing torch takes seconds, and one that is there but broken is still the
# user's, to be reported and not to be replaced.
_PROBE = """
import importlib.metadata as m
try:
    print(m.version("torch"))
except m.PackageNotFoundError:
    pass
"""
_SITES = "import json, sys; print(json.dumps([p for p in sys.path if p.endswith('-packages')]))"


def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, away from the current folder and its modules. PYTHONPATH stays: a
    site's module system may bring its torch that way, and that one is a user's own too."""
    return subprocess.run(
        argv,
        capture_output=True,
        text=True,
        cwd="/",
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


def has_nvidia_gpu() -> bool:
    """True if nvidia-smi answers and lists at least one GPU; a driver without a device is none."""
    program = shutil.which("nvidia-smi")
    if not program:
        return False
    try:
        done = run([program, "-L"])
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and "GPU " in done.stdout


def glibc() -> tuple[int, int] | None:
    """(2, 36) on Debian 12; None where the C library is another one."""
    name, version = platform.libc_ver()
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if name == "glibc" and match else None


def _ask(python: Path, code: str) -> str:
    """What `code` prints under `python`; "" if it fails."""
    done = run([str(python), "-c", code])
    return done.stdout.strip() if done.returncode == 0 else ""


def python_version(python: Path) -> str:
    """E.g. "3.11.7"; "" if it does not start."""
    return _ask(python, "import sys; print(sys.version.split()[0])")


def torch_version(python: Path) -> str | None:
    """The version of the torch that `python` sees, e.g. "2.13.0+cpu"; None: it has none."""
    return _ask(python, _PROBE) or None


def site_folders(python: Path) -> list[str]:
    """Where `python` has its packages."""
    text = _ask(python, _SITES)
    return [str(p) for p in json.loads(text)] if text else []
