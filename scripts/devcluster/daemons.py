"""Which daemons a cluster consists of, in starting order, as `Daemon` values built from
settings and layout.

Only describes them; `cluster.py`, `accounting.py` and `nodes.py` act.
"""

from __future__ import annotations

from pathlib import Path

from .processes import Daemon, clean_environment
from .settings import Cluster, Layout, Settings


def munged(layout: Layout) -> Daemon:
    root = layout.root
    pid_file, log = root / "run/munge/munged.pid", root / "log/munge/munged.log"
    command = (
        "munged",
        f"--socket={layout.munge_socket}",
        f"--key-file={layout.munge_key}",
        f"--pid-file={pid_file}",
        f"--log-file={log}",
        f"--seed-file={root / 'state/munge/munged.seed'}",
    )
    return Daemon("munged", command, pid_file, log, clean_environment(root), user="munge")


def mariadbd(layout: Layout, settings: Settings) -> Daemon:
    root = layout.root
    pid_file, log = root / "run/mysql/mysqld.pid", root / "log/mysql/error.log"
    command = (
        "mariadbd",
        "--no-defaults",  # the machine's own MariaDB configuration is none of ours
        "--user=mysql",
        f"--datadir={layout.database_dir}",
        f"--socket={layout.database_socket}",
        f"--pid-file={pid_file}",
        f"--log-error={log}",
        "--bind-address=127.0.0.1",
        f"--port={settings.database_port}",
        "--innodb-buffer-pool-size=128M",
        "--innodb-log-file-size=64M",
        "--innodb-lock-wait-timeout=900",  # slurmdbd warns below this
        "--innodb-flush-log-at-trx-commit=2",  # a rehearsal may lose a second in a power cut
        "--max-allowed-packet=16M",
    )
    ports = (settings.database_port,)
    return Daemon("mariadbd", command, pid_file, log, clean_environment(root), forks=False, ports=ports)


def slurmdbd(layout: Layout, settings: Settings) -> Daemon:
    root = layout.root
    environment = clean_environment(root, SLURM_CONF=str(layout.dbd_conf))
    pid_file, log = root / "run/slurm/slurmdbd.pid", root / "log/slurm/slurmdbd.log"
    return Daemon("slurmdbd", ("slurmdbd",), pid_file, log, environment, ports=(settings.dbd_port,))


def slurmctld(layout: Layout, cluster: Cluster) -> Daemon:
    root, name = layout.root, cluster.name
    return Daemon(
        f"slurmctld {name}",
        ("slurmctld",),
        root / f"run/{name}/slurmctld.pid",
        root / f"log/{name}/slurmctld.log",
        clean_environment(root, SLURM_CONF=str(layout.slurm_conf(name))),
        ports=(cluster.controller_port,),
    )


def slurmd(layout: Layout, cluster: Cluster, node: str) -> Daemon:
    root, name = layout.root, cluster.name
    return Daemon(
        f"slurmd {node}",
        ("slurmd", "-N", node),
        root / f"run/{name}/slurmd.{node}.pid",
        root / f"log/{name}/slurmd.{node}.log",
        clean_environment(root, SLURM_CONF=str(layout.slurm_conf(name))),
        ports=(cluster.first_node_port + cluster.node_names.index(node),),
    )


def all_daemons(layout: Layout, settings: Settings) -> list[Daemon]:
    daemons = [munged(layout), mariadbd(layout, settings), slurmdbd(layout, settings)]
    for cluster in settings.clusters:
        daemons.append(slurmctld(layout, cluster))
        daemons += [slurmd(layout, cluster, node) for node in cluster.node_names]
    return daemons


def directories(layout: Layout, settings: Settings) -> list[tuple[Path, str, int]]:
    """(path, owner, mode) of every folder the daemons expect, parents first."""
    root = layout.root
    wanted: list[tuple[Path, str, int]] = [(root, "root", 0o755), (root / "work", "root", 0o1777)]
    wanted += [
        (root / d, "root", 0o755) for d in ("etc", "run", "log", "state", "spool", "dev", "home", "hooks")
    ]
    wanted += [(root / "hooks/fail", "root", 0o755)]
    for kind in ("etc", "log", "state"):
        wanted.append((root / kind / "munge", "munge", 0o700))
    wanted.append((root / "run/munge", "munge", 0o755))
    wanted += [(root / kind / "mysql", "mysql", 0o700) for kind in ("state", "log")]
    wanted.append((root / "run/mysql", "mysql", 0o755))
    wanted += [(root / kind / "slurm", "slurm", 0o755) for kind in ("run", "log")]
    for cluster in settings.clusters:
        wanted += [(root / kind / cluster.name, "slurm", 0o755) for kind in ("run", "log", "state")]
        wanted += [
            (root / "etc" / cluster.name, "root", 0o755),
            (root / "spool" / cluster.name, "root", 0o755),
        ]
        wanted += [(root / "spool" / cluster.name / node, "root", 0o755) for node in cluster.node_names]
    return wanted
