"""From a resolved experiment and a cluster profile to stages, chains and jobs. Pure.

Works on plain values, so that any later command rebuilds the same plan from ``run.json`` alone, without
the user's file, pydantic or omegaconf. ``tests/orchestrator/test_plan.py`` holds it to both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from resiliency import contract, policy

from .clusters import Profile
from .facts_check import check_against
from .record import RunRecord, load_run_record, make_record
from .schedulers.base import Container, JobSpec
from .spec import graph, room
from .spec.durations import parse_time

__all__ = [
    "RunPlan",
    "RunRecord",
    "StagePlan",
    "check_against",
    "load_run_record",
    "make_plan",
    "make_record",
]

STAGE_SCHEMA: Final = 1
# The manifest's kind that each stage program seals its artifact with.
ARTIFACT_KINDS: Final = {
    "text": "dataset",
    "pretrain": "checkpoint",
    "eval": "evaluation",
    "command": "command",
}
_BUDGETS: Final = ("unexplained", "no_progress", "same_signature", "launch")
#: Modules a node imports ahead for the ranks of a kind of stage.
WARM: Final = {"pretrain": ("models.warm",)}
PROGRAMS: Final = {
    "text": ("-m", "models.prepare_text"),
    "pretrain": ("-m", "models.pretrain"),
    "eval": ("-m", "models.evaluate"),
}
_GRACE_S: Final = 60.0


@dataclass(frozen=True)
class StagePlan:
    """One stage: its chain's parameters and how to make the job of any link.

    ``inputs``: the stages whose artifacts it reads, with the kind of each.
    """

    run_id: str
    run_dir: Path
    home: Path
    python: str
    profile: Profile
    name: str
    spec: Mapping[str, Any]
    needs: tuple[str, ...]
    input_kinds: Mapping[str, str]
    import_root: str = ""

    @property
    def kind(self) -> str:
        return str(self.spec["kind"])

    @property
    def artifact_kind(self) -> str:
        return ARTIFACT_KINDS[self.kind]

    @property
    def lookahead(self) -> int:
        return int(self.spec["chain"]["lookahead"])

    @property
    def max_links(self) -> int:
        return int(self.spec["chain"]["max_links"])

    @property
    def nodes(self) -> int:
        return int(self.spec["resources"]["nodes"])

    @property
    def spare_nodes(self) -> int:
        return int(self.spec["resources"]["spare_nodes"])

    @property
    def survives_node_loss(self) -> bool:
        """Whether the allocation is worth keeping without one of its nodes."""
        return self.spare_nodes > 0 or self.spec["recovery"]["min_nodes"] is not None

    @property
    def gpus_per_node(self) -> int:
        return int(self.spec["resources"]["gpus_per_node"])

    @property
    def ranks_per_node(self) -> int:
        given = self.spec["resources"]["ranks_per_node"]
        return int(given) if given is not None else max(1, self.gpus_per_node)

    @property
    def cpus_per_node(self) -> int | None:
        """As given; without GPUs at least one per rank, with GPUs the site knows its own shares."""
        given = self.spec["resources"]["cpus_per_node"]
        if given is not None:
            return int(given)
        return None if self.gpus_per_node else self.ranks_per_node

    @property
    def time_limit_s(self) -> int:
        return parse_time(self.spec["resources"]["time"])

    @property
    def signal_lead_s(self) -> int:
        return max(1, round(room.signal_lead(self.spec["chain"], self.time_limit_s)))

    @property
    def node_hours_per_link(self) -> float:
        """If the link runs to its limit."""
        return (self.nodes + self.spare_nodes) * self.time_limit_s / 3600

    @property
    def node_hours_at_most(self) -> float:
        """If every link runs to its limit, or the stage to its total wall time."""
        total = self.budgets.total_wall_s
        links = self.max_links * self.node_hours_per_link
        if total is None:
            return links
        # The last link may begin just under the cap and still run to its limit.
        return min(links, total * (self.nodes + self.spare_nodes) / 3600 + self.node_hours_per_link)

    @cached_property
    def budgets(self) -> policy.Budgets:
        total = self.spec["chain"]["total_time"]
        return policy.Budgets(
            **{key: int(self.spec["recovery"][key]) for key in _BUDGETS},
            max_links=self.max_links,
            total_wall_s=None if total is None else float(parse_time(total)),
        )

    @property
    def container(self) -> Container | None:
        own = self.spec["container"]
        if own is None:
            return self.profile.container
        return Container(own["runtime"], own["image"], tuple(own["mounts"]), tuple(own["extra_args"]))

    @property
    def env_from(self) -> tuple[str, ...]:
        """The stage's names and the site's."""
        return tuple(dict.fromkeys([*self.spec["env_from"], *self.profile.pass_env]))

    @property
    def exclude(self) -> tuple[str, ...]:
        """Nodes that no link gets: the site's and the stage's."""
        return tuple(dict.fromkeys([*self.profile.exclude, *self.spec["resources"]["exclude"]]))

    def setting(self, name: str) -> Any:
        """A resource of the stage, else the profile's default for it."""
        own = self.spec["resources"][name]
        return own if own is not None else getattr(self.profile, name)

    @property
    def stage_config(self) -> dict[str, Any]:
        """``stage.json`` (docs/architecture.md)."""
        paths = contract.RunPaths(self.run_dir)
        box = self.container
        budgets = self.budgets
        return {
            "v": STAGE_SCHEMA,
            "run": self.run_id,
            "name": self.name,
            "kind": self.kind,
            "cluster": self.profile.cluster_name,
            "scheduler": self.profile.scheduler,
            "stage": dict(self.spec),
            "stage_dir": str(paths.stage(self.name)),
            "artifact_dir": str(paths.artifact(self.name)),
            "inputs": {name: str(paths.artifact(name)) for name in self.input_kinds},
            "input_kinds": dict(self.input_kinds),
            "artifact_kind": self.artifact_kind,
            "launch": {
                "nodes": self.nodes,
                "spare_nodes": self.spare_nodes,
                "restarts_in_job": self.spec["recovery"]["restarts_in_job"],
                "min_nodes": self.spec["recovery"]["min_nodes"],
                "warm": self.spec.get("warm", list(WARM.get(self.kind, ()))),
                "roles": [{"name": name, **role} for name, role in self.spec["roles"].items()],
                "signal_lead_s": self.signal_lead_s,
                "exclude": list(self.exclude),
                "ranks_per_node": self.ranks_per_node,
                "gpus_per_node": self.gpus_per_node,
                "cpus_per_node": self.cpus_per_node,
                "launcher": self.spec.get("launcher", "none"),
                "program": list(PROGRAMS[self.kind]) if self.kind in PROGRAMS else None,
                "argv": list(self.spec["run"]) if self.kind == "command" else None,
                "workdir": self.spec.get("workdir"),
                "python": self.profile.environment.python or self.python,
                "stop_signal": self.spec.get("stop_signal", "TERM"),
                "grace_s": self.spec.get("grace", _GRACE_S),
                "env": dict(self.spec["env"]),
                "env_from": list(self.env_from),
                "container": None
                if box is None
                else {
                    "runtime": box.runtime,
                    "image": box.image,
                    "mounts": list(box.mounts),
                    "extra_args": list(box.extra_args),
                },
                "srun_args": list(self.profile.srun_args),
                "progress": _progress(self.spec.get("progress")),
                "startup_s": self.spec["chain"]["startup"],
            },
            "budgets": {
                "unexplained": budgets.unexplained,
                "no_progress": budgets.no_progress,
                "same_signature": budgets.same_signature,
                "launch": budgets.launch,
                "max_links": budgets.max_links,
                "total_wall_s": budgets.total_wall_s,
            },
            "recovery": {
                name: self.spec["recovery"][name]
                for name in ("shadow", "hang", "straggler", "preflight", "exclusion")
            },
            "advance": self.profile.advance,
        }

    def job(self, link: int) -> JobSpec:
        """The job of one link. The stage's ``env`` is not in it: only its processes get that."""
        paths = contract.RunPaths(self.run_dir)
        resources = self.spec["resources"]
        argv = [self.profile.environment.python or self.python, "-m", "orchestrator.segment"]
        argv += ["--run-dir", str(self.run_dir), "--stage", self.name, "--link", str(link)]
        argv += ["--home", str(self.home)]
        return JobSpec(
            token=contract.token(self.run_id, self.name, link),
            argv=tuple(argv),
            chdir=paths.stage(self.name),
            output=paths.job_log(self.name, link),
            nodes=self.nodes + self.spare_nodes,
            time_limit_s=self.time_limit_s,
            signal_lead_s=self.signal_lead_s,
            cpus_per_node=self.cpus_per_node,
            gpus_per_node=self.gpus_per_node,
            mem_per_node=resources["mem"],
            partition=self.setting("partition"),
            account=self.setting("account"),
            qos=self.setting("qos"),
            constraint=self.setting("constraint"),
            reservation=self.setting("reservation"),
            exclude=self.exclude,
            exclusive=bool(resources["exclusive"]),
            no_kill=self.survives_node_loss,
            requeue=self.profile.requeue,
            modules=self.profile.environment.modules,
            setup=self.profile.environment.setup,
            env={"PYTHONPATH": self.import_root} if self.import_root else {},
            env_from=self.env_from,
            extra_directives=self.profile.extra_directives,
            container=self.container,
            about=f"{self.kind} stage {self.name} of run {self.run_id}, "
            f"link {link} of at most {self.max_links}",
        )


