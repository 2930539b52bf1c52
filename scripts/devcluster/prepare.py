"""Makes the state directory: folders with their owners, configuration files, fake GPU devices;
checks the machine.

Starts nothing. Running it again changes nothing but what differs.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
from pathlib import Path

from .accounting import database_password, ensure_munge_key, protect_dbd_conf
from .daemons import directories
from .errors import EXIT_CONFLICT, DevClusterError
from .install import slurm_version
from .processes import Daemon
from .render import render_all, write_if_changed
from .settings import Layout, Settings
from .users import ensure_users

OURS = ".trainmaster-dev-cluster"  # a wipe removes only a directory that has this file


def check_machine(layout: Layout) -> None:
    try:
        socket.getaddrinfo(socket.gethostname(), None)
    except OSError as error:
        name = socket.gethostname()
        raise DevClusterError(
            f"this machine's own name {name!r} does not resolve, and slurmdbd needs it to",
            hint=f"add it: echo '127.0.0.1 {name}' >> /etc/hosts",
        ) from error
    for parent in layout.root.parents:
        if parent.exists() and not parent.stat().st_mode & stat.S_IXOTH:
            raise DevClusterError(
                f"{parent} is closed to other users: Slurm's daemons and the test users could not "
                f"reach {layout.root}",
                hint="set TRAINMASTER_DEV_CLUSTER_DIR to an open place, such as /tmp/slurm-box",
            )
    root = layout.root
    if root.is_dir() and any(root.iterdir()) and not (root / OURS).exists():
        raise DevClusterError(
            f"{root} has files in it that dev-cluster did not make",
            hint="set TRAINMASTER_DEV_CLUSTER_DIR to a new or empty folder",
            code=EXIT_CONFLICT,
        )


def check_ports(daemons: list[Daemon]) -> None:
    for daemon in daemons:
        for port in daemon.ports:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError as error:
                    raise DevClusterError(
                        f"port {port}, meant for {daemon.name}, is taken: {error.strerror}",
                        hint="give other ports with `dev-cluster up --port-base N`; "
                        f"who has it: ss -ltnp 'sport = :{port}'",
                        code=EXIT_CONFLICT,
                    ) from error


def make_directories(layout: Layout, settings: Settings) -> None:
    for path, owner, mode in directories(layout, settings):
        fresh = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        if fresh or path.owner() != owner:
            shutil.chown(path, owner, owner)
        if path.stat().st_mode & 0o7777 != mode:
            path.chmod(mode)
    (layout.root / OURS).touch()


def make_fake_gpus(layout: Layout, count: int) -> None:
    """Twins of /dev/null: Slurm takes nothing but device files for a GPU."""
    for number in range(count):
        path = layout.root / f"dev/fakegpu{number}"
        if path.exists():
            continue
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except OSError as error:
            raise DevClusterError(
                f"the fake GPU {path} could not be made: {error.strerror}",
                hint="a container may forbid mknod: use `up --gpus 0`, or give it CAP_MKNOD",
            ) from error
        path.chmod(0o666)


def write_configuration(layout: Layout, settings: Settings) -> list[Path]:
    """Render everything; the files that changed."""
    files = render_all(layout, settings, slurm_version(), database_password(layout))
    changed = [path for path, (text, mode) in files.items() if write_if_changed(path, text, mode)]
    protect_dbd_conf(layout.dbd_conf)
    write_if_changed(layout.settings_file, settings.to_json(), 0o644)
    return changed


def prepare(layout: Layout, settings: Settings) -> list[Path]:
    make_directories(layout, settings)
    ensure_users(layout, settings.users)
    ensure_munge_key(layout)
    make_fake_gpus(layout, settings.gpus)
    return write_configuration(layout, settings)
