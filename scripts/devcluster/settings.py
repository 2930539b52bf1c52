"""What a dev cluster looks like (node counts, GPUs, users, ports) and where its files are.

Values only: nothing here starts, stops or contacts anything. The settings of a cluster are kept in
`settings.json` of its state directory, so that later verbs need no options.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from .errors import EXIT_USAGE, DevClusterError

# srun over 128 emulated nodes takes 2.7 s on two cores, over 512 it takes 94 s.
MAX_NODES = 256
# Slurm puts its step sockets at STATE/spool/CLUSTER/NODE/NODE_JOBID.STEPID; a unix socket's path
# ends at 107.
MAX_STATE_PATH = 60
USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,30}")


def default_state_dir() -> Path:
    given = os.environ.get("TRAINMASTER_DEV_CLUSTER_DIR")
    if given:
        return Path(given).absolute()
    return Path(os.environ.get("TMPDIR") or "/tmp").absolute() / "trainmaster-slurm"


@dataclass(frozen=True)
class Cluster:
    """One Slurm cluster: its controller's port, and node i listens on `first_node_port` + i - 1."""

    name: str
    prefix: str
    nodes: int
    controller_port: int
    first_node_port: int

    @property
    def node_names(self) -> list[str]:
        return [f"{self.prefix}{i}" for i in range(1, self.nodes + 1)]


@dataclass(frozen=True)
class Settings:
    nodes: int = 8
    nodes_b: int = 2  # 0: no second cluster
    gpus: int = 8  # fake ones, per node
    cpus: int = 64  # declared, whatever the machine has
    memory_mb: int = 512_000
    users: tuple[str, ...] = ("lab1", "lab2")
    port_base: int = 21_800  # below the kernel's ephemeral ports (32768 and up)

    def __post_init__(self) -> None:
        faults = [
            *_within("--nodes", self.nodes, 1, MAX_NODES),
            *_within("--nodes-b", self.nodes_b, 0, MAX_NODES),
            *_within("--gpus", self.gpus, 0, 64),
            *_within("--cpus", self.cpus, 2, 1024),
            *_within("--memory-mb", self.memory_mb, 1000, 10_000_000),
            *_within("--port-base", self.port_base, 1024, 64_000),
        ]
        if self.cpus % 2:
            faults.append(f"--cpus {self.cpus}: must be even (two sockets a node)")
        faults += [f"--users: {u!r} is not a login name" for u in self.users if not USER_NAME.fullmatch(u)]
        if "root" in self.users:
            faults.append("--users: root has an account anyway, leave it out")
        if faults:
            raise DevClusterError("; ".join(faults), hint="see `dev-cluster up --help`", code=EXIT_USAGE)

    @property
    def database_port(self) -> int:
        return self.port_base

    @property
    def dbd_port(self) -> int:
        return self.port_base + 1

    @property
    def clusters(self) -> list[Cluster]:
        base = self.port_base
        both = [
            Cluster("alpha", "a", self.nodes, base + 2, base + 101),
            Cluster("beta", "b", self.nodes_b, base + 3, base + 101 + MAX_NODES),
        ]
        return [c for c in both if c.nodes]

    def cluster(self, name: str) -> Cluster:
        for cluster in self.clusters:
            if cluster.name == name:
                return cluster
        known = ", ".join(c.name for c in self.clusters)
        raise DevClusterError(f"no cluster {name!r} here", hint=f"there is: {known}", code=EXIT_USAGE)

    def cluster_of(self, node: str) -> Cluster:
        for cluster in self.clusters:
            if node in cluster.node_names:
                return cluster
        known = ", ".join(f"{c.prefix}1 to {c.prefix}{c.nodes}" for c in self.clusters)
        raise DevClusterError(f"no node {node!r} here", hint=f"there are: {known}", code=EXIT_USAGE)

    def differences(self, other: Settings) -> list[str]:
        mine, theirs = dataclasses.asdict(self), dataclasses.asdict(other)
        return [f"{k}: {mine[k]} now, {theirs[k]} asked" for k in mine if mine[k] != theirs[k]]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Settings:
        known = {f.name for f in dataclasses.fields(cls)}
        values = {k: v for k, v in json.loads(text).items() if k in known}
        values["users"] = tuple(values.get("users", cls.users))
        return cls(**values)


def _within(option: str, value: int, low: int, high: int) -> list[str]:
    return [] if low <= value <= high else [f"{option} {value}: must be {low} to {high}"]


@dataclass(frozen=True)
class Layout:
    """The files of one dev cluster. Everything it writes is below `root`."""

    root: Path

    def __post_init__(self) -> None:
        if len(str(self.root)) > MAX_STATE_PATH or not re.fullmatch(r"[\w./+-]+", str(self.root), re.ASCII):
            raise DevClusterError(
                f"state directory {self.root}: at most {MAX_STATE_PATH} characters, "
                "all of them of A-Z a-z 0-9 . _ + - /",
                hint="set TRAINMASTER_DEV_CLUSTER_DIR to a short path such as /tmp/slurm-box",
                code=EXIT_USAGE,
            )

    @property
    def settings_file(self) -> Path:
        return self.root / "settings.json"

    @property
    def munge_socket(self) -> Path:
        return self.root / "run/munge/socket"

    @property
    def munge_key(self) -> Path:
        return self.root / "etc/munge/munge.key"

    @property
    def database_socket(self) -> Path:
        return self.root / "run/mysql/mysqld.sock"

    @property
    def database_dir(self) -> Path:
        return self.root / "state/mysql"

    @property
    def dbd_conf(self) -> Path:
        return self.root / "etc/slurmdbd.conf"

    @property
    def hooks(self) -> Path:
        return self.root / "hooks"

    def conf_dir(self, cluster: str) -> Path:
        return self.root / "etc" / cluster

    def slurm_conf(self, cluster: str) -> Path:
        return self.conf_dir(cluster) / "slurm.conf"

    def load_settings(self) -> Settings | None:
        """The settings of the cluster kept here; None where there was never one (or it was
        wiped)."""
        try:
            return Settings.from_json(self.settings_file.read_text())
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise DevClusterError(
                f"{self.settings_file} cannot be read: {error}",
                hint="`dev-cluster down --wipe` starts over",
            ) from error