@dataclass(frozen=True)
class RunPlan:
    """A run: its stages, what they need first."""

    run_id: str
    run_dir: Path
    name: str
    group: str | None
    profile: Profile
    stages: tuple[StagePlan, ...]

    @property
    def cluster(self) -> str:
        return self.profile.cluster_name

    @property
    def settle_s(self) -> float:
        return self.profile.settle_s

    @property
    def node_hours_at_most(self) -> float:
        return sum(stage.node_hours_at_most for stage in self.stages)

    def stage(self, name: str) -> StagePlan:
        """Raises KeyError for a stage the run does not have."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)

    def artifact_kind(self, stage: str) -> str:
        return self.stage(stage).artifact_kind

    def job(self, stage: str, link: int) -> JobSpec:
        return self.stage(stage).job(link)

    def to_json(self) -> dict[str, Any]:
        """For ``--json``: what a person would be told."""
        return {
            "run_id": self.run_id,
            "run_dir": str(self.run_dir),
            "name": self.name,
            "cluster": self.cluster,
            "scheduler": self.profile.scheduler,
            "node_hours_at_most": round(self.node_hours_at_most, 3),
            "stages": [
                {
                    "name": s.name,
                    "kind": s.kind,
                    "needs": list(s.needs),
                    "nodes": s.nodes,
                    "ranks_per_node": s.ranks_per_node,
                    "gpus_per_node": s.gpus_per_node,
                    "time_limit_s": s.time_limit_s,
                    "lookahead": s.lookahead,
                    "max_links": s.max_links,
                    "node_hours_per_link": round(s.node_hours_per_link, 3),
                    "node_hours_at_most": round(s.node_hours_at_most, 3),
                }
                for s in self.stages
            ],
        }


def make_plan(
    experiment: Any,
    profile: Profile,
    *,
    run_id: str,
    run_dir: Path,
    python: str,
    home: Path,
    import_root: str = "",
) -> RunPlan:
    """``experiment``: a checked ``Experiment`` or its resolved plain values. Nothing is read or written."""
    data: Mapping[str, Any] = (
        experiment if isinstance(experiment, Mapping) else experiment.model_dump(mode="json", by_alias=True)
    )
    stages: Mapping[str, Mapping[str, Any]] = data["stages"]
    order = graph.in_order({name: _needs(name, stages) for name in stages})
    plans = [
        StagePlan(
            run_id=run_id,
            run_dir=run_dir,
            home=home,
            python=python,
            profile=profile,
            name=name,
            spec=stages[name],
            needs=tuple(_needs(name, stages)),
            input_kinds={n: ARTIFACT_KINDS[stages[n]["kind"]] for n in _inputs(name, stages)},
            import_root=import_root,
        )
        for name in order
    ]
    return RunPlan(run_id, run_dir, data["name"], data["group"], profile, tuple(plans))


def _progress(spec: Mapping[str, Any] | None) -> Any:
    """As the launcher reads it: a format's name, or a regex or file alone."""
    given = {key: value for key, value in (spec or {}).items() if value is not None}
    return given.get("format", given or None)


def _needs(name: str, stages: Mapping[str, Mapping[str, Any]]) -> Sequence[str]:
    return list(stages[name]["needs"])


def _inputs(name: str, stages: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The artifacts a stage reads: one dataset, one model, and those of commands it needs. A command
    gets all of its needs'."""
    kind, needs = stages[name]["kind"], _needs(name, stages)
    if kind == "command":
        return list(needs)
    chosen: list[str | None] = []
    if kind in ("pretrain", "eval"):
        chosen.append(graph.data_stage(name, stages))
    if kind == "eval":
        chosen.append(graph.model_stage(name, stages))
    others = [n for n in needs if stages[n]["kind"] == "command"]
    return list(dict.fromkeys([n for n in chosen if n is not None] + others))
