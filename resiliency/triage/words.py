"""A verdict's words: reason, evidence, chain, alternatives. Decides nothing.

``tests/resiliency/triage/test_page.py``.
"""

from __future__ import annotations

import re
from typing import Any

from . import clock
from .choose import Choice
from .model import CASCADE, CONTEXT, ROOT, Hit
from .timeline import Timeline


def reason(hit: Hit, phrase: str, why: str) -> str:
    extra = ""
    if hit.signature == "nvidia-xid":
        extra = f" (Xid {hit.groups.get('code')}: {hit.groups.get('name', 'not in the catalogue')})"
    elif hit.signature == "nvidia-sxid":
        extra = f" (SXid {hit.groups.get('code')})"
    elif hit.signature == "link-flap":
        extra = f" ({hit.groups.get('device', '')} went down {hit.count} times)"
    elif hit.signature == "collective-desync":
        extra = f" ({hit.groups.get('operations')})"
    return f"{phrase}{extra}; {why}"


def signature(hit: Hit) -> str:
    text = hit.groups.get("message", hit.text).splitlines()[0] if hit.text else ""
    text = re.sub(r"0x[0-9a-fA-F]+|\d+", "#", text)
    return (
        f"{hit.category}:{hit.signature}:{text[-160:]}" if hit.generic else f"{hit.category}:{hit.signature}"
    )


def step(hit: Hit, line: Timeline) -> int | None:
    match = re.search(r"iteration #?(\d+)", hit.text)
    if match:
        return int(match[1])
    return line.last_progress.step if line.last_progress else None


def evidence(choice: Choice, line: Timeline) -> list[dict[str, Any]]:
    """Up to eight lines: the root, then what says the same, other files and ranks first."""
    assert choice.hit is not None
    rows = [choice.hit]
    seen = {(choice.hit.file, choice.hit.line)}
    earlier = [
        h
        for h in line.earlier_attempt
        if h.signature == choice.hit.signature and h.kind == choice.hit.kind == "log"
    ]
    told = {(choice.hit.signature, choice.hit.rank, choice.hit.file)}
    pool: list[Hit] = []
    again: list[Hit] = []
    for hit in choice.supporting:  # first what adds something: another signature, rank or file
        key = (hit.signature, hit.rank, hit.file)
        (again if key in told else pool).append(hit)
        told.add(key)
    pool.sort(key=lambda h: (h.file == choice.hit.file if choice.hit else True, h.role != ROOT, h.generic))
    pool += again
    for hit in [*pool, *earlier]:
        if (hit.file, hit.line) not in seen and len(rows) < 8:
            seen.add((hit.file, hit.line))
            rows.append(hit)
    return [r.evidence() for r in rows]


def chain(line: Timeline, derived: list[Hit], choice: Choice) -> list[dict[str, Any]]:
    """The root and, once per signature, what followed."""
    first: dict[str, Hit] = {}
    counts: dict[str, int] = {}
    ranks: dict[str, set[int]] = {}
    for hit in sorted(
        [*line.current, *derived], key=lambda h: (h.time if h.time is not None else float("inf"), h.order)
    ):
        if hit.role == CONTEXT and hit.signature not in ("step-cancelled",):
            continue
        first.setdefault(hit.signature, hit)
        counts[hit.signature] = counts.get(hit.signature, 0) + hit.count
        if hit.rank is not None:
            ranks.setdefault(hit.signature, set()).add(hit.rank)
    rows = []
    chosen = choice.hit
    for hit in sorted(
        first.values(),
        key=lambda h: (h.signature != (chosen.signature if chosen else ""), h.time or float("inf")),
    ):
        rows.append(
            {
                "time": clock.iso(hit.time),
                "role": "root" if chosen is not None and hit.signature == chosen.signature else _follows(hit),
                "category": hit.category,
                "signature": hit.signature,
                "node": hit.node,
                "rank": hit.rank,
                "count": counts[hit.signature],
                "ranks": len(ranks.get(hit.signature, ())),
                **hit.evidence(),
            }
        )
    return rows[:20]


def _follows(hit: Hit) -> str:
    return "outlived" if hit.survived else CASCADE


def alternatives(choice: Choice) -> list[dict[str, Any]]:
    rows = []
    for hit in choice.rivals[:4]:
        rows.append(
            {
                "category": hit.category,
                "role": hit.role,
                "node": hit.node,
                "rank": hit.rank,
                "confidence": 0.3 if hit.role == ROOT else 0.15,
                "would_need": _would_need(hit),
                **hit.evidence(),
            }
        )
    return rows


def _would_need(hit: Hit) -> str:
    if hit.category in ("comm_timeout", "hang"):
        return "no earlier error on any rank or node: the rank logs and a flight-recorder dump would tell"
    if hit.category in ("gpu_fault", "framework_crash"):
        return "a Xid of that GPU in the kernel log, or the same fault on that node with another job"
    if hit.category.startswith("ib_") or hit.category in ("net_other", "hca_failure"):
        return "the kernel logs of both ends, or the switch's counters"
    return "that it came first: better clocks or the log of the rank concerned"
