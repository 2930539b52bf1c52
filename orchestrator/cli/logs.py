"""``logs``: what the jobs printed."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

import click
from click.exceptions import Exit

from .commands import verb
from .common import emit, home_of, note, say
from .options import home_option, json_option, run_argument


@verb("Example: python -m orchestrator logs quickstart --stage pretrain --link 2 -f")
@run_argument
@click.option("--stage", "-s", metavar="<str>", help="Only this stage.")
@click.option("--link", type=int, metavar="<int>", help="Only this link of the chain (from 1).")
@click.option("--attempt", metavar="<str>", help="Only this attempt: LINK.RESTART, such as 2.0, or a job id.")
@click.option("--node", metavar="<str>", help="Only this node.")
@click.option(
    "--lines",
    "-n",
    type=click.IntRange(min=0),
    metavar="<int range>",
    default=50,
    show_default=True,
    help="Last lines of each file; 0: all.",
)
@click.option("--follow", "-f", is_flag=True, help="Go on printing until the run is over.")
@home_option
@json_option
def command(
    run: str | None,
    stage: str | None,
    link: int | None,
    attempt: str | None,
    node: str | None,
    lines: int,
    follow: bool,
    home: Path | None,
    json: bool,
) -> None:
    """Print the logs of a run: per link the supervisor's, per node the roles'. Credentials are redacted.

    --json lists the files instead.
    """
    from resiliency.errors import NotFound

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
        raise Exit(7)
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
    from resiliency.redact import redact

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
