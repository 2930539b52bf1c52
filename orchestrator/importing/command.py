"""``ledger import``: which sources were asked for, each to its importer.

``tests/orchestrator/importing/test_command.py``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from orchestrator.home import Home
from resiliency.durable import storage_error
from resiliency.edges import SystemRunner
from resiliency.errors import UsageError

from . import live, logs, sacct
from .summary import Summary


@dataclass(frozen=True)
class Wanted:
    """The options of the verb, as given."""

    sacct: str | None
    live: bool
    since: str
    logs: tuple[Path, ...]
    job: str | None
    zone: str | None
    cluster: str | None
    dry_run: bool


def run(home: Home, wanted: Wanted) -> list[Summary]:
    """One summary per source. Raises UsageError when none was named, and what the importers raise."""
    if wanted.sacct is not None and wanted.live:
        raise UsageError("--sacct and --live are two ways to the same rows", hint="give one of them")
    if wanted.sacct is None and not wanted.live and not wanted.logs:
        raise UsageError("nothing to import", hint="give --sacct FILE, --live or --log FILE")
    options = sacct.Options(wanted.zone, wanted.cluster, wanted.dry_run)
    found = []
    if wanted.sacct is not None:
        with _opened(wanted.sacct) as stream:
            name = "standard input" if wanted.sacct == "-" else wanted.sacct
            found.append(sacct.import_sacct(home, stream, name, options))
    if wanted.live:
        lines = live.ask(SystemRunner(), os.environ, wanted.since, wanted.cluster)
        found.append(sacct.import_sacct(home, lines, "sacct", options))
    for path in wanted.logs:
        found.append(logs.import_log(home, path, options, job=wanted.job))
    return found


@contextmanager
def _opened(name: str) -> Iterator[TextIO]:
    if name == "-":
        if hasattr(sys.stdin, "reconfigure"):
            sys.stdin.reconfigure(errors="replace")
        yield sys.stdin
        return
    try:
        with Path(name).expanduser().open(encoding="utf-8", errors="replace") as stream:
            yield stream
    except OSError as error:
        raise storage_error(error, name, "read") from error
