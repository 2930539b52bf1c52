"""Turns settings into Slurm's configuration files and hook scripts, from the templates in `data/`.

Text in, text out (`render_all`), plus `write_if_changed`. No process is started here.
"""

from __future__ import annotations

import os
import string
from pathlib import Path

from .settings import Cluster, Layout, Settings

DATA = Path(__file__).parent / "data"
# `disabled` came with 23.11; without it a newer slurmd refuses to start where there is no cgroup
# file system.
CGROUP_PLUGIN_DISABLED_SINCE = (23, 11)


def _fill(template: str, **values: object) -> str:
    return string.Template((DATA / template).read_text()).substitute(**{k: str(v) for k, v in values.items()})


def render_all(
    layout: Layout, settings: Settings, slurm_version: tuple[int, int], database_password: str
) -> dict[Path, tuple[str, int]]:
    """Every file of the cluster as path -> (text, mode)."""
    root = layout.root
    files: dict[Path, tuple[str, int]] = {}
    files[layout.dbd_conf] = (
        _fill(
            "slurmdbd.conf",
            root=root,
            munge_socket=layout.munge_socket,
            dbd_port=settings.dbd_port,
            database_port=settings.database_port,
            database_password=database_password,
        ),
        0o600,
    )
    for hook in ("prolog", "epilog"):
        files[layout.hooks / hook] = (_fill("hook", root=root, hook=hook), 0o755)
    files[layout.hooks / "health"] = (_fill("health", root=root), 0o755)
    for cluster in settings.clusters:
        where = layout.conf_dir(cluster.name)
        files[where / "slurm.conf"] = (_slurm_conf(layout, settings, cluster), 0o644)
        files[where / "gres.conf"] = (_gres_conf(layout, settings, cluster), 0o644)
        files[where / "cgroup.conf"] = (_cgroup_conf(slurm_version), 0o644)
    return files


def _range(cluster: Cluster) -> str:
    return f"{cluster.prefix}[1-{cluster.nodes}]"


def _slurm_conf(layout: Layout, settings: Settings, cluster: Cluster) -> str:
    first, last = cluster.first_node_port, cluster.first_node_port + cluster.nodes - 1
    gpus = settings.gpus
    return _fill(
        "slurm.conf",
        root=layout.root,
        cluster=cluster.name,
        controller_port=cluster.controller_port,
        munge_socket=layout.munge_socket,
        dbd_port=settings.dbd_port,
        gres_types="GresTypes=gpu\nAccountingStorageTRES=gres/gpu" if gpus else "# no GPUs (--gpus 0)",
        node_gres=f" Gres=gpu:fake:{gpus}" if gpus else "",
        node_range=_range(cluster),
        port_range=f"[{first}-{last}]",
        cpus=settings.cpus,
        cores_per_socket=settings.cpus // 2,
        memory_mb=settings.memory_mb,
        last_node=cluster.node_names[-1],
    )


def _gres_conf(layout: Layout, settings: Settings, cluster: Cluster) -> str:
    if not settings.gpus:
        return "AutoDetect=off\n"
    devices = f"{layout.root}/dev/fakegpu[0-{settings.gpus - 1}]"
    return (
        "# Fake GPUs: character devices that behave like /dev/null (Slurm refuses plain files)\n"
        f"AutoDetect=off\nNodeName={_range(cluster)} Name=gpu Type=fake File={devices}\n"
    )


def _cgroup_conf(slurm_version: tuple[int, int]) -> str:
    if slurm_version >= CGROUP_PLUGIN_DISABLED_SINCE:
        return "CgroupPlugin=disabled\n"
    return "# empty on purpose: nothing here uses cgroups\n"


def write_if_changed(path: Path, text: str, mode: int) -> bool:
    """Write atomically; False when the file already says so."""
    try:
        if path.read_text() == text and path.stat().st_mode & 0o777 == mode:
            return False
    except FileNotFoundError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    temporary.chmod(mode)
    temporary.replace(path)
    return True
