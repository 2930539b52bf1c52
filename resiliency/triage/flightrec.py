"""PyTorch flight-recorder dumps: who did not join which collective, and who called another one.

A dump is a pickle or JSON. Pickles are data of unknown origin: they are read by an unpickler that refuses
every class and function, so only plain containers come out.
``tests/resiliency/triage/test_dumps.py``.
"""

from __future__ import annotations

import io
import json
import pickle
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .model import AMBIGUOUS, ROOT, Hit
from .reader import Source, pieces

MAX_BYTES = 256 << 20


@dataclass
class Finding:
    """``kind``: missing (ranks that did not reach what others wait in) or mismatch."""

    kind: str
    group: str
    sequence: int
    operation: str
    ranks: list[int]
    waiting: int
    file: str
    time: float | None = None
    detail: str = ""

    def hit(self) -> Hit:
        ranks = ", ".join(str(r) for r in self.ranks[:8])
        if self.kind == "mismatch":
            text = f"flight recorder: group {self.group}, collective {self.sequence}: {self.detail}"
            return Hit(
                "flight-mismatch",
                "code_desync",
                ROOT,
                self.file,
                0,
                text,
                time=self.time,
                timed=True,
                lag_s=600.0,
            )
        text = (
            f"flight recorder: group {self.group}: rank {ranks} did not join {self.operation} "
            f"(collective {self.sequence}) that {self.waiting} ranks wait in"
        )
        alone = self.ranks[0] if len(self.ranks) == 1 else None
        return Hit(
            "flight-missing-rank",
            "comm_timeout",
            AMBIGUOUS,
            self.file,
            0,
            text,
            time=self.time,
            timed=True,
            lag_s=600.0,
            rank=alone,
            groups={"missing": ranks},
        )


class _PlainOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"refused: {module}.{name} is not plain data")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("refused: persistent id")


def load(path: Path) -> dict[str, Any]:
    """One dump; ValueError says why it cannot be read."""
    data = b"".join(d for _, d, _ in pieces(Source(path)))[: MAX_BYTES + 1]
    if len(data) > MAX_BYTES:
        raise ValueError("too large")
    try:
        if data[:1] in (b"{", b"["):
            made = json.loads(data)
        else:
            made = _PlainOnly(io.BytesIO(data)).load()
    except Exception as error:  # whatever a hostile stream makes the unpickler raise, it is unreadable
        raise ValueError(f"not a flight-recorder dump: {error}") from error
    if not isinstance(made, dict) or not isinstance(made.get("entries"), list):
        raise ValueError("not a flight-recorder dump: no entries")
    return made


@dataclass
class _Rank:
    last: dict[str, int] = field(default_factory=dict)
    calls: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)


def read(files: Sequence[tuple[Path, str, int | None]]) -> tuple[list[Finding], list[str]]:
    """Findings of all dumps together, the earliest first; and notes on files that could not be read."""
    ranks: dict[int, _Rank] = {}
    members: dict[str, set[int]] = defaultdict(set)
    names: dict[int, str] = {}
    notes: list[str] = []
    for path, name, number in files:
        try:
            dump = load(path)
        except ValueError as error:
            notes.append(f"{name}: {error}")
            continue
        rank = dump.get("rank", number)
        if not isinstance(rank, int):
            notes.append(f"{name}: whose dump it is cannot be told")
            continue
        names[rank] = name
        ranks[rank] = _entries(dump["entries"])
        _members(dump.get("pg_config"), members)
    return (_missing(ranks, members, names) + _mismatched(ranks, names)), notes


def _group_of(entry: dict[str, Any]) -> str:
    group = entry.get("process_group")
    if isinstance(group, (list, tuple)) and group:
        return str(group[0])
    return str(group if group is not None else entry.get("pg_id", "?"))


def _entries(rows: list[Any]) -> _Rank:
    made = _Rank()
    for entry in rows:
        if not isinstance(entry, dict) or entry.get("is_p2p"):
            continue
        sequence = entry.get("collective_seq_id", entry.get("seq_id"))
        if not isinstance(sequence, int):
            continue
        group = _group_of(entry)
        made.last[group] = max(made.last.get(group, -1), sequence)
        made.calls[(group, sequence)] = entry
    return made


def _members(config: Any, members: dict[str, set[int]]) -> None:
    if not isinstance(config, dict):
        return
    for key, row in config.items():
        listed = row.get("ranks") if isinstance(row, dict) else None
        if isinstance(listed, str):
            try:
                listed = json.loads(listed)
            except ValueError:
                listed = None
        if isinstance(listed, (list, tuple)):
            members[str(key)] |= {int(r) for r in listed if isinstance(r, int)}


def _missing(ranks: dict[int, _Rank], members: dict[str, set[int]], names: dict[int, str]) -> list[Finding]:
    found = []
    groups = {g for r in ranks.values() for g in r.last}
    for group in sorted(groups):
        known = {r: s.last[group] for r, s in ranks.items() if group in s.last}
        expected = members.get(group) or set(known)
        waiting = _waiting(ranks, group)
        if waiting is None:
            continue
        sequence, entry, who = waiting
        behind = sorted(r for r in expected if r in ranks and known.get(r, -1) < sequence)
        silent = sorted(r for r in expected if r not in ranks)
        culprits = behind or silent
        if culprits and len(culprits) < len(expected):
            found.append(
                Finding(
                    "missing",
                    group,
                    sequence,
                    str(entry.get("profiling_name", "?")),
                    culprits,
                    len(who),
                    names[who[0]],
                    _seconds(entry),
                )
            )
    return sorted(found, key=lambda f: f.time if f.time is not None else float("inf"))


def _waiting(ranks: dict[int, _Rank], group: str) -> tuple[int, dict[str, Any], list[int]] | None:
    """The first collective of a group that some rank has begun and none has completed."""
    open_calls: dict[int, list[int]] = defaultdict(list)
    example: dict[int, dict[str, Any]] = {}
    for rank, made in ranks.items():
        for (name, sequence), entry in made.calls.items():
            if name == group and entry.get("state") != "completed" and not entry.get("retired"):
                open_calls[sequence].append(rank)
                example.setdefault(sequence, entry)
    if not open_calls:
        return None
    first = min(open_calls)
    return first, example[first], sorted(open_calls[first])


def _mismatched(ranks: dict[int, _Rank], names: dict[int, str]) -> list[Finding]:
    calls: dict[tuple[str, int], dict[int, str]] = defaultdict(dict)
    for rank, made in ranks.items():
        for key, entry in made.calls.items():
            calls[key][rank] = str(entry.get("profiling_name", "?"))
    for (group, sequence), by_rank in sorted(calls.items(), key=lambda c: c[0][1]):
        kinds = Counter(by_rank.values())
        if len(kinds) > 1:
            odd = kinds.most_common()[-1][0]
            odd_ranks = sorted(r for r, op in by_rank.items() if op == odd)
            detail = ", ".join(f"{n} × {op}" for op, n in kinds.most_common())
            entry = ranks[odd_ranks[0]].calls[(group, sequence)]
            return [
                Finding(
                    "mismatch",
                    group,
                    sequence,
                    odd,
                    odd_ranks,
                    len(by_rank),
                    names[odd_ranks[0]],
                    _seconds(entry),
                    detail,
                )
            ]
    return []


def _seconds(entry: dict[str, Any]) -> float | None:
    value = entry.get("time_created_ns")
    return value / 1e9 if isinstance(value, (int, float)) else None
