"""How fast training went while it went: from pairs of neighbouring progress words.

Of a small scope every word is read, of a large one evenly spread pairs: the same ledger, the same answer.
``tests/metrics/accounting/test_speed.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from metrics.ledger.store import Ledger

from .figures import Figure, figure
from .sums import Sums
from .words import Word, word_of

#: Pairs looked at in all: enough for a 99th percentile, few enough for a second.
BUDGET: Final = 4000
_CYCLES: Final = 400
_STEPS: Final = ("productive", "recomputing", "provisional", "lost")


@dataclass(frozen=True)
class Pair:
    """Between two words: so many ``steps`` in ``seconds`` of step time; ``tokens`` None: not told."""

    steps: int
    seconds: float
    tokens: int | None


@dataclass
class Speed:
    """What was found. ``waits``: programs tell when they wait for data. ``memory``: the most of a GPU, bytes.

    ``stated``: what the program says of itself: ``flops_per_token``, ``peak_flops`` of a GPU, ``gpus``.
    """

    pairs: list[Pair] = field(default_factory=list)
    cycles: int = 0
    sampled: bool = False
    waits: bool = False
    memory: float | None = None
    stated: dict[str, float] = field(default_factory=dict)


def read(
    ledger: Ledger, where: str, values: dict[str, Any], since: float | None, until: float | None
) -> Speed:
    """``where``: terms on the run ``r`` and the attempt ``a``, with their values; then the scope's time."""
    rows = ledger.rows(
        "SELECT a.run_id, a.stage, a.attempt_id, c.cycle FROM run r CROSS JOIN attempt a"
        " ON a.run_id = r.run_id JOIN cycle c USING (run_id, stage, attempt_id)"
        f" WHERE {where} AND c.base_step IS NOT NULL ORDER BY a.run_id, a.stage, a.ordinal, c.cycle",
        values,
    )
    chosen = rows[:: -(-len(rows) // _CYCLES)] if rows else []
    found = Speed(sampled=len(chosen) < len(rows))
    for row in chosen:
        key = (row[0], row[2], row[3], row[1])
        span = (since if since is not None else -1e18, until if until is not None else 1e18)
        _cycle(ledger, key, span, max(8, BUDGET // len(chosen)), found)
    return found


def stated(ledger: Ledger, run: str, stage: str | None) -> dict[str, float]:
    """What the program of one run last said of itself with its start."""
    rows = ledger.rows(
        "SELECT data FROM event WHERE run_id = ? AND type = 'workload.timing' AND type <> 'progress'"
        " AND (? IS NULL OR stage = ?) ORDER BY ts DESC, writer DESC, seq DESC LIMIT 1",
        (run, stage, stage),
    )
    told = json.loads(rows[0][0]) if rows else {}
    names = ("flops_per_token", "peak_flops", "gpus")
    return {name: float(told[name]) for name in names if _number(told.get(name)) and told[name] > 0}


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cycle(ledger: Ledger, key: Sequence[Any], span: tuple[float, float], most: int, found: Speed) -> None:
    where = (
        " FROM event WHERE run_id = ? AND attempt_id = ? AND coalesce(cycle, 0) = ? AND type = 'progress'"
        " AND stage = ? AND ts >= ? AND ts < ?"
    )
    order = " ORDER BY ts, writer, seq LIMIT ?"
    first, last = ledger.rows(f"SELECT min(ts), max(ts) {where}", (*key, *span))[0]
    if first is None:
        return
    found.cycles += 1
    told = ledger.rows(f"SELECT ts, data {where}{order}", (*key, *span, most + 1))
    if len(told) <= most:
        _take(pairwise(_words(told)), found)
        return
    found.sampled = True
    for n in range(most // 2):
        at = first + (last - first) * n / (most // 2)
        near = ledger.rows(f"SELECT ts, data {where}{order}", (*key, at, span[1], 2))
        _take(pairwise(_words(near)), found)


_Told = tuple[Word, dict[str, Any]]


def _words(rows: Sequence[Any]) -> list[_Told]:
    """Those that count steps: what others count (tokens, documents) is no step."""
    told = ((row[0], json.loads(row[1])) for row in rows)
    words = ((word_of(ts, data), data) for ts, data in told)
    return [(word, data) for word, data in words if word is not None and _steps(word)]


def _steps(word: Word) -> bool:
    return "step" in word.spent if word.spent else word.section in ("step", "checkpoint")


def _take(pairs: Iterator[tuple[_Told, _Told]], found: Speed) -> None:
    for (before, was), (after, is_) in pairs:
        steps = after.step - before.step
        seconds = (after.at - before.at) / 1000
        if "step" in before.spent and "step" in after.spent:
            seconds = (after.spent["step"] - before.spent["step"]) / 1000
            found.waits = found.waits or "data" in after.spent
        if steps > 0 and seconds > 0:
            found.pairs.append(Pair(steps, seconds, _more(was.get("tokens"), is_.get("tokens"))))
        memory = is_.get("memory_bytes")
        if memory is not None and _number(memory):
            found.memory = max(found.memory or 0.0, float(memory))


def _more(before: Any, after: Any) -> int | None:
    whole = all(isinstance(one, int) and not isinstance(one, bool) for one in (before, after))
    return after - before if whole and after >= before else None


def figures(found: Speed, sums: Sums, window: str) -> Iterator[Figure]:
    """``sums``: of the same scope."""
    note = "sampled" if found.sampled else ""
    none = "" if found.pairs else "no two progress words with a step between them"
    told = [pair for pair in found.pairs if pair.tokens is not None]
    seconds = sum(pair.seconds for pair in told)
    rate = sum(pair.tokens or 0 for pair in told) / seconds if seconds else None
    yield figure(
        "tokens_per_second", rate, window=window, n=len(told), note=note if told else "no tokens are told"
    )
    for name, share in (("step_time_p50", 0.50), ("step_time_p90", 0.90), ("step_time_p99", 0.99)):
        value = _percentile(found.pairs, share)
        yield figure(name, value, window=window, n=len(found.pairs), note=none or note)
    flops, gpus, peak = (found.stated.get(name) for name in ("flops_per_token", "gpus", "peak_flops"))
    each = None if rate is None or not flops or not gpus else rate * flops / gpus
    silent = "" if each is not None else "the program does not state its FLOPs a token"
    yield figure(
        "tflops_per_gpu", None if each is None else each / 1e12, window=window, n=len(told), note=silent
    )
    used = None if each is None or not peak else each / peak
    stated = f"peak {peak / 1e12:g} TFLOP/s" if peak else silent or "the program states no peak of its GPU"
    yield figure("mfu", used, window=window, n=len(told), note=stated)
    steps, data = sum(sums.wall.get(kind, 0.0) for kind in _STEPS), sums.wall.get("data_stall", 0.0)
    knows = found.waits or data > 0
    yield figure(
        "data_wait_share",
        data / (steps + data) if knows and steps + data > 0 else None,
        window=window,
        n=found.cycles,
        note="" if knows else "the program does not tell when it waits for data",
    )
    yield figure(
        "memory_high_water",
        found.memory,
        window=window,
        n=found.cycles,
        note=note if found.memory is not None else "the program does not tell",
    )


def _percentile(pairs: Sequence[Pair], share: float) -> float | None:
    """Of the step times, each pair weighing as many steps as it has."""
    times = sorted((pair.seconds / pair.steps, pair.steps) for pair in pairs)
    wanted, seen = share * sum(steps for _, steps in times), 0.0
    for value, steps in times:
        seen += steps
        if seen >= wanted:
            return value
    return None
