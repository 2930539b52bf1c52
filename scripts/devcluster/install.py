"""Which programs a dev cluster needs, what is missing, and their installation by apt.

`install` is the one verb that changes the machine outside the state directory. While apt runs,
a policy-rc.d keeps the packages from starting services of their own; it is taken away again
afterwards.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import EXIT_NEEDS_ROOT, EXIT_NOT_INSTALLED, DevClusterError

# program -> Debian package that brings it
PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "sbatch": "slurm-client",
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "mariadb": "mariadb-client",
    "useradd": "passwd",
}
PACKAGES = (
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "munge",
    "mariadb-server",
)
POLICY = Path("/usr/sbin/policy-rc.d")
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def apt_command() -> list[str]:
    return ["apt-get", "install", "-y", "--no-install-recommends", *PACKAGES]


def missing_programs() -> list[str]:
    return [name for name in PROGRAMS if not shutil.which(name, path=SEARCH_PATH)]


def require_installed() -> None:
    missing = missing_programs()
    if missing:
        raise DevClusterError(
            f"not installed: {', '.join(missing)}",
            hint="run `dev-cluster install` as root, or: apt-get update && " + " ".join(apt_command()),
            code=EXIT_NOT_INSTALLED,
        )


def slurm_version() -> tuple[int, int]:
    """(22, 5) for "slurm-wlm 22.05.8"."""
    program = shutil.which("slurmctld", path=SEARCH_PATH) or "slurmctld"
    out = subprocess.run([program, "-V"], capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    match = re.search(r"(\d+)\.(\d+)", out)
    if not match:
        raise DevClusterError(
            f"`slurmctld -V` says {out.strip()!r}: no version in it", hint="is Slurm whole?"
        )
    return int(match[1]), int(match[2])


@contextmanager
def no_service_starts() -> Iterator[None]:
    """Packages would start a munged, a MariaDB and Slurm daemons of the machine's own; a site's
    policy stays."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\n# put here by dev-cluster install, for its duration\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)


def install() -> bool:
    """Install what is missing; False when nothing was. Output of apt goes to the caller's
    terminal."""
    missing = missing_programs()
    if not missing:
        return False
    by_hand = f"apt-get update && {' '.join(apt_command())}"
    if not shutil.which("apt-get", path=SEARCH_PATH):
        raise DevClusterError(
            f"missing: {', '.join(missing)}, and this is no Debian or Ubuntu (no apt-get)",
            hint="install Slurm (with slurmdbd and its MySQL plugin), munge and MariaDB "
            "by your system's own means",
            code=EXIT_NOT_INSTALLED,
        )
    if os.geteuid() != 0:
        packages = ", ".join(dict.fromkeys(PROGRAMS[name] for name in missing))
        raise DevClusterError(
            f"missing: {', '.join(missing)} (packages: {packages}); installing needs root",
            hint=f"sudo scripts/dev-cluster install, or: sudo sh -c '{by_hand}'",
            code=EXIT_NEEDS_ROOT,
        )
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "PATH": SEARCH_PATH}
    with no_service_starts():
        for command in (["apt-get", "update"], apt_command()):
            done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL)
            if done.returncode:
                raise DevClusterError(
                    f"`{' '.join(command)}` failed ({done.returncode}), see above",
                    hint="put that right, then again",
                )
    require_installed()
    return True
