"""Cluster profiles: what a site is like, so that experiments need not know.

``<home>/clusters.yaml`` and the file named by ``$TRAINMASTER_CLUSTERS`` (which wins) add to the built-in
``local`` and ``slurm``. Plain dataclasses: a profile frozen in ``run.json`` is read back without pydantic.
``tests/orchestrator/test_clusters.py``.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from resiliency import durable
from resiliency.edges import Runner, SystemRunner
from resiliency.errors import SpecError, StorageError

from .schedulers.base import Container
from .spec.errors import Fault, nearest, refuse

ENV_CLUSTERS: Final = "TRAINMASTER_CLUSTERS"
CLUSTERS_FILE: Final = "clusters.yaml"
#: A time-limit signal may come this much before the lead asked for: measured up to 45 s early with
#: Slurm 22.05 (its time limits and --signal have a resolution of a minute, sbatch(1): "up to 60
#: seconds earlier than specified"). The local scheduler is exact.
SLURM_SIGNAL_EARLY_S: Final = 45.0
#: A job can show up in queue or accounting this long after a submission whose answer was lost.
SLURM_SETTLE_S: Final = 30.0
_PROBE_S = 5.0


@dataclass(frozen=True)
class Environment:
    """How Trainmaster's own Python is reached on a compute node. ``python`` None: the submitting one."""

    python: str | None = None
    modules: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()


@dataclass(frozen=True)
class Profile:
    """One site or part of a site. None: leave it to the site's default."""

    name: str
    scheduler: str = "slurm"  # slurm or local
    cluster: str | None = None  # for -M; None: the default cluster of slurm.conf
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    exclude: tuple[str, ...] = ()
    gpus_per_node: int | None = None  # that a node has
    cpus_per_node: int | None = None
    runs_dir: str | None = None  # None: <home>/runs
    container: Container | None = None
    environment: Environment = field(default_factory=Environment)
    advance: str = "ahead"  # how the next link gets queued: ahead, job (in the allocation) or tick
    requeue: bool = False
    srun_args: tuple[str, ...] = ()
    extra_directives: tuple[str, ...] = ()
    templates: str | None = None  # directory of sbatch templates that replace the built-in ones
    pass_env: tuple[str, ...] = ()
    max_queued_jobs: int | None = None
    max_running: int | None = None  # local scheduler
    signal_early_s: float = SLURM_SIGNAL_EARLY_S
    settle_s: float = SLURM_SETTLE_S

    @property
    def cluster_name(self) -> str:
        """What attempts of this profile are filed under."""
        return self.cluster or self.name

    def to_data(self) -> dict[str, Any]:
        """JSON-able, for ``run.json``."""
        data: dict[str, Any] = _lists(dataclasses.asdict(self))
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Profile:
        """The inverse of :meth:`to_data`; keys of a newer version are ignored.

        Raises StorageError when it is not a profile.
        """
        names = {f.name for f in dataclasses.fields(cls)}
        try:
            values = {k: _tuples(v) for k, v in data.items() if k in names}
            if (inner := data.get("environment")) is not None:
                values["environment"] = Environment(**{k: _tuples(v) for k, v in inner.items()})
            if (box := data.get("container")) is not None:
                values["container"] = Container(**{k: _tuples(v) for k, v in box.items()})
            return cls(**values)
        except (TypeError, AttributeError) as error:
            raise StorageError(f"not a cluster profile: {error}") from error


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class Profiles(dict[str, Profile]):
    """Name → profile, with the files they came from and the name that ``auto`` stands for, if any."""

    default: str | None = None
    files: tuple[Path, ...] = ()


def builtin() -> Profiles:
    """The two profiles that need no file."""
    return Profiles(
        local=Profile("local", scheduler="local", signal_early_s=0.0, settle_s=0.0),
        slurm=Profile("slurm"),
    )


def load_profiles(home: Path, environ: Mapping[str, str] | None = None) -> Profiles:
    """Built-in profiles and those of the clusters files. Raises SpecError with every fault."""
    environ = os.environ if environ is None else environ
    profiles, faults = builtin(), []
    extra = environ.get(ENV_CLUSTERS)
    paths = [home / CLUSTERS_FILE] + ([Path(extra).expanduser()] if extra else [])
    found = []
    for number, path in enumerate(paths):
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            if number == 0:
                continue  # a home need not have one
            faults.append(Fault(str(path), 0, "", f"does not exist, but ${ENV_CLUSTERS} names it"))
            continue
        except OSError as error:
            raise durable.storage_error(error, path, "read") from error
        from .spec.profile import parse_profiles

        try:
            made, default = parse_profiles(raw, str(path), profiles)
        except SpecError as error:
            faults += [f for f in error.faults if isinstance(f, Fault)]
            continue
        profiles.update(made)
        profiles.default = default or profiles.default
        found.append(path)
    if faults:
        raise refuse("the clusters file", faults, hint="correct it; docs/clusters.md has every key")
    if profiles.default is not None and profiles.default not in profiles:
        fault = Fault(
            str(found[-1]),
            0,
            "default",
            f"{profiles.default!r} is no profile",
            f"one of {', '.join(sorted(profiles))}",
            nearest(profiles.default, profiles),
        )
        raise refuse("the clusters file", [fault])
    profiles.files = tuple(found)
    return profiles


def resolve_profile(name: str, profiles: Mapping[str, Profile], runner: Runner | None = None) -> Profile:
    """The profile of that name. ``auto``: the files' ``default``, else ``slurm`` where a Slurm
    answers, else ``local``. Raises SpecError naming the nearest profile."""
    if name in profiles:
        return profiles[name]
    if name == "auto":
        default = getattr(profiles, "default", None)
        if default is not None:
            return profiles[default]
        return profiles["slurm" if slurm_answers(runner or SystemRunner()) else "local"]
    fault = Fault(
        "",
        0,
        "cluster",
        f"{name!r} is no cluster profile",
        f"auto, {', '.join(sorted(profiles))}",
        nearest(name, [*profiles, "auto"]),
    )
    raise refuse("the experiment", [fault], hint="see: python -m orchestrator clusters")


def slurm_answers(runner: Runner) -> bool:
    """Whether ``sinfo`` is there and its controller answers within 5 s."""
    return runner(["sinfo", "--noheader", "--format=%P"], timeout_s=_PROBE_S).ok
