"""``TRAINMASTER_HOME``: where the ledger, the clusters file and the list of run roots lie.

Knows paths and finds run directories; reads no run's content. ``tests/orchestrator/test_home.py``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from resiliency import contract, durable
from resiliency.errors import NotFound


def default_home() -> Path:
    """``$TRAINMASTER_HOME``, else ``~/.trainmaster``."""
    return Path(os.environ.get(contract.ENV_HOME) or "~/.trainmaster").expanduser().absolute()


@dataclass(frozen=True)
class Home:
    """Paths below the home directory; :meth:`ensure` creates it."""

    root: Path

    @classmethod
    def at(cls, path: Path | str | None) -> Home:
        return cls(Path(path).expanduser().absolute() if path else default_home())

    @property
    def ledger(self) -> Path:
        return self.root / "ledger.db"

    @property
    def clusters(self) -> Path:
        return self.root / "clusters.yaml"

    @property
    def roots_file(self) -> Path:
        return self.root / "run-roots.jsonl"

    @property
    def submit_lock(self) -> Path:
        return self.root / "submit.lock"

    @property
    def default_runs(self) -> Path:
        return self.root / "runs"

    @property
    def active_dir(self) -> Path:
        """One small file per run that is not finished; independent of the ledger, so an old ledger
        brought back from a backup hides no run."""
        return self.root / "active"

    def mark_active(self, run_dir: Path) -> None:
        """Remember a run as unfinished, before its directory appears. Idempotent."""
        try:
            self.active_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise durable.storage_error(error, self.active_dir, "create") from error
        durable.create_exclusive(self.active_dir / run_dir.name, f"{run_dir}\n")

    def mark_finished(self, run_id: str) -> None:
        """Nothing more is to be expected of the run. Idempotent."""
        try:
            (self.active_dir / run_id).unlink(missing_ok=True)
        except OSError as error:
            raise durable.storage_error(error, self.active_dir / run_id, "remove") from error

    def active_run_dirs(self) -> list[Path]:
        """Directories of unfinished runs, oldest name first; markers without a run are skipped."""
        try:
            markers = sorted(p for p in self.active_dir.iterdir() if not p.name.startswith("."))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise durable.storage_error(error, self.active_dir, "list") from error
        found = []
        for marker in markers:
            try:
                path = Path(marker.read_text(encoding="utf-8", errors="replace").strip())
            except OSError:
                continue  # removed by a command that finished it just now
            if (path / "run.json").is_file():
                found.append(path)
        return found

    def ensure(self) -> Home:
        """Create the directory, for the user alone. Raises StorageError when that is not possible."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise durable.storage_error(error, self.root, "create") from error
        return self

    def run_roots(self) -> list[Path]:
        """Directories that hold runs: the default one and all that were ever used from here."""
        roots = [self.default_runs]
        try:
            lines = self.roots_file.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        except OSError as error:
            raise durable.storage_error(error, self.roots_file, "read") from error
        for line in lines:
            try:
                root = Path(json.loads(line)["root"])
            except (ValueError, KeyError, TypeError):
                continue  # a torn line names nothing; the root is appended again at the next submit
            if root not in roots:
                roots.append(root)
        return roots

    def remember_root(self, root: Path) -> None:
        """Append ``root`` to the list unless it is there, durably, before any run is made below it."""
        if root in self.run_roots():
            return
        self.ensure()
        try:
            fd = os.open(self.roots_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                # The leading newline seals a tail torn by an earlier crash.
                os.write(fd, b"\n" + json.dumps({"root": str(root)}).encode() + b"\n")
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise durable.storage_error(error, self.roots_file, "append to") from error

    def run_dirs(self) -> Iterator[Path]:
        """Every complete run directory below the known roots (those with a ``run.json``)."""
        for root in self.run_roots():
            try:
                entries = sorted(os.scandir(root), key=lambda entry: entry.name)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise durable.storage_error(error, root, "list") from error
            for entry in entries:
                if contract.RUN_ID.fullmatch(entry.name) and os.path.exists(
                    os.path.join(entry.path, "run.json")
                ):
                    yield Path(entry.path)

    def find_run(self, text: str) -> Path:
        """The run directory for an id, a unique prefix of one, or a path. Raises NotFound."""
        as_path = Path(text).expanduser()
        if (as_path / "run.json").is_file():
            return as_path.absolute()
        known = {path.name: path for path in self.run_dirs()}
        if text in known:
            return known[text]
        hits = [name for name in known if name.startswith(text)]
        if len(hits) == 1:
            return known[hits[0]]
        if hits:
            raise NotFound(
                f"{text!r} is the start of {len(hits)} runs: {', '.join(hits[-5:])}",
                hint="give more of the run id",
            )
        import difflib

        near = difflib.get_close_matches(text, known, n=1)
        raise NotFound(
            f"no run {text!r} below {', '.join(map(str, self.run_roots()))}",
            hint=f"did you mean {near[0]}?" if near else "see: python -m orchestrator status --all",
        )
