"""How a bench hands its figures to `scripts/bench/run`: one marked JSON line each on stdout.

A figure is a ratio measured in one run wherever it can be, so that it means the same on a slow
machine. Everything else a bench prints is shown as it is.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

MARK = "FIGURE "


@dataclass(frozen=True)
class Figure:
    """One measured number.

    aim: None if there is nothing to hold it against. at_least: the aim is a lower bound.
    """

    name: str
    value: float
    unit: str = ""
    aim: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        if self.aim is None:
            return None
        return self.value >= self.aim if self.at_least else self.value <= self.aim

    def wanted(self) -> str:
        """The aim for people, e.g. "<= 1.5"."""
        return "" if self.aim is None else f"{'>=' if self.at_least else '<='} {self.aim:g}"


def report(figure: Figure) -> None:
    print(MARK + json.dumps(asdict(figure)), flush=True)


def parse(line: str) -> Figure | None:
    """The figure in a line of a bench's output; None for any other line."""
    return Figure(**json.loads(line[len(MARK) :])) if line.startswith(MARK) else None


def interleaved(rounds: int, measures: Sequence[Callable[[], float]]) -> list[float]:
    """Median of each measure, taken in turns so that a busy moment hits all of them alike."""
    taken: list[list[float]] = [[] for _ in measures]
    for _ in range(rounds):
        for values, measure in zip(taken, measures, strict=True):
            values.append(measure())
    return [statistics.median(values) for values in taken]
