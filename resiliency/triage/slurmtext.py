"""``sacct`` and ``sinfo -R`` as text, host lists, rank maps: facts about the job from outside its logs.

Tolerates missing columns, other orders and cut lines; never raises on content.
``tests/resiliency/triage/test_reading.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..jobstate import normalise
from . import clock

_PART = re.compile(r"([^,\[\]]+)(?:\[([^\]]*)\])?([^,\[\]]*)")
MAX_NODES = 100_000


def expand(nodelist: str) -> list[str]:
    """``node-[0112-0113,7],login1`` → names, in order. Not a host list: no names."""
    names: list[str] = []
    text = nodelist.strip()
    if not text or text.lower() in ("none assigned", "none", "(null)", "unknown"):
        return []
    for match in _PART.finditer(text):
        head, ranges, tail = match.groups()
        if ranges is None:
            names.append(head.strip())
            continue
        for item in ranges.split(","):
            low, _, high = item.strip().partition("-")
            if not low.isdigit() or (high and not high.isdigit()):
                continue
            for number in range(int(low), int(high or low) + 1):
                names.append(f"{head}{number:0{len(low)}d}{tail}")
                if len(names) > MAX_NODES:
                    return names
    return names


@dataclass
class Run:
    """One row of a job in ``sacct -D``, with its steps; ``line`` is where it stands."""

    job_id: str
    state: str
    raw_state: str = ""
    exit_code: int | None = None
    signal: int | None = None
    start: float | None = None
    end: float | None = None
    submit: float | None = None
    nodes: list[str] = field(default_factory=list)
    reason: str = ""
    line: int = 0
    text: str = ""
    cancelled_by: str | None = None
    steps: list[Run] = field(default_factory=list)

    @property
    def started(self) -> bool:
        return self.start is not None


@dataclass
class NodeReason:
    reason: str
    nodes: list[str]
    time: float | None
    line: int
    text: str


@dataclass
class Place:
    node: str | None = None
    gpu: int | None = None
    ip: str | None = None
    pci: str | None = None


def _exit(text: str) -> tuple[int | None, int | None]:
    code, _, signal = text.partition(":")
    return (int(code) if code.isdigit() else None, int(signal) if signal.isdigit() else None)


def _time(text: str) -> float | None:
    stamp = clock.find(text)
    return stamp.seconds if stamp and not stamp.partial else None


def parse_sacct(text: str) -> list[Run]:
    """Allocations in the order of the file, each with its steps."""
    rows = text.split("\n")
    header: list[str] = []
    runs: list[Run] = []
    for number, row in enumerate(rows, 1):
        cells = row.rstrip("\r").rstrip("|").split("|")
        if cells and cells[0].strip() == "JobID":
            header = [c.strip() for c in cells]
            continue
        if not header or len(cells) < 3:
            continue
        got = dict(zip(header, cells, strict=False))
        raw = got.get("State", "")
        code, signal = _exit(got.get("ExitCode", ""))
        by = re.search(r"\bby (\S+)", raw)
        run = Run(
            got.get("JobID", "").strip(),
            normalise(raw),
            raw.strip(),
            code,
            signal,
            _time(got.get("Start", "")),
            _time(got.get("End", "")),
            _time(got.get("Submit", "")),
            expand(got.get("NodeList", "")),
            got.get("Reason", "").strip(),
            number,
            row.strip(),
            by.group(1) if by else None,
        )
        if "." in run.job_id:
            parent = next((r for r in reversed(runs) if r.job_id == run.job_id.split(".")[0]), None)
            if parent is not None:
                parent.steps.append(run)
            continue
        runs.append(run)
    return runs


_SINFO = re.compile(
    r"^(?P<reason>.*?)\s+(?P<user>\S+)\s+(?P<time>\d{4}-\d\d-\d\dT[\d:]+|Unknown)\s+(?P<nodes>\S+)\s*$"
)


def parse_sinfo(text: str) -> list[NodeReason]:
    found = []
    for number, row in enumerate(text.split("\n"), 1):
        match = _SINFO.match(row)
        if match:
            found.append(
                NodeReason(
                    match["reason"].strip(), expand(match["nodes"]), _time(match["time"]), number, row.strip()
                )
            )
    return found


def parse_places(text: str) -> dict[int, Place]:
    """``nodes.json``: rank → place."""
    try:
        data = json.loads(text)
    except ValueError:
        return {}
    places: dict[int, Place] = {}
    if not isinstance(data, dict):
        return places
    for rank, row in data.items():
        if str(rank).isdigit() and isinstance(row, dict):
            gpu = row.get("gpu")
            places[int(rank)] = Place(
                _text(row.get("node")),
                gpu if isinstance(gpu, int) else None,
                _text(row.get("ip")),
                _text(row.get("pci")),
            )
    return places


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def current_run(runs: Iterable[Run], job_id: str | None = None) -> tuple[Run | None, list[Run]]:
    """The run to explain and the earlier runs of the same job.

    The last row of a job is its current run; one that only waits (requeued, held) has no story of its own, so
    the row before it is the one to explain.
    """
    rows = list(runs)
    if job_id is not None and any(r.job_id == job_id for r in rows):
        rows = [r for r in rows if r.job_id == job_id]
    elif rows:
        latest = max(rows, key=lambda r: (r.end or r.start or r.submit or 0.0, r.line))
        rows = [r for r in rows if r.job_id == latest.job_id]
    if not rows:
        return None, []
    return rows[-1], rows[:-1]
