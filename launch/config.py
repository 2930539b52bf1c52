"""``stage.json`` as the allocation reads it: plain dataclasses, no pydantic, so that starting is cheap.

``submit`` has validated the content; here only what the launcher itself needs is checked.
``tests/launch/test_config.py``.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resiliency.durable import read_json
from resiliency.errors import TrainmasterError
from resiliency.policy import Budgets


class BadStageConfig(TrainmasterError):
    """stage.json lacks what the launcher needs; only a new submission can repair it."""


@dataclass(frozen=True)
class Role:
    """A command beside the stage's own: ``replicas`` on the first node or on all of them.

    A replica that ends is started again, at most ``restarts`` times; when they are used up, an
    ``essential`` one takes the stage down with it.
    """

    name: str
    argv: tuple[str, ...]
    everywhere: bool = False
    replicas: int = 1
    essential: bool = False
    restarts: int = 10
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Launch:
    """How a stage's processes are started; the keys of ``launch`` in stage.json.

    Exactly one of ``program`` (run with ``python``) and ``argv`` (the user's command) is set.
    ``stop_signal`` None: a command is only told by the stop file. ``cpus_per_node`` None: what the
    allocation has. ``workdir`` None: the stage's directory. ``nodes`` train, ``spare_nodes`` more wait;
    ``restarts_in_job``: cycles after the first that one allocation may have; ``min_nodes`` None: never with
    fewer nodes; ``warm``: modules a node imports ahead; ``signal_lead_s``: seconds before the limit at
    which the stage is told to stop; ``exclude``: nodes that no link gets; ``roles``: commands beside the
    stage's own; ``faults``: a rehearsal's plan.
    """

    nodes: int
    ranks_per_node: int
    gpus_per_node: int
    cpus_per_node: int | None
    launcher: str
    program: tuple[str, ...] | None
    argv: tuple[str, ...] | None
    python: str
    stop_signal: signal.Signals | None
    grace_s: float
    env: Mapping[str, str]
    env_from: tuple[str, ...]
    container: Mapping[str, Any] | None
    srun_args: tuple[str, ...]
    progress: Any
    startup_s: float
    restarts_in_job: int = 0
    workdir: str | None = None
    spare_nodes: int = 0
    min_nodes: int | None = None
    warm: tuple[str, ...] = ()
    signal_lead_s: float = 0.0
    exclude: tuple[str, ...] = ()
    roles: tuple[Role, ...] = ()
    faults: str | None = None

    @property
    def warming_s(self) -> float:
        """How long ranks wait for imports that are under way on their node: started without them, they would
        import the same again, at the same time, and take longer."""
        return max(self.startup_s, 60.0)

    @property
    def world(self) -> int:
        return self.nodes * self.ranks_per_node


@dataclass(frozen=True)
class StageConfig:
    """One stage as frozen by ``submit``. ``inputs``: needed stage → its artifact's directory.

    ``recovery``: the sections ``hang``, ``straggler``, ``preflight``, ``exclusion`` and the flag ``shadow``;
    each is read by the module it is for. ``stage``: the resolved spec.
    """

    path: Path
    run: str
    name: str
    kind: str
    cluster: str
    scheduler: str
    stage_dir: Path
    artifact_dir: Path
    inputs: Mapping[str, Path]
    input_kinds: Mapping[str, str]
    artifact_kind: str
    launch: Launch
    budgets: Budgets
    recovery: Mapping[str, Any] = field(default_factory=dict)
    stage: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_command(self) -> bool:
        return self.launch.argv is not None

    @property
    def checkpoint_dir(self) -> Path:
        return self.stage_dir / "checkpoints"

    @property
    def role(self) -> str:
        """The one role of this stage."""
        return "command" if self.is_command else "trainer"


_LAUNCHERS = ("auto", "ft_launcher", "torchrun", "none")


def _signal(name: Any) -> signal.Signals | None:
    if name in (None, "", "none"):
        return None
    text = str(name).upper()
    return signal.Signals[text if text.startswith("SIG") else f"SIG{text}"]


def _role(raw: Mapping[str, Any]) -> Role:
    return Role(
        name=str(raw["name"]),
        argv=tuple(map(str, raw["run"])),
        everywhere=raw.get("nodes") == "all",
        replicas=int(raw.get("replicas") or 1),
        essential=bool(raw.get("essential")),
        restarts=int(raw.get("restarts", 10)),
        env={str(k): str(v) for k, v in (raw.get("env") or {}).items()},
    )


def _launch(raw: Mapping[str, Any]) -> Launch:
    program, argv = raw.get("program"), raw.get("argv")
    if bool(program) == bool(argv):
        raise ValueError("exactly one of launch.program and launch.argv must be set")
    launcher = str(raw.get("launcher") or "auto")
    if launcher not in _LAUNCHERS:
        raise ValueError(f"launch.launcher is {launcher!r}, not one of {', '.join(_LAUNCHERS)}")
    cpus = raw.get("cpus_per_node")
    return Launch(
        nodes=int(raw.get("nodes") or 1),
        ranks_per_node=int(raw.get("ranks_per_node") or 1),
        gpus_per_node=int(raw.get("gpus_per_node") or 0),
        cpus_per_node=int(cpus) if cpus else None,
        launcher=launcher,
        program=tuple(map(str, program)) if program else None,
        argv=tuple(map(str, argv)) if argv else None,
        python=str(raw["python"]),
        stop_signal=_signal(raw.get("stop_signal", "TERM")),
        grace_s=float(raw.get("grace_s") or 60.0),
        env={str(k): str(v) for k, v in (raw.get("env") or {}).items()},
        env_from=tuple(map(str, raw.get("env_from") or ())),
        container=raw.get("container") or None,
        srun_args=tuple(map(str, raw.get("srun_args") or ())),
        progress=raw.get("progress"),
        startup_s=float(raw.get("startup_s") or 60.0),
        restarts_in_job=int(raw.get("restarts_in_job") or 0),
        workdir=str(raw["workdir"]) if raw.get("workdir") else None,
        spare_nodes=int(raw.get("spare_nodes") or 0),
        min_nodes=int(raw["min_nodes"]) if raw.get("min_nodes") else None,
        warm=tuple(map(str, raw.get("warm") or ())),
        roles=tuple(_role(role) for role in raw.get("roles") or ()),
        exclude=tuple(map(str, raw.get("exclude") or ())),
        signal_lead_s=float(raw.get("signal_lead_s") or 0.0),
        faults=str(raw["faults"]) if raw.get("faults") else None,
    )


def read_stage_config(path: Path) -> StageConfig:
    """Raises StorageError when the file cannot be read, BadStageConfig when it cannot be used."""
    raw = read_json(path)
    try:
        known = Budgets.__dataclass_fields__
        return StageConfig(
            path=path,
            run=str(raw["run"]),
            name=str(raw["name"]),
            kind=str(raw["kind"]),
            cluster=str(raw["cluster"]),
            scheduler=str(raw["scheduler"]),
            stage_dir=Path(raw["stage_dir"]),
            artifact_dir=Path(raw["artifact_dir"]),
            inputs={str(k): Path(v) for k, v in (raw.get("inputs") or {}).items()},
            input_kinds={str(k): str(v) for k, v in (raw.get("input_kinds") or {}).items()},
            artifact_kind=str(raw.get("artifact_kind") or "command"),
            launch=_launch(raw["launch"]),
            recovery=dict(raw.get("recovery") or {}),
            stage=dict(raw.get("stage") or {}),
            budgets=Budgets(**{k: v for k, v in (raw.get("budgets") or {}).items() if k in known}),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadStageConfig(
            f"{path} cannot be used: {error!r}",
            hint="submit the experiment again with this version of Trainmaster",
        ) from error
