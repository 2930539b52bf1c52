"""A scope's rows summed up as a whole or by a dimension.

Figures of a group are made when somebody looks at them: ten thousand attempts have a third of a million.
``tests/metrics/accounting/test_summary.py``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import overload

from .figures import Figure, figure
from .kinds import KINDS
from .reading import Reading, Spent
from .sums import Key, Sums, failure_figures, time_figures
from .values import Failure, Group, Slice


class Later(Sequence[Figure]):
    """Figures that are made once, when first looked at."""

    def __init__(self, make: Callable[[], Iterable[Figure]]) -> None:
        self._make = make
        self._made: tuple[Figure, ...] | None = None

    @property
    def _figures(self) -> tuple[Figure, ...]:
        if self._made is None:
            self._made = tuple(self._make())
        return self._made

    def __len__(self) -> int:
        return len(self._figures)

    @overload
    def __getitem__(self, index: int) -> Figure: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Figure]: ...
    def __getitem__(self, index: int | slice) -> Figure | Sequence[Figure]:
        return self._figures[index]

    def __iter__(self) -> Iterator[Figure]:
        return iter(self._figures)


class Rows:
    """One scope's rows, read once."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.stages = {(one.run_id, one.stage): one for one in reading.stages()}
        # What is outside the wall-clock counts nowhere.
        self.spent = [one for one in reading.spent() if KINDS[one.kind].group]
        self.lost = reading.lost_steps()
        self.failures = reading.failures()

    def gpus(self, key: Key) -> int | None:
        stage = self.stages.get(key[:2])
        return stage.gpus_per_node if stage is not None else None

    def over(self, stage: tuple[str, str]) -> bool:
        fact = self.stages.get(stage)
        return fact is not None and fact.over

    def version(self, key: Key) -> str:
        fact = self.stages.get(key[:2])
        return (fact.version if fact is not None else None) or "unknown"

    def pending(self, failures: Iterable[Failure]) -> int:
        """Failures that a stage which goes on may yet get over."""
        open_ = (one for one in failures if one.counted and one.tried and one.progress_at is None)
        return sum(not self.over((one.run_id, one.stage)) for one in open_)

    def sums(self, spent: Iterable[Spent]) -> Sums:
        sums, keys = Sums(), set()
        for one in spent:
            keys.add(one.key)
            sums.add(one.kind, one.seconds, one.nodes, self.gpus(one.key), wall=one.track == 0)
        sums.attempts = len(keys)
        sums.open = any(not self.over(stage) for stage in {key[:2] for key in keys})
        sums.lost_steps = sum(self.lost.get(key, 0) for key in keys)
        return sums


