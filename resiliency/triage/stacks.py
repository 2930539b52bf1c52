"""Stacks of many ranks (``py-spy dump``): grouped by equal frames, the odd ones out named.

Ranks that wait for another one stand in the same collective; the one that they wait for stands elsewhere.
``tests/resiliency/triage/test_dumps.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .discover import readable
from .model import AMBIGUOUS, Hit

_THREAD = re.compile(r'^Thread (?:\d+|0x[0-9a-fA-F]+)(?: \((?P<state>[^)]*)\))?(?:: "(?P<name>[^"]*)")?')
_FRAME = re.compile(r"^\s+(?P<function>\S.*?) \((?P<file>[^():]+):(?P<line>\d+)\)\s*$")
_FAULT = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')
DEPTH = 8


@dataclass
class Group:
    """Ranks whose main threads stand in the same frames (innermost first)."""

    frames: tuple[str, ...]
    ranks: list[int]
    files: list[str]


def main_frames(text: str) -> tuple[str, ...]:
    """Innermost frames of the main thread; of the first thread if none is named so."""
    threads: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        thread = _THREAD.match(line)
        if thread:
            threads.append((thread["name"] or "", []))
            continue
        frame = _FRAME.match(line) or _FAULT.match(line)
        if frame:
            if not threads:
                threads.append(("", []))
            name = frame["file"].rsplit("/", 1)[-1]
            threads[-1][1].append(f"{frame['function']} ({name})")
    if not threads:
        return ()
    chosen = next((f for n, f in threads if n == "MainThread" and f), threads[0][1])
    return tuple(chosen[:DEPTH])


def read(files: Sequence[tuple[Path, str, int | None]]) -> list[Group]:
    """Groups, the largest first."""
    groups: dict[tuple[str, ...], Group] = {}
    for path, name, rank in files:
        frames = main_frames(readable(path))
        if not frames:
            continue
        group = groups.setdefault(frames, Group(frames, [], []))
        group.files.append(name)
        if rank is not None:
            group.ranks.append(rank)
    return sorted(groups.values(), key=lambda g: -len(g.files))


def odd_one_out(groups: Sequence[Group]) -> Hit | None:
    """The minority, if there is a clear majority (nine in ten, or all but one of at least three)."""
    total = sum(len(g.files) for g in groups)
    if len(groups) < 2 or total < 3:
        return None
    most = len(groups[0].files)
    if most < total - 1 and most < 0.9 * total:
        return None
    odd = groups[-1]
    rank = odd.ranks[0] if len(odd.ranks) == 1 and len(groups) == 2 else None
    text = (
        f"stacks: {most} ranks stand in {groups[0].frames[0]}, "
        f"rank {', '.join(map(str, odd.ranks[:4])) or '?'} in {odd.frames[0]}"
    )
    return Hit("stacks-odd-one-out", "hang", AMBIGUOUS, odd.files[0], 1, text, rank=rank)
