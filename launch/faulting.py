"""Rehearsals: finds the processes of an attempt on this host, and harms them.

For emulated nodes (the local scheduler, a dev cluster), whose processes all run here. Only what carries the
attempt's id in its command line is touched. ``tests/launch/test_faulting.py``.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from . import processes


def _command_lines() -> Iterator[tuple[int, list[str]]]:
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):
            words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
            yield int(entry), [word.decode(errors="replace") for word in words]


def _option(words: list[str], name: str) -> str | None:
    try:
        return words[words.index(name) + 1]
    except (ValueError, IndexError):
        return None


def _node_of(pid: int, words: list[str]) -> str | None:
    """By option for an emulated node of the local scheduler, by Slurm's variable for the others."""
    given = _option(words, "--node")
    if given is not None:
        return given
    with contextlib.suppress(OSError):
        for item in Path("/proc", str(pid), "environ").read_bytes().split(b"\0"):
            if item.startswith(b"SLURMD_NODENAME="):
                return item.partition(b"=")[2].decode()
    return None


def agents(attempt: str, run_dir: Path) -> dict[str, int]:
    """Node → process of its agent, for the agents of this attempt that run on this host."""
    found = {}
    for pid, words in _command_lines():
        mine = _option(words, "--attempt") == attempt and _option(words, "--run-dir") == str(run_dir)
        # srun has the agent's words among its own: it is none.
        if mine and words[1:3] == ["-m", "launch.agent"] and (node := _node_of(pid, words)):
            found[node] = pid
    return found


def supervisor(run_dir: Path, stage: str, link: int) -> int | None:
    """Process of a link's segment supervisor, if it runs on this host."""
    for pid, words in _command_lines():
        if words[1:3] == ["-m", "orchestrator.segment"] and (
            _option(words, "--run-dir"),
            _option(words, "--stage"),
            _option(words, "--link"),
        ) == (str(run_dir), stage, str(link)):
            return pid
    return None


def kill_node(agent: int) -> int:
    """SIGKILL an emulated node: its agent and all that it started, as when the power goes. How many."""
    # Stopped first, so that nothing on the node can tell anybody or start anything.
    everyone = {agent, *processes.descendants(agent)}
    for number in (signal.SIGSTOP, signal.SIGKILL):
        everyone |= set(processes.descendants(agent))
        for pid in everyone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
    return len(everyone)
