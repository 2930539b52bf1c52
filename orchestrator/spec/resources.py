"""Sections that every kind of stage has: resources, chain, recovery, container, environment.

The field descriptions are the reference: docs/experiment-file.md and the JSON Schema repeat them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from .fields import (
    EnvName,
    EnvValue,
    Flag,
    Lead,
    Memory,
    Model,
    NotNegative,
    Number,
    Positive,
    Seconds,
    SlurmExpression,
    SlurmWord,
    Text,
    WallTime,
    listed,
)


class Resources(Model):
    """What one link of the stage asks the scheduler for."""

    nodes: Positive = Field(default=1, description="Nodes of one allocation.")
    spare_nodes: NotNegative = Field(
        default=0, description="Further nodes, checked and idle, that take a lost node's place at once."
    )
    ranks_per_node: Positive | None = Field(
        default=None, description="Processes on a node. null: one per GPU, or 1 without GPUs."
    )
    gpus_per_node: NotNegative = Field(default=0, description="GPUs of a node to ask for.")
    cpus_per_node: Positive | None = Field(
        default=None,
        description="CPU cores of a node. null: one per rank, with GPUs the site's default.",
    )
    mem: Memory | None = Field(default=None, description="Memory of a node, as Slurm writes it (64G).")
    time: WallTime = Field(default="01:00:00", description="Wall-time limit of one link (Slurm's --time).")
    partition: SlurmWord | None = Field(default=None, description="null: the profile's, else the site's.")
    account: SlurmWord | None = Field(default=None, description="null: the profile's, else the site's.")
    qos: SlurmWord | None = Field(default=None, description="null: the profile's, else the site's.")
    constraint: SlurmExpression | None = Field(default=None, description="Node features, such as a100|h100.")
    reservation: SlurmWord | None = Field(default=None, description="A reservation's name.")
    exclude: listed(SlurmExpression) = Field(  # type: ignore[valid-type]
        default_factory=list, description="Nodes to keep off, besides the profile's."
    )
    exclusive: Flag = Field(default=False, description="No other job on the nodes.")


class Chain(Model):
    """How the stage is carried over several allocations (links)."""

    lookahead: Annotated[Positive, Field(le=20)] = Field(
        default=2, description="Links in the queue at once, the running one included."
    )
    max_links: Annotated[Positive, Field(le=999)] = Field(
        default=10, description="Links after which the stage stops unfinished."
    )
    total_time: WallTime | None = Field(
        default=None, description="Wall time of all links together after which the stage stops. null: no cap."
    )
    signal_lead: Lead = Field(
        default="auto",
        description="Seconds before the limit at which the stage is told to save and end. "
        "auto: save_time and 30 s, at most half the limit.",
    )
    startup: Seconds = Field(default=60, description="Estimated seconds from start to first step.")
    save_time: Seconds = Field(default=30, description="Estimated seconds one save takes.")
    interval_time: Seconds | None = Field(
        default=None, description="Estimated seconds between two saves. null: unknown."
    )


class ShortChain(Chain):
    """The chain of a stage that should end within one link."""

    lookahead: Annotated[Positive, Field(le=20)] = Field(
        default=1, description="Links in the queue at once, the running one included."
    )
    max_links: Annotated[Positive, Field(le=999)] = Field(
        default=3, description="Links after which the stage stops unfinished."
    )


class Hang(Model):
    """When ranks that pass no section any more are taken to hang. Needs heartbeats of the program."""

    detect: Flag = Field(default=True, description="false: only wall time ends a hang.")
    floor: Annotated[Seconds, Field(gt=0)] = Field(
        default=60, description="Least seconds without progress in a section before it counts as a hang."
    )
    factor: Annotated[Number, Field(ge=1.5)] = Field(
        default=5.0, description="Times the slowest honest pass of a section seen so far."
    )
    first: Annotated[Seconds, Field(gt=0)] = Field(
        default=900, description="Seconds for a section that has no history yet (setup, compile, first save)."
    )


class Straggler(Model):
    """When a rank counts as slow, and what is done about it."""

    action: Literal["report", "swap", "off"] = Field(
        default="report", description="swap: a spare takes the slow node's place."
    )
    ratio: Annotated[Number, Field(gt=1)] = Field(
        default=1.5, description="Compute time over the median of its peers."
    )
    window: Positive = Field(default=50, description="Steps that are compared.")


class Preflight(Model):
    """Checks of every node before ranks are started on it."""

    run: Flag = Field(default=True, description="false: no checks.")
    timeout: Annotated[Seconds, Field(gt=0)] = Field(
        default=30, description="Seconds for all checks of a node together."
    )
    skip: listed(Text) = Field(  # type: ignore[valid-type]
        default_factory=list, description="Names of checks to leave out."
    )
    site: listed(Text) = Field(  # type: ignore[valid-type]
        default_factory=list,
        description="Further checks: absolute paths of programs that exit with 0 (good), 1 (warning) "
        "or 2 (bad node).",
    )


class Exclusion(Model):
    """When a node is kept out of later links, and for how long."""

    days: Annotated[Number, Field(gt=0, le=365)] = Field(default=7.0, description="Days until it ends.")
    quorum: Annotated[Positive, Field(ge=2)] = Field(
        default=3, description="Different jobs that must have failed on a node when no failure proves it."
    )
    max_share: Annotated[Number, Field(gt=0, le=1)] = Field(
        default=0.1, description="Largest share of the partition that may be excluded."
    )


class Recovery(Model):
    """Allowances by cause, and how the stage heals itself.

    Budgets count how often each may happen in a row before the stage stops.
    """

    unexplained: Positive = Field(default=3, description="Failures without an explanation.")
    no_progress: Positive = Field(default=3, description="Links that saved nothing new.")
    same_signature: Positive = Field(default=2, description="The same failure at the same step.")
    launch: Positive = Field(default=5, description="Allocations that never got to run the work.")
    restarts_in_job: NotNegative = Field(
        default=5, description="Restarts within one allocation; 0: a failure ends the link."
    )
    min_nodes: Positive | None = Field(
        default=None, description="Go on with as few nodes as this after a loss. null: never with fewer."
    )
    shadow: Flag = Field(
        default=False, description="Only record what would be restarted, swapped or excluded."
    )
    hang: Hang = Field(default_factory=Hang, description="When ranks are taken to hang.")
    straggler: Straggler = Field(default_factory=Straggler, description="What is done about slow ranks.")
    preflight: Preflight = Field(
        default_factory=Preflight, description="Checks of every node before ranks start on it."
    )
    exclusion: Exclusion = Field(default_factory=Exclusion, description="When a node is kept out.")


class Container(Model):
    """A container to run the stage's processes in."""

    runtime: Literal["pyxis", "apptainer"] = Field(description="What starts containers on this site.")
    image: Text = Field(description="Image name or path.", min_length=1)
    mounts: listed(Text) = Field(  # type: ignore[valid-type]
        default_factory=list, description="source:target[:ro]; the run directory is always mounted."
    )
    extra_args: listed(Text) = Field(  # type: ignore[valid-type]
        default_factory=list, description="Further arguments for the runtime."
    )

    @model_validator(mode="after")
    def _mounts_have_two_ends(self) -> Container:
        for mount in self.mounts:
            parts = mount.split(":")
            if len(parts) not in (2, 3) or not all(parts):
                raise ValueError(f"mount {mount!r} is not source:target or source:target:ro")
        return self


class Environment(Model):
    """Environment of the stage's processes."""

    env: dict[EnvName, EnvValue] = Field(
        default_factory=dict, description="Variables with their values. Never secrets."
    )
    env_from: listed(EnvName) = Field(  # type: ignore[valid-type]
        default_factory=list,
        description="Names of variables taken from the submitting shell; their values are not written.",
    )
    container: Container | None = Field(default=None, description="null: none, or the profile's.")
