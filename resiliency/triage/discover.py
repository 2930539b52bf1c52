"""Which files there are and what each is, from names first and content where a name says nothing.

Follows no directory twice (links may form loops), looks at most at ``MAX_FILES`` files.
``tests/resiliency/triage/test_reading.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .reader import COMPRESSED, Source, pieces, stem

MAX_FILES = 20_000
MAX_DEPTH = 8

_KERNEL = re.compile(
    r"^(?:dmesg|kern(?:el)?|journal(?:ctl)?|syslog|messages|fabricmanager)[-_.](?P<node>[\w.-]+?)(?:[-_.](?:dmesg|kern|kernel))?\.(?:log|txt|out)$"
    r"|^(?P<node2>[\w.-]+?)[-_.](?:dmesg|kern(?:el)?|journal|syslog)(?:\.(?:log|txt|out))?$"
)
_BARE_KERNEL = re.compile(
    r"^(?:dmesg|kern|kernel|journal|syslog|messages|fabricmanager)(?:\.(?:log|txt|out))?$"
)
_RANK = re.compile(
    r"(?:^|[-_.])(?:rank|global_rank|r)[-_.]?(?P<rank>\d{1,6})(?:[-_.][\w-]+)?\.(?:log|txt|out|err)$"
)
_STACKS = re.compile(r"(?:py-?spy|stack)s?[-_.].*\.(?:txt|log|json|out)$|\.stacks?$", re.I)
_FLIGHT = re.compile(r"(?:nccl_trace|flight|fr_trace|comm_lib_trace|nccl_flight)[\w.-]*", re.I)
_SKIP = frozenset({"expected.json", "run.json", "stage.json", "nodes.json"})
_SKIP_SUFFIX = (
    ".pt",
    ".pth",
    ".distcp",
    ".safetensors",
    ".bin",
    ".idx",
    ".npy",
    ".npz",
    ".parquet",
    ".arrow",
    ".so",
    ".pyc",
    ".db",
    ".png",
    ".sqsh",
    ".whl",
    ".yaml",
    ".yml",
    ".py",
    ".sbatch",
    ".sh",
    ".lock",
    ".md",
    ".html",
    ".csv",
)


@dataclass(frozen=True)
class Found:
    """``kind``: log, kernel, sacct, sinfo, places, flight, stacks, journal, steps, scontrol."""

    path: Path
    name: str  # as shown in evidence: relative to what was given
    kind: str
    node: str | None = None
    rank: int | None = None


def find(paths: Iterable[Path]) -> tuple[list[Found], list[str]]:
    """All files under ``paths``, sorted by name, and notes on what was left out."""
    found: list[Found] = []
    notes: list[str] = []
    seen: set[tuple[int, int]] = set()
    for path in paths:
        for file, name in _walk(path, seen, notes):
            if len(found) >= MAX_FILES:
                notes.append(f"more than {MAX_FILES} files; the rest is not looked at")
                return found, notes
            classified = classify(file, name)
            if classified is not None:
                found.append(classified)
    return found, notes


def _walk(path: Path, seen: set[tuple[int, int]], notes: list[str]) -> Iterable[tuple[Path, str]]:
    try:
        if not path.is_dir():
            if path.exists():
                yield path, path.name
            else:
                notes.append(f"{path}: not there")
            return
        stack = [(path, 0)]
        while stack:
            folder, depth = stack.pop()
            status = folder.stat()
            if (status.st_dev, status.st_ino) in seen or depth > MAX_DEPTH:
                continue
            seen.add((status.st_dev, status.st_ino))
            try:
                entries = sorted(os.scandir(folder), key=lambda e: e.name)
            except OSError as error:
                notes.append(f"{folder}: {error.strerror or error}")
                continue
            for entry in entries:
                try:
                    if entry.is_dir():
                        if not entry.name.startswith(".") and entry.name not in (
                            "checkpoints",
                            "artifact",
                            "ckpt",
                        ):
                            stack.append((Path(entry.path), depth + 1))
                    elif entry.is_file():
                        yield Path(entry.path), str(Path(entry.path).relative_to(path))
                except OSError as error:
                    notes.append(f"{entry.path}: {error.strerror or error}")
    except OSError as error:
        notes.append(f"{path}: {error.strerror or error}")


def classify(path: Path, name: str) -> Found | None:
    base = stem(path.name)
    lower = base.lower()
    if lower == "nodes.json" or lower in ("rank_map.json", "ranks.json"):
        return Found(path, name, "places")
    if lower in _SKIP or lower.endswith(_SKIP_SUFFIX):
        return None
    if lower.startswith("sacct"):
        return Found(path, name, "sacct")
    if lower.startswith("sinfo"):
        return Found(path, name, "sinfo")
    if lower.endswith(".jsonl"):
        return Found(path, name, "journal")
    match = _KERNEL.match(base)
    if match:
        return Found(path, name, "kernel", node=match["node"] or match["node2"])
    if _BARE_KERNEL.match(lower):
        return Found(path, name, "kernel")
    if _FLIGHT.search(base) and not lower.endswith((".log", ".txt", ".out", ".err")):
        return Found(path, name, "flight", rank=_last_number(base))
    if _STACKS.search(lower):
        return Found(path, name, "stacks", rank=_last_number(base))
    rank = _RANK.search(base)
    kind = "log"
    if rank is None and not lower.endswith((".log", ".txt", ".out", ".err", ".stdout", ".stderr")):
        if lower.endswith(".json"):
            return None
        kind = _by_content(path)
        if not kind:
            return None
    return Found(path, name, kind, rank=int(rank["rank"]) if rank else None)


def _last_number(text: str) -> int | None:
    numbers = re.findall(r"\d+", text)
    return int(numbers[-1]) if numbers and len(numbers[-1]) < 7 else None


def _by_content(path: Path) -> str:
    """``log`` for text, empty for anything else (a file without a telling name)."""
    head = b""
    for _, data, _ in pieces(Source(path), chunk=4096):
        head = data[:4096]
        break
    if not head:
        return ""
    if head.startswith(b"JobID|"):
        return "sacct"
    if head.startswith(b"REASON "):
        return "sinfo"
    printable = sum(32 <= c < 127 or c in (9, 10, 13, 27) for c in head)
    return "log" if printable > 0.7 * len(head) else ""


def readable(path: Path, limit: int = 4 << 20) -> str:
    """A small text file as a whole (compressed or not)."""
    parts: list[bytes] = []
    total = 0
    for _, data, _ in pieces(Source(path)):
        parts.append(data[: limit - total])
        total += len(data)
        if total >= limit:
            break
    return b"".join(parts).decode("utf-8", "replace")


__all__ = ["COMPRESSED", "Found", "classify", "find", "readable"]
