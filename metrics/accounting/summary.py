"""The summary of a scope: every figure, the waterfall, the failures, and the same by any dimension.

Everything comes from the ledger's rows; reports only print it. ``tests/metrics/accounting/test_summary.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from metrics.ledger.store import Ledger

from . import speed
from .figures import Figure, figure
from .kinds import KINDS
from .reading import Key, Reading, Spent, StageFact
from .sums import Sums, failure_figures, time_figures
from .values import DIMENSIONS, Failure, Group, Scope, Slice, Summary

__all__ = ["DIMENSIONS", "Failure", "Group", "Scope", "Slice", "Summary", "summarise"]


def summarise(ledger: Ledger, scope: Scope | None = None) -> Summary:
    """The figures of a scope (None: of everything). Raises NotFound for a run that the ledger lacks."""
    return _Summing(Reading(ledger, scope or Scope())).summary()


class _Summing:
    """One scope's rows, read once, summed as often as asked."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.scope = reading.scope
        self.stages = {(one.run_id, one.stage): one for one in reading.stages()}
        self.spent = reading.spent()
        self.lost = reading.lost_steps()
        self.failures = reading.failures()
        self.window = _window(reading)

    @cached_property
    def speed(self) -> speed.Speed:
        reading = self.reading
        where = reading.where + (" AND a.stage = :stage" if self.scope.stage is not None else "")
        found = speed.read(reading.ledger, where, reading.values, self.scope.since, self.scope.until)
        if reading.run is not None:
            found.stated = speed.stated(reading.ledger, reading.run, self.scope.stage)
        return found

    def summary(self) -> Summary:
        sums = self.sums(self.spent)
        figures = (
            *self.figures(sums, self.failures),
            *speed.figures(self.speed, sums, self.window),
        )
        return Summary(self.scope, self.window, figures, sums.waterfall(), tuple(self.failures), self.by)

    def sums(self, spent: Iterable[Spent]) -> Sums:
        sums = Sums()
        for one in spent:
            stage = self.stages.get(one.key[:2])
            gpus = stage.gpus_per_node if stage else None
            sums.add(one.kind, one.seconds, one.nodes, gpus, track=one.track, key=one.key)
        sums.lost_steps = sum(self.lost.get(key, 0) for key in sums.attempts)
        return sums

    def figures(self, sums: Sums, failures: Sequence[Failure]) -> tuple[Figure, ...]:
        provisional = any(not self._over(key[:2]) for key in sums.attempts)
        return (
            *time_figures(sums, self.window, provisional),
            *failure_figures(sums, failures, self.window, self._pending(failures)),
        )

    def _pending(self, failures: Iterable[Failure]) -> int:
        open_ = (one for one in failures if one.counted and one.tried and one.progress_at is None)
        return sum(not self._over((one.run_id, one.stage)) for one in open_)

    def _over(self, stage: tuple[str, str]) -> bool:
        fact = self.stages.get(stage)
        return fact is not None and fact.over

    # -- by dimension ------------------------------------------------------------------------------

    def by(self, dimension: str) -> tuple[Group, ...]:
        if dimension == "cause":
            return self._causes()
        if dimension in ("node", "switch"):
            return self._nodes(dimension)
        names: dict[str, Callable[[Key], str]] = {
            "run": lambda key: key[0],
            "stage": lambda key: f"{key[0]}/{key[1]}",
            "attempt": lambda key: f"{key[0]}/{key[1]}/{key[2]}",
            "version": self._version,
        }
        name = names[dimension]
        spent: dict[str, list[Spent]] = {}
        failures: dict[str, list[Failure]] = {}
        for one in self.spent:
            spent.setdefault(name(one.key), []).append(one)
        for failure in self.failures:
            key = (failure.run_id, failure.stage, failure.attempt_id)
            failures.setdefault(name(key), []).append(failure)
        found = []
        for key_, mine in spent.items():
            sums, failed = self.sums(mine), failures.get(key_, [])
            figures = self.figures(sums, failed)
            found.append(Group(dimension, key_, figures, sums.waterfall(), tuple(failed)))
        return _largest(found)

    def _version(self, key: Key) -> str:
        fact: StageFact | None = self.stages.get(key[:2])
        return (fact.version if fact else None) or "unknown"

    def _causes(self) -> tuple[Group, ...]:
        """Failures by category, with rates over all time of the scope."""
        sums = self.sums(self.spent)
        causes: dict[str, list[Failure]] = {}
        for failure in self.failures:
            causes.setdefault(failure.category, []).append(failure)
        cost = self.reading.cost_of_causes()
        found = []
        for cause, failed in causes.items():
            waterfall = _slices(cost.get(cause, {}), sums)
            hours = sum(part.node_seconds for part in waterfall) / 3600
            figures = (
                *failure_figures(sums, failed, self.window, self._pending(failed)),
                figure("lost_steps", float(sum(one.lost_steps for one in failed)), window=self.window),
                figure("lost_seconds", sum(one.lost_seconds for one in failed), window=self.window),
                figure("node_hours", hours, window=self.window, note="lost work and getting over it"),
            )
            found.append(Group("cause", cause, figures, waterfall, tuple(failed)))
        return _largest(found)

    def _nodes(self, dimension: str) -> tuple[Group, ...]:
        """Time of each node by its track; failures are those that a verdict lays on the node."""
        by_track: dict[tuple[Key, int], list[Spent]] = {}
        for one in self.spent:
            by_track.setdefault((one.key, one.track), []).append(one)
        groups: dict[str, Sums] = {}
        member: dict[str, str] = {}
        for key, node, track, switch in self.reading.nodes():
            name = node if dimension == "node" else switch
            if name is None:
                continue
            member[node] = name
            sums = groups.setdefault(name, Sums())
            stage = self.stages.get(key[:2])
            for part in by_track.get((key, track), ()):
                gpus = stage.gpus_per_node if stage else None
                # A node's own time is all there is of it: its track counts as the wall-clock.
                sums.add(part.kind, part.seconds, 1, gpus, track=0, key=key)
        failures: dict[str, list[Failure]] = {}
        for failure in self.failures:
            if failure.node is not None and failure.node in member:
                failures.setdefault(member[failure.node], []).append(failure)
        found = []
        for name, sums in groups.items():
            failed = failures.get(name, [])
            figures = self.figures(sums, failed)
            kept = tuple(one for one in figures if not one.name.startswith("lost_steps"))
            found.append(Group(dimension, name, kept, sums.waterfall(), tuple(failed)))
        return _largest(found)


