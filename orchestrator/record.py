"""``run.json``: what a run froze when it was made. Read without pydantic; never changed.

Within a schema version, keys are only added. ``tests/orchestrator/test_plan.py``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from resiliency import contract, durable
from resiliency.errors import StorageError

from .clusters import Profile

if TYPE_CHECKING:
    from .plan import RunPlan
    from .spec.load import LoadedExperiment

SCHEMA_VERSION: Final = 1


@dataclass(frozen=True)
class RunRecord:
    """``experiment``: resolved plain values; ``profile_data``: the cluster profile as it was;
    ``created``: Unix seconds; ``source``: the experiment file's path; ``runs_root``: where the run's
    directory was made; ``import_root``: the checkout that jobs import the packages from, empty where they
    are installed; ``spec_digest``: SHA-256 of the experiment's canonical JSON and the profile's name."""

    run_id: str
    created: float
    version: str
    spec_digest: str
    experiment: Mapping[str, Any]
    profile_data: Mapping[str, Any]
    python: str
    home: str
    runs_root: str
    source: str = ""
    overrides: tuple[str, ...] = ()
    import_root: str = ""
    v: int = SCHEMA_VERSION

    @property
    def name(self) -> str:
        return str(self.experiment["name"])

    @property
    def group(self) -> str | None:
        group = self.experiment["group"]
        return None if group is None else str(group)

    @cached_property
    def profile_key(self) -> str:
        """Equal for runs whose frozen profiles are equal: they can share one scheduler object."""
        return canonical(self.profile_data)

    def profile(self) -> Profile:
        """Raises StorageError when the snapshot is not a profile."""
        return Profile.from_data(self.profile_data)

    def plan(self, run_dir: Path) -> RunPlan:
        """The same plan as at submission, whatever became of the user's files."""
        from .plan import make_plan

        try:
            return make_plan(
                self.experiment,
                self.profile(),
                run_id=self.run_id,
                run_dir=run_dir,
                python=self.python,
                home=Path(self.home),
                import_root=self.import_root,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(
                f"run {self.run_id}: run.json lacks what a plan needs: {error!r}",
                hint="it was made by another version, or changed by hand: submit the experiment again",
            ) from error

    def to_json(self) -> str:
        data = asdict(self)
        data["profile"] = data.pop("profile_data")
        return json.dumps(data, indent=1, sort_keys=True, allow_nan=False)


def canonical(data: Any) -> str:
    """One text for equal values."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=list)


def spec_digest(experiment: Mapping[str, Any], profile_name: str) -> str:
    """Identity of what would run: every resolved value, and where."""
    text = canonical({"experiment": experiment, "profile": profile_name})
    return hashlib.sha256(text.encode()).hexdigest()


def make_record(
    loaded: LoadedExperiment,
    profile: Profile,
    *,
    run_id: str,
    created: float,
    version: str,
    python: str,
    home: Path,
) -> RunRecord:
    """What ``run.json`` will hold. Raises ValueError when ``run_id`` is no run id."""
    if not contract.RUN_ID.fullmatch(run_id):
        raise ValueError(f"{run_id!r} is not a run id")
    root = Path(profile.runs_dir).expanduser().absolute() if profile.runs_dir else home / "runs"
    return RunRecord(
        run_id=run_id,
        created=created,
        version=version,
        spec_digest=spec_digest(loaded.resolved, profile.name),
        experiment=loaded.resolved,
        profile_data=profile.to_data(),
        python=python,
        home=str(home),
        runs_root=str(root),
        source=str(loaded.path.absolute()),
        overrides=loaded.overrides,
        import_root=checkout(),
    )


def checkout() -> str:
    """The directory these packages are imported from when it is a source checkout, else empty."""
    root = Path(__file__).resolve().parents[1]
    return "" if {"site-packages", "dist-packages"} & set(root.parts) else str(root)


def load_run_record(path: Path) -> RunRecord:
    """Read ``run.json``. Raises StorageError when it is missing, torn, no record, or of a newer version."""
    raw = durable.read_json(path)
    try:
        newer = int(raw["v"]) > SCHEMA_VERSION
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path} is not a run record: it has no version") from error
    if newer:
        raise StorageError(
            f"{path} was written by a newer version of Trainmaster (schema {raw['v']}, "
            f"version {raw.get('version', 'unknown')})",
            hint="upgrade Trainmaster on this machine",
        )
    known = {f.name for f in fields(RunRecord)}
    values = {key: value for key, value in raw.items() if key in known}
    try:
        values["profile_data"] = raw["profile"]
        values["overrides"] = tuple(raw.get("overrides", ()))
        record = RunRecord(**values)
        if not isinstance(record.experiment["stages"], dict):
            raise TypeError("stages is not a mapping")
    except (KeyError, TypeError) as error:
        raise StorageError(f"{path} is not a run record: {error}") from error
    return record
