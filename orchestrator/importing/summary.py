"""What an import brought, and what it could not know: one value for a person and for ``--json``.

``tests/orchestrator/importing/test_sacct.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Summary:
    """Counts of one import.

    ``attempts``: runs of jobs in it, of which ``new`` were not known; ``events``: lines written;
    ``left_out``: reason → rows not taken; ``ends``: state → attempts; ``unknown``: what reports
    cannot say, one line each; ``assumed``: what was taken for granted; ``problems``: single rows or
    lines, the first ones.
    """

    kind: str
    source: str
    dry_run: bool = False
    rows: int = 0
    attempts: int = 0
    new: int = 0
    events: int = 0
    runs: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    assumed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        return {**vars(self), "left_out": dict(self.left_out), "ends": dict(self.ends)}

    def lines(self) -> Iterator[str]:
        """For a person."""
        would = "would bring" if self.dry_run else "brought"
        known = self.attempts - self.new
        yield (
            f"{self.source}: {self.rows} rows, {self.attempts} attempts in {len(self.runs)} runs;"
            f" {would} {self.new} new attempts, {known} were known ({self.events} events)"
        )
        if self.ends:
            yield "  ended: " + ", ".join(f"{n} {state}" for state, n in self.ends.most_common())
        for reason, count in self.left_out.most_common():
            yield f"  left out or corrected: {count} {reason}"
        for word in self.assumed:
            yield f"  assumed: {word}"
        for word in self.unknown:
            yield f"  unknown: {word}"
        for word in self.problems:
            yield f"  {word}"