class Groups:
    """Answers :meth:`metrics.accounting.values.Summary.by`."""

    def __init__(self, rows: Rows, window: str) -> None:
        self.rows, self.window = rows, window

    def by(self, dimension: str) -> tuple[Group, ...]:
        if dimension == "cause":
            return self._causes()
        if dimension == "node":
            return self._nodes()
        if dimension == "switch":
            return self._switches()
        names: dict[str, Callable[[Key], str]] = {
            "run": lambda key: key[0],
            "stage": lambda key: f"{key[0]}/{key[1]}",
            "attempt": lambda key: f"{key[0]}/{key[1]}/{key[2]}",
            "version": self.rows.version,
        }
        name = names[dimension]
        spent: dict[str, list[Spent]] = defaultdict(list)
        failures: dict[str, list[Failure]] = defaultdict(list)
        for one in self.rows.spent:
            spent[name(one.key)].append(one)
        for failure in self.rows.failures:
            failures[name((failure.run_id, failure.stage, failure.attempt_id))].append(failure)
        return _largest(
            self._group(dimension, key, self.rows.sums(mine), failures[key]) for key, mine in spent.items()
        )

    def _group(self, dimension: str, key: str, sums: Sums, failures: Sequence[Failure]) -> Group:
        def make() -> Iterator[Figure]:
            yield from time_figures(sums, self.window)
            yield from failure_figures(sums, failures, self.window, self.rows.pending(failures))

        return Group(dimension, key, Later(make), sums.waterfall(), tuple(failures))

    def _causes(self) -> tuple[Group, ...]:
        """Failures by category, with rates over all time of the scope."""
        sums = self.rows.sums(self.rows.spent)
        causes: dict[str, list[Failure]] = defaultdict(list)
        for failure in self.rows.failures:
            causes[failure.category].append(failure)
        cost = self.rows.reading.cost_of_causes()
        found = []
        for cause, failed in causes.items():
            waterfall = _slices(cost.get(cause, {}), sums)
            hours = sum(part.node_seconds for part in waterfall) / 3600
            figures = (
                *failure_figures(sums, failed, self.window, self.rows.pending(failed)),
                figure("lost_steps", float(sum(one.lost_steps for one in failed)), window=self.window),
                figure("lost_seconds", sum(one.lost_seconds for one in failed), window=self.window),
                figure("node_hours", hours, window=self.window, note="lost work and getting over it"),
            )
            found.append(Group("cause", cause, figures, waterfall, tuple(failed)))
        return _largest(found)

    def _tracks(self) -> dict[tuple[Key, int], list[Spent]]:
        found: dict[tuple[Key, int], list[Spent]] = defaultdict(list)
        for one in self.rows.spent:
            found[one.key, one.track].append(one)
        return found

    def _nodes(self) -> tuple[Group, ...]:
        """Time of each node by its track; failures are those that a verdict lays on the node.

        Attempts on the same nodes are added up before they are dealt out to the nodes.
        """
        tracks = self._tracks()
        alike: dict[str, dict[int | None, dict[str, float]]] = {}
        counts: dict[str, list[int]] = {}
        for key, track, nodes in self.rows.reading.members(self.rows.spent):
            gpus = self.rows.gpus(key)
            seconds = alike.setdefault(nodes, {}).setdefault(gpus, {})
            count = counts.setdefault(nodes, [0, 0])
            count[0] += 1
            count[1] += not self.rows.over(key[:2])
            for part in tracks.get((key, track), ()):
                seconds[part.kind] = seconds.get(part.kind, 0.0) + part.seconds
        dealt: dict[str, dict[int | None, dict[str, float]]] = {}
        attempts: dict[str, list[int]] = {}
        for text, by_gpus in alike.items():
            for node in text.split("\n"):
                count = attempts.setdefault(node, [0, 0])
                count[0] += counts[text][0]
                count[1] += counts[text][1]
                mine = dealt.setdefault(node, {})
                for gpus, seconds in by_gpus.items():
                    own = mine.setdefault(gpus, {})
                    for kind, value in seconds.items():
                        own[kind] = own.get(kind, 0.0) + value
        failures: dict[str, list[Failure]] = defaultdict(list)
        for failure in self.rows.failures:
            if failure.node is not None:
                failures[failure.node].append(failure)
        found = []
        for node, mine in dealt.items():
            sums = Sums(attempts=attempts[node][0], open=attempts[node][1] > 0)
            sums.lost_steps = sum(one.lost_steps for one in failures[node])
            for gpus, seconds in mine.items():
                for kind, value in seconds.items():
                    # A node's own time is all there is of it: its track is its wall-clock.
                    sums.add(kind, value, 1, gpus, wall=True)
            found.append(self._group("node", node, sums, failures[node]))
        return _largest(found)

    def _switches(self) -> tuple[Group, ...]:
        """Node-time of each switch's nodes, where facts name switches."""
        tracks = self._tracks()
        sums: dict[str, Sums] = defaultdict(Sums)
        for key, track, switch, count in self.rows.reading.switched():
            mine = sums[switch]
            mine.attempts += 1
            mine.open = mine.open or not self.rows.over(key[:2])
            for part in tracks.get((key, track), ()):
                mine.add(part.kind, part.seconds, count, self.rows.gpus(key), wall=track == 0)
        of = self.rows.reading.switch_of() if sums else {}
        failures: dict[str, list[Failure]] = defaultdict(list)
        for failure in self.rows.failures:
            if failure.node in of:
                failures[of[failure.node]].append(failure)
                sums[of[failure.node]].lost_steps += failure.lost_steps
        return _largest(self._group("switch", name, mine, failures[name]) for name, mine in sums.items())


def _slices(cost: dict[str, tuple[float, float]], sums: Sums) -> tuple[Slice, ...]:
    wall, node = sums.wall_s, sums.node_s
    return tuple(
        Slice(
            kind, cost[kind][0], cost[kind][1], cost[kind][0] / wall, cost[kind][1] / node if node else None
        )
        for kind in KINDS
        if kind in cost and wall
    )


def _largest(groups: Iterable[Group]) -> tuple[Group, ...]:
    def size(group: Group) -> float:
        return sum(part.node_seconds for part in group.waterfall)

    return tuple(sorted(groups, key=lambda group: (-size(group), -len(group.failures), group.key)))