def _slices(cost: dict[str, tuple[float, float]], sums: Sums) -> tuple[Slice, ...]:
    wall, node = sums.wall_s, sums.node_s
    return tuple(
        Slice(
            kind, cost[kind][0], cost[kind][1], cost[kind][0] / wall, cost[kind][1] / node if node else None
        )
        for kind in KINDS
        if kind in cost and wall
    )


def _largest(groups: Sequence[Group]) -> tuple[Group, ...]:
    def size(group: Group) -> float:
        return sum(part.node_seconds for part in group.waterfall)

    return tuple(sorted(groups, key=lambda group: (-size(group), -len(group.failures), group.key)))


def _window(reading: Reading) -> str:
    scope = reading.scope
    first, last = reading.extent()
    begin = scope.since if scope.since is not None else first
    end = scope.until if scope.until is not None else scope.now if scope.now is not None else last
    what = [f"run {reading.run}" if reading.run else "all runs"]
    what += [f"stage {scope.stage}"] if scope.stage else []
    what += [f"cluster {scope.cluster}"] if scope.cluster else []
    what += [f"user {scope.user}"] if scope.user else []
    what += ["with rehearsals"] if scope.rehearsals and reading.run is None else []
    if begin is None or end is None:
        return f"{', '.join(what)}: no time at all"
    return f"{', '.join(what)}, {_iso(begin)} to {_iso(end)}"


def _iso(at: Any) -> str:
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    except (OverflowError, ValueError, OSError):
        return f"{at:g}"
