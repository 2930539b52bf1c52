"""The clusters file: schema and messages. ``orchestrator.clusters`` imports this only when there is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from ..clusters import SLURM_SETTLE_S, SLURM_SIGNAL_EARLY_S, Profile
from . import messages, yaml_source
from .errors import Fault, nearest, refuse
from .fields import (
    EnvName,
    Flag,
    Model,
    NotNegative,
    Positive,
    Seconds,
    SlurmExpression,
    SlurmWord,
    Text,
    listed,
)
from .resources import Container


class EnvironmentModel(Model):
    """How Trainmaster's Python is reached on a compute node."""

    python: Text | None = Field(default=None, description="Interpreter. null: the one that submits.")
    modules: listed(Text) = Field(default_factory=list, description="Modules to load.")  # type: ignore[valid-type]
    setup: listed(Text) = Field(  # type: ignore[valid-type]
        default_factory=list, description="Shell lines of the site, run before anything else."
    )


class ProfileModel(Model):
    """One profile of clusters.yaml."""

    scheduler: Literal["slurm", "local"] = Field(default="slurm", description="What runs jobs.")
    cluster: SlurmWord | None = Field(default=None, description="Name for -M. null: the default cluster.")
    partition: SlurmWord | None = Field(default=None, description="Default partition.")
    account: SlurmWord | None = Field(default=None, description="Account to charge.")
    qos: SlurmWord | None = Field(default=None, description="Default QOS.")
    constraint: SlurmExpression | None = Field(default=None, description="Node features every job needs.")
    reservation: SlurmWord | None = Field(default=None, description="Reservation to use.")
    exclude: listed(SlurmExpression) = Field(  # type: ignore[valid-type]
        default_factory=list, description="Nodes to keep off."
    )
    gpus_per_node: NotNegative | None = Field(default=None, description="GPUs a node has. null: unknown.")
    cpus_per_node: Positive | None = Field(default=None, description="CPU cores a node has. null: unknown.")
    runs_dir: Text | None = Field(
        default=None, description="Where run directories go: shared by all nodes. null: <home>/runs."
    )
    container: Container | None = Field(default=None, description="Container for stages that name none.")
    environment: EnvironmentModel = Field(default_factory=EnvironmentModel)
    advance: Literal["ahead", "job", "tick"] = Field(
        default="ahead",
        description="How the next link gets into the queue: ahead (queued early with a dependency), "
        "job (by the running job, where compute nodes may submit) or tick (by scrontab or cron).",
    )
    requeue: Flag = Field(default=False, description="Let Slurm requeue jobs (--requeue).")
    srun_args: listed(Text) = Field(default_factory=list, description="Further arguments of srun.")  # type: ignore[valid-type]
    extra_directives: listed(Text) = Field(  # type: ignore[valid-type]
        default_factory=list, description="Further #SBATCH options, whole: --licenses=x."
    )
    templates: Text | None = Field(default=None, description="Directory of sbatch templates of the site.")
    pass_env: listed(EnvName) = Field(  # type: ignore[valid-type]
        default_factory=list, description="Variables every job gets from the submitting shell."
    )
    max_queued_jobs: Positive | None = Field(default=None, description="Jobs of ours in the queue at once.")
    max_running: NotNegative | None = Field(
        default=None, description="Jobs at once on the local scheduler; 0 pauses it."
    )
    signal_early_s: Annotated[Seconds | None, Field()] = Field(
        default=None,
        description=f"Seconds a time-limit signal may come too early. null: {SLURM_SIGNAL_EARLY_S:g} "
        "for slurm, 0 for local.",
    )
    settle_s: Annotated[Seconds | None, Field()] = Field(
        default=None,
        description="Seconds after which a job that nobody lists was never submitted. "
        f"null: {SLURM_SETTLE_S:g} for slurm, 0 for local.",
    )


def parse_profiles(
    raw: bytes, file: str, known: Mapping[str, Profile]
) -> tuple[dict[str, Profile], str | None]:
    """Profiles of one file, and its ``default``. Raises SpecError with every fault."""
    source = yaml_source.parse(yaml_source.decode(raw, file), file)
    faults = list(source.faults)
    data = {} if source.data is None else source.data
    if not isinstance(data, dict):
        raise refuse(file, [*faults, Fault(file, 1, "", "is not a mapping", "profile names with their keys")])
    made: dict[str, Profile] = {}
    default = data.get("default")
    if default is not None and not isinstance(default, str):
        line = source.lines.get(("default",), 0)
        faults.append(Fault(file, line, "default", "has the wrong type", "a profile's name"))
        default = None
    for name, given in data.items():
        line = source.lines.get((name,), 0)
        if name == "default":
            continue
        if name == "auto" or not _is_name(name):
            faults.append(Fault(file, line, name, "cannot be a profile's name", "a-z, 0-9, '-' and '_'"))
            continue
        if given is not None and not isinstance(given, dict):
            faults.append(Fault(file, line, name, "is not a profile", "a mapping (key: value)"))
            continue
        try:
            model = ProfileModel.model_validate(given or {})
        except ValidationError as error:
            for one in error.errors():
                said = messages.say(one, ProfileModel)
                path = (name, *said.key)
                faults.append(
                    Fault(
                        file,
                        line_of(source.lines, path),
                        yaml_source.dotted(path),
                        said.message,
                        said.expected,
                        said.near,
                    )
                )
            continue
        made[name] = _profile(name, model)
    if isinstance(default, str) and default not in made and default not in known:
        near = nearest(default, [*made, *known])
        line = source.lines.get(("default",), 0)
        one_of = f"one of {', '.join(sorted({*made, *known}))}"
        faults.append(Fault(file, line, "default", f"{default!r} is no profile", one_of, near))
    if faults:
        raise refuse(file, faults)
    return made, default


def _is_name(name: str) -> bool:
    return bool(name) and len(name) <= 40 and all(c.isascii() and (c.isalnum() or c in "-_") for c in name)


def line_of(lines: Mapping[yaml_source.Path, int], path: yaml_source.Path) -> int:
    """The line of a path, or of the nearest section above it."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 0)


def _profile(name: str, model: ProfileModel) -> Profile:
    data = model.model_dump()
    slurm = data["scheduler"] == "slurm"
    if data["signal_early_s"] is None:
        data["signal_early_s"] = SLURM_SIGNAL_EARLY_S if slurm else 0.0
    if data["settle_s"] is None:
        data["settle_s"] = SLURM_SETTLE_S if slurm else 0.0
    return Profile.from_data({"name": name, **data})
