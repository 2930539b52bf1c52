"""A run on disk: making its directory, opening it again, finding one like it.

The directory appears complete or not at all: it is built aside and renamed. ``run.json`` freezes the
resolved experiment and the cluster profile, so that any later command plans the same links without the
user's file. ``tests/orchestrator/test_runs.py``.
"""

from __future__ import annotations

import getpass
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from resiliency import contract, durable
from resiliency.crashpoint import point
from resiliency.errors import StorageError, TrainmasterError

from .home import Home
from .plan import RunPlan, RunRecord, load_run_record


@dataclass(frozen=True)
class Run:
    """A run directory with what it froze."""

    paths: contract.RunPaths

    @property
    def id(self) -> str:
        return self.paths.root.name

    @cached_property
    def record(self) -> RunRecord:
        """Raises StorageError when ``run.json`` is torn or of a newer version."""
        return load_run_record(self.paths.run_json)

    @cached_property
    def plan(self) -> RunPlan:
        return self.record.plan(self.paths.root)

    def created_event(self) -> dict[str, Any]:
        """Payload of ``run.created``."""
        record = self.record
        return {
            "name": self.plan.name,
            "spec_digest": record.spec_digest,
            "cluster": self.plan.cluster,
            "user": getpass.getuser(),
            "experiment": str(record.source),
            "version": record.version,
            "run_dir": str(self.paths.root),
            "stages": [
                {"name": s.name, "kind": s.kind, "needs": list(s.needs), "max_links": s.max_links}
                for s in self.plan.stages
            ],
        }


def open_run(path: Path) -> Run:
    return Run(contract.RunPaths(path))


def new_run_id(name: str, now: float) -> str:
    """``<name>-<yyyymmdd-hhmmss>-<4 hex>``, local time as in Slurm's own output."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    return f"{name}-{stamp}-{secrets.token_hex(2)}"


def create_run(
    home: Home,
    record: RunRecord,
    text: str,
    *,
    runs_root: Path,
    amend: Callable[[contract.RunPaths, Path], None] | None = None,
) -> Run:
    """Make the run directory of ``record`` below ``runs_root``; ``text``: the user's file.

    ``amend`` (a rehearsal's plan) gets the directory while nothing can start in it yet, and its final path.
    Raises StorageError (unwritable, full) with nothing left behind but a hidden directory.
    """
    home.ensure()
    home.remember_root(runs_root)
    point("run.after_root")
    final = runs_root / record.run_id
    home.mark_active(final)
    point("run.after_mark")
    building = runs_root / f".{record.run_id}.building"
    mode = 0o2770 if record.group else 0o700
    try:
        runs_root.mkdir(mode=0o700, parents=True, exist_ok=True)
        building.mkdir(mode=0o700)
        paths = contract.RunPaths(building)
        for directory in (paths.journal, paths.scripts, paths.claims):
            directory.mkdir()
        plan = record.plan(final)
        for stage in plan.stages:
            for directory in (paths.stage(stage.name), paths.logs(stage.name)):
                directory.mkdir(parents=True, exist_ok=True)
            config = json.dumps(stage.stage_config, indent=1, sort_keys=True)
            durable.write_plain(paths.stage_config(stage.name), config + "\n")
        durable.write_plain(paths.experiment, text)
        if amend is not None:
            amend(paths, final)
        durable.write_atomic(paths.run_json, record.to_json() + "\n")
        _share(building, record.group, mode)
        point("run.before_rename")
        os.rename(building, final)
        durable.fsync_dir(runs_root)
    except OSError as error:
        shutil.rmtree(building, ignore_errors=True)
        raise durable.storage_error(error, error.filename or final, "create run directory") from error
    except TrainmasterError:
        shutil.rmtree(building, ignore_errors=True)
        raise
    point("run.after_rename")
    return open_run(final)


def _share(root: Path, group: str | None, mode: int) -> None:
    """The user alone, unless the experiment names a group."""
    if group is None:
        return
    for directory, _, files in os.walk(root):
        try:
            shutil.chown(directory, group=group)
            os.chmod(directory, mode)
            for name in files:
                shutil.chown(os.path.join(directory, name), group=group)
                os.chmod(os.path.join(directory, name), 0o660)
        except LookupError as error:
            raise StorageError(
                f"no group {group!r} on this machine", hint="correct `group` in the experiment"
            ) from error


def iter_runs(home: Home) -> Iterator[Run]:
    """Every run below the known roots."""
    for path in home.run_dirs():
        yield open_run(path)


def same_experiment(home: Home, record: RunRecord) -> Iterator[Run]:
    """Runs made from the same resolved experiment on the same profile, newest first."""
    name = f"{record.name}-"
    for path in sorted(home.run_dirs(), key=lambda p: p.name, reverse=True):
        if not path.name.startswith(name):
            continue
        run = open_run(path)
        try:
            if run.record.spec_digest == record.spec_digest:
                yield run
        except TrainmasterError:
            continue  # a torn or newer run.json is not the same experiment; doctor names it
