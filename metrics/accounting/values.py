"""What a report is made of: the scope that was asked for, and the summary that answers it.

Values only, nothing is computed here. ``tests/metrics/accounting/test_summary.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from .figures import Figure

DIMENSIONS: Final = ("run", "stage", "attempt", "cause", "node", "switch", "version")


@dataclass(frozen=True)
class Scope:
    """What to look at; None: all. Times are Unix seconds.

    ``run``: an id or its unique start. ``stage``: of that run, or of each. ``since`` and ``until`` cut
    intervals and select failures by their onset. ``rehearsals``: also runs that were harmed on purpose; a run
    that is named is looked at anyway. ``now``: until when open intervals last; None: until the last event of
    their run.
    """

    run: str | None = None
    stage: str | None = None
    since: float | None = None
    until: float | None = None
    cluster: str | None = None
    user: str | None = None
    rehearsals: bool = False
    now: float | None = None


class Slice(NamedTuple):
    """A part of the waterfall. ``seconds``: wall-clock of attempts (their own timeline, track 0).

    ``node_seconds``: over all nodes. ``share``: of the wall-clock with queue time. ``node_share``: of the
    allocated node-time; None for what is not allocated.
    """

    kind: str
    seconds: float
    node_seconds: float
    share: float
    node_share: float | None


@dataclass(frozen=True)
class Failure:
    """One end of a cycle or attempt that was neither complete nor planned. Times are Unix seconds.

    ``counted``: a failure; else an interruption (preempted, requeued). ``onset_at`` → ``detected_at`` →
    ``decided_at`` → ``running_at`` (next ranks) → ``progress_at`` (first new step); None: not known, or not
    yet. ``lost_seconds``: wall-clock of the ``lost_steps``. ``tried``: another cycle ran, or was to.
    """

    run_id: str
    stage: str
    attempt_id: str
    cycle: int
    category: str
    domain: str
    counted: bool
    rehearsal: bool
    node: str | None
    rank: int | None
    reason: str
    signature: str
    action: str | None
    rule: str | None
    step: int | None
    resumed_from: int | None
    onset_at: float | None
    detected_at: float | None
    decided_at: float | None
    running_at: float | None
    progress_at: float | None
    lost_steps: int
    lost_seconds: float
    lost_gpu_hours: float | None
    tried: bool = False


@dataclass(frozen=True)
class Group:
    """The part of a summary that belongs to one ``key`` of a dimension (a run, a node, a cause …)."""

    dimension: str
    key: str
    figures: Sequence[Figure]
    waterfall: tuple[Slice, ...]
    failures: tuple[Failure, ...]

    def figure(self, name: str) -> Figure | None:
        return next((one for one in self.figures if one.name == name), None)


@dataclass(frozen=True)
class Summary:
    """The answer to a scope. ``window``: what was looked at, for a person."""

    scope: Scope
    window: str
    figures: tuple[Figure, ...]
    waterfall: tuple[Slice, ...]
    failures: tuple[Failure, ...]
    groups: Callable[[str], tuple[Group, ...]] = field(repr=False, compare=False)

    def figure(self, name: str) -> Figure | None:
        return next((one for one in self.figures if one.name == name), None)

    def by(self, dimension: str) -> tuple[Group, ...]:
        """The same split by one of :data:`DIMENSIONS`, the largest first. Raises KeyError for another word.

        By ``cause`` the figures are those of failures alone; by ``node`` a node's own hours and failures.
        """
        if dimension not in DIMENSIONS:
            raise KeyError(dimension)
        return self.groups(dimension)
