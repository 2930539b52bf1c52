"""``logs``: what the jobs printed."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Annotated

import typer

from resiliency.errors import NotFound
from resiliency.redact import redact

from .common import HomeOption, JsonOption, RunArgument, emit, errors_shown, home_of, note, say

EXAMPLE = "Example: python -m orchestrator logs quickstart --stage pretrain --link 2 -f"


def command(
    run: RunArgument = None,
    stage: Annotated[str | None, typer.Option("--stage", "-s", help="Only this stage.")] = None,
    link: Annotated[int | None, typer.Option("--link", help="Only this link of the chain (from 1).")] = None,
    attempt: Annotated[
        str | None,
        typer.Option("--attempt", help="Only this attempt: LINK.RESTART, such as 2.0, or a job id."),
    ] = None,
    node: Annotated[str | None, typer.Option("--node", help="Only this node.")] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Last lines of each file; 0: all.")] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on printing until the run is over.")
    ] = False,
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Print the logs of a run: per link the supervisor's, per node the roles'. Credentials are redacted.

    --json lists the files instead.
    """
    with errors_shown():
        from .. import logfiles
        from ..session import Session

        session = Session(home_of(home))
        found = session.find(run)
        names = [s.name for s in found.plan.stages]
        if stage is not None and stage not in names:
            raise NotFound(f"run {found.id} has no stage {stage!r}", hint=f"one of: {', '.join(names)}")

        def select() -> list[logfiles.LogFile]:
            return logfiles.find(found, stage=stage, link=link, attempt=attempt, node=node)

        chosen = select()
        if json:
            emit([vars(f) | {"path": str(f.path)} for f in chosen])
            return
        if not chosen and not follow:
            note(f"{found.id}: no logs yet for this choice; see: python -m orchestrator status {found.id}")
            raise typer.Exit(7)
        offsets: dict[Path, int] = {}
        for one in chosen:
            say(f"==> {one.title} <==")
            offsets[one.path] = _tail(one.path, lines)
        if follow:
            _follow(found, select, offsets)


def _tail(path: Path, lines: int) -> int:
    """Print the last lines; returns the offset read to. Bytes that are not UTF-8 are shown as such."""
    kept: deque[bytes] = deque(maxlen=lines or None)
    with path.open("rb") as stream:
        if lines:
            # A line of a log rarely exceeds 1 KiB; a window bounds the work on a huge file.
            stream.seek(max(0, path.stat().st_size - max(1 << 20, lines * 1024)))
        for line in stream:
            kept.append(line)
        end = stream.tell()
    for line in kept:
        say(line.decode(errors="backslashreplace").rstrip("\r\n"))
    return end


def _follow(run, select, offsets: dict[Path, int]) -> None:  # type: ignore[no-untyped-def]
    from ..control import read_state

    last: Path | None = None
    while True:
        over = read_state(run).finished
        for one in select():
            start = offsets.get(one.path, 0)
            with one.path.open("rb") as stream:
                stream.seek(start)
                data = stream.read(1 << 20)
            whole = data[: data.rfind(b"\n") + 1] if not over else data
            if whole:
                if last != one.path:
                    say(f"==> {one.title} <==")
                    last = one.path
                print(redact(whole.decode(errors="backslashreplace")), end="", flush=True)
                offsets[one.path] = start + len(whole)
        if over:
            return
        time.sleep(1.0)
