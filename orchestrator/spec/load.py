"""From a file and overrides to a checked experiment, or to one error with every fault in it.

Order: read → overrides → defaults under each stage → references → schema → checks. Nothing in a file or
override can run code. ``tests/orchestrator/test_spec_load.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from resiliency import durable
from resiliency.errors import SpecError

from . import checks, merge, messages, overrides, references, yaml_source
from .credentials import secret_shape
from .errors import Fault, refuse
from .messages import Said
from .schema import Experiment, Stage
from .yaml_source import Path, Source, dotted

if TYPE_CHECKING:
    from resiliency.edges import Runner

    from ..clusters import Profile

_STAGE: TypeAdapter[Any] = TypeAdapter(Stage)


@dataclass(frozen=True)
class LoadedExperiment:
    """A checked experiment. ``resolved``: every value, plain; ``text``: the file as the user gave it;
    ``positions``: dotted key → line; ``profile``: the cluster profile it was checked for, if any."""

    experiment: Experiment
    resolved: dict[str, Any]
    text: str
    positions: dict[str, int]
    path: FilePath
    overrides: tuple[str, ...] = ()
    profile: Profile | None = None


def load_experiment(
    path: str | os.PathLike[str],
    overrides: Sequence[str] = (),
    *,
    profiles: Mapping[str, Profile] | None = None,
    cluster: str | None = None,
    runner: Runner | None = None,
) -> LoadedExperiment:
    """Load and check an experiment file. Raises SpecError with every fault, StorageError when the
    file cannot be read.

    With ``profiles``, ``cluster`` (or the file's own) is looked up and its habits count: how early its
    signals may come. Without, only what cannot work anywhere is refused.
    """
    file = FilePath(path).expanduser()
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise durable.storage_error(error, file, "read experiment") from error
    return Loading(file, raw, overrides).run(profiles, cluster, runner)


class Loading:
    """One load: collects faults, each with its place."""

    def __init__(self, file: FilePath, raw: bytes, given: Sequence[str]) -> None:
        self.file, self.given = file, tuple(given)
        self.name = str(file)
        self.text = yaml_source.decode(raw, self.name)
        self.faults: list[Fault] = []
        self.source = Source()
        self.parsed: list[overrides.Override] = []
        self.spoilt: set[Path] = set()  # paths whose value was replaced after a fault

    def run(
        self, profiles: Mapping[str, Profile] | None, cluster: str | None, runner: Runner | None
    ) -> LoadedExperiment:
        data = self._values()
        data = self._resolved(merge.with_defaults(data))
        self._absolute(data)
        self._secrets()
        profile = self._profile(data, profiles, cluster, runner)
        experiment, good = self._validated(data)
        self._checked(data, good, profile.signal_early_s if profile else 0.0)
        if self.faults or experiment is None:
            raise refuse(self.name, self.faults)
        positions = {dotted(path): line for path, line in self.source.lines.items()}
        resolved = experiment.model_dump(mode="json", by_alias=True)
        return LoadedExperiment(experiment, resolved, self.text, positions, self.file, self.given, profile)

    # -- places ---------------------------------------------------------------------------------

    def add(self, said: Said) -> None:
        """Record a fault with its line, or with the override that brought it in."""
        key = dotted(said.key)
        found = next((p for p in merge.origins(said.key) if p in self.source.lines), None)
        for one in self.parsed:
            for path in merge.origins(said.key):
                if path[: len(one.path)] == one.path or (
                    found is None and one.path[: len(path)] == path and said.message == "unknown key"
                ):
                    fault = Fault("", 0, key, said.message, said.expected, said.near, one.text)
                    return self._append(fault)
        if found is not None and found != said.key:
            key = dotted(found)  # written once under defaults, wrong once
        line = self.source.lines[found] if found is not None else self._line_above(said.key)
        self._append(Fault(self.name, line, key, said.message, said.expected, said.near))

    def _append(self, fault: Fault) -> None:
        if fault not in self.faults:
            self.faults.append(fault)

    def _line_above(self, key: Path) -> int:
        while key:
            key = key[:-1]
            for path in merge.origins(key):
                if path in self.source.lines:
                    return self.source.lines[path]
        return 1

    # -- steps ----------------------------------------------------------------------------------

    def _values(self) -> dict[str, Any]:
        """File and overrides."""
        problem: SpecError | None = None
        try:
            self.source = yaml_source.parse(self.text, self.name)
            self.faults += self.source.faults
            self.spoilt |= self.source.spoilt
        except SpecError as error:
            problem = error
            self.faults += [f for f in error.faults if isinstance(f, Fault)]
        for text in self.given:
            try:
                self.parsed.append(overrides.parse(text))
            except SpecError as error:
                self.faults += [f for f in error.faults if isinstance(f, Fault)]
        if problem is not None:
            raise refuse(self.name, self.faults) from problem
        data = {} if self.source.data is None else self.source.data
        if not isinstance(data, dict):
            fault = Fault(self.name, 1, "", "is not an experiment", "a mapping with name and stages")
            raise refuse(self.name, [*self.faults, fault])
        data, faults = overrides.apply(data, self.parsed)
        self.faults += faults
        return data

    def _resolved(self, data: dict[str, Any]) -> dict[str, Any]:
        """References replaced. One that cannot stand is a fault, and its value is left out."""
        checker = references.Checker(data)
        bad: list[Path] = []
        said: set[str] = set()  # a circle is one fault, however many references form it
        for path, _ in references.walk(data):
            try:
                checker.check(path)
            except references.Bad as error:
                bad.append(path)
                if not (error.message.startswith(references.CIRCLE) and error.message in said):
                    self.add(Said(path, error.message, error.expected, error.suggestion))
                said.add(error.message)
        for path in bad:
            _put(data, path, "")
            self.spoilt.add(path)
        return references.resolve(data)

    def _absolute(self, data: dict[str, Any]) -> None:
        """Paths of the user become absolute: a job runs elsewhere. Those of the file are relative to
        the file, those of an override to the directory it was typed in."""
        base = self.file.absolute().parent
        for name, stage in _items(data.get("stages")):
            if not isinstance(stage, dict):
                continue
            kind = stage.get("kind")
            if kind == "text" and stage.get("inputs") is not None:
                given = stage["inputs"]
                given = [given] if isinstance(given, str) else given
                if isinstance(given, list):
                    start = self._start(("stages", name, "inputs"), base)
                    stage["inputs"] = [_join(start, p) for p in given]
            elif kind == "command" and isinstance(stage.get("workdir") or "", str):
                start = self._start(("stages", name, "workdir"), base)
                stage["workdir"] = _join(start, stage.get("workdir") or ".")

    def _start(self, path: Path, base: FilePath) -> FilePath:
        typed = any(path[: len(one.path)] == one.path for one in self.parsed)
        return FilePath.cwd() if typed else base

    def _secrets(self) -> None:
        """The file is kept as it is, comments included: nothing in it may look like a credential."""
        message = "something here looks like a credential; the file is copied to the run's directory"
        expected = "the name of an environment variable, under env_from"
        for number, line in enumerate(self.text.splitlines(), 1):
            if secret_shape(line):
                self._append(Fault(self.name, number, "", message, expected))
        for one, text in zip(self.parsed, self.given, strict=False):
            if secret_shape(text):
                self._append(
                    Fault("", 0, dotted(one.path), "looks like a credential", expected, override=one.text)
                )

    def _profile(
        self,
        data: Mapping[str, Any],
        profiles: Mapping[str, Profile] | None,
        cluster: str | None,
        runner: Runner | None,
    ) -> Profile | None:
        if profiles is None:
            return None
        from ..clusters import resolve_profile

        name = cluster or data.get("cluster", "auto")
        if not isinstance(name, str):
            return None  # the schema says so
        try:
            return resolve_profile(name, profiles, runner)
        except SpecError as error:
            for fault in error.faults:
                if isinstance(fault, Fault):
                    self._unknown_cluster(fault, cluster)
            return None

    def _unknown_cluster(self, fault: Fault, option: str | None) -> None:
        if option is None:
            self.add(Said(("cluster",), fault.message, fault.expected, fault.suggestion))
        else:
            self._append(replace(fault, key="", override=f"--cluster {option}"))

    def _validated(self, data: dict[str, Any]) -> tuple[Experiment | None, dict[str, dict[str, Any]]]:
        """The experiment when the schema accepts it; and the plain values of every stage it accepts."""
        try:
            experiment = Experiment.model_validate(data)
        except ValidationError as error:
            for one in error.errors(include_url=False):
                said = messages.say(one, Experiment)
                if not self._spoilt(said.key):
                    self.add(said)
            experiment = None
        good = {}
        for name, stage in _items(data.get("stages")):
            try:
                good[name] = _STAGE.validate_python(stage).model_dump(mode="json", by_alias=True)
            except ValidationError:
                continue  # its faults were recorded above
        return experiment, good

    def _spoilt(self, key: Path) -> bool:
        return any(key[: len(p)] == p or p[: len(key)] == key for s in self.spoilt for p in _copies(s, key))

    def _checked(self, data: Mapping[str, Any], good: Mapping[str, dict[str, Any]], early_s: float) -> None:
        raw = {name: stage for name, stage in _items(data.get("stages")) if isinstance(stage, dict)}
        found: list[Iterable[Said]] = [checks.check_needs(raw), checks.check_environment(data, ())]
        if isinstance(data.get("defaults"), dict):
            found.append(checks.check_environment(data["defaults"], ("defaults",)))
        found += [checks.check_environment(stage, ("stages", name)) for name, stage in raw.items()]
        for name, stage in raw.items():
            if isinstance(stage.get("model"), dict):
                found.append(checks.check_model_keys(("stages", name), stage["model"]))
        stages = {name: good.get(name, stage) for name, stage in raw.items()}
        found += [checks.check_stage(name, good[name], stages, early_s) for name in good]
        for said in _all(found):
            if not self._spoilt(said.key):
                self.add(said)


def _all(groups: Iterable[Iterable[Said]]) -> Iterator[Said]:
    for group in groups:
        yield from group


def _items(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _copies(spoilt: Path, key: Path) -> list[Path]:
    """Where a value that is wrong under ``defaults`` turns up again in the stage of ``key``."""
    if spoilt[:1] == ("defaults",) and key[:1] == ("stages",):
        return [spoilt, (*key[:2], *spoilt[1:])]
    return [spoilt]


def _put(data: Any, path: Path, value: Any) -> None:
    for part in path[:-1]:
        data = data[part]
    data[path[-1]] = value


def _join(base: FilePath, given: Any) -> Any:
    if not isinstance(given, str):
        return given
    return os.path.normpath(base / FilePath(given).expanduser()) if "\0" not in given else given
