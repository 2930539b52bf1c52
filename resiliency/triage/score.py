"""Verdicts against labels: shares that are right, precision and recall per category, every miss.

The label's form and what counts as right: ``tests/data/triage/README.md``. ``make score`` and ``triage
score`` print it; ``tests/resiliency/triage/test_cases.py`` holds the labelled cases to the aims.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Share of category, action and node that has to be right; wrong exclusions may not happen.
AIM = 0.95


@dataclass(frozen=True)
class Judged:
    """One case: what was wanted, what was said. ``node_right`` is None where no node is expected."""

    name: str
    label: Mapping[str, Any]
    verdict: Mapping[str, Any]

    @property
    def category_right(self) -> bool:
        return self.verdict["category"] in [
            self.label["category"],
            *(self.label.get("acceptable_categories") or ()),
        ]

    @property
    def action_right(self) -> bool:
        return self.verdict["action"] in [
            self.label["action"],
            *(self.label.get("acceptable_actions") or ()),
        ]

    @property
    def node_right(self) -> bool | None:
        wanted = self.label.get("node")
        return None if wanted is None else bool(self.verdict["node"] == wanted)

    @property
    def rank_right(self) -> bool | None:
        wanted = self.label.get("rank")
        return None if wanted is None else bool(self.verdict["rank"] == wanted)

    @property
    def evidence_right(self) -> bool | None:
        wanted = {(e["file"], e["line"]) for e in self.label.get("evidence") or ()}
        if not wanted:
            return None
        return any((e["file"], e["line"]) in wanted for e in self.verdict["evidence"])

    @property
    def wrong_exclusion(self) -> bool:
        excludes = self.verdict["action"] == "requeue_excluding"
        if not excludes:
            return False
        wanted = self.label.get("node")
        other = wanted is not None and self.verdict["node"] != wanted
        return bool(self.label.get("must_not_exclude")) or other

    @property
    def right(self) -> bool:
        return (
            self.category_right
            and self.action_right
            and self.node_right is not False
            and not self.wrong_exclusion
        )


@dataclass
class Scorecard:
    judged: list[Judged] = field(default_factory=list)

    def share(self, name: str) -> tuple[int, int]:
        """(right, asked) for ``category``, ``action``, ``node``, ``rank`` or ``evidence``."""
        answers = [getattr(j, f"{name}_right") for j in self.judged]
        asked = [a for a in answers if a is not None]
        return sum(asked), len(asked)

    @property
    def wrong_exclusions(self) -> list[Judged]:
        return [j for j in self.judged if j.wrong_exclusion]

    @property
    def misses(self) -> list[Judged]:
        return [j for j in self.judged if not j.right]

    @property
    def good_enough(self) -> bool:
        shares = [self.share(n) for n in ("category", "action", "node")]
        return not self.wrong_exclusions and all(r >= AIM * n for r, n in shares)

    def by_category(self) -> list[tuple[str, int, float | None, float | None]]:
        """Category, cases, precision, recall; an acceptable category counts as the wanted one."""
        wanted: Counter[str] = Counter()
        said: Counter[str] = Counter()
        hit: Counter[str] = Counter()
        for one in self.judged:
            label = str(one.label["category"])
            verdict = label if one.category_right else str(one.verdict["category"])
            wanted[label] += 1
            said[verdict] += 1
            hit[label] += one.category_right
        return [
            (
                name,
                wanted[name],
                hit[name] / said[name] if said[name] else None,
                hit[name] / wanted[name] if wanted[name] else None,
            )
            for name in sorted(wanted | said)
        ]

    def lines(self) -> list[str]:
        """For a terminal: shares, then a line per miss."""
        rows = []
        for name in ("category", "action", "node", "rank", "evidence"):
            right, asked = self.share(name)
            percent = f"{100 * right / asked:.1f} %" if asked else "-"
            rows.append(f"{name:<9} {right:>4} of {asked:<4} {percent}")
        rows.append(f"wrong exclusions {len(self.wrong_exclusions)}")
        for one in self.misses:
            rows.append(_miss(one))
        return rows


def _miss(one: Judged) -> str:
    wanted = f"{one.label['category']}/{one.label['action']}/{one.label.get('node')}"
    said = f"{one.verdict['category']}/{one.verdict['action']}/{one.verdict['node']}"
    mark = "WRONG EXCLUSION " if one.wrong_exclusion else ""
    return f"miss {one.name}: {mark}wanted {wanted}, said {said} ({one.label.get('note', '')})"


def labelled(directory: Path) -> list[Path]:
    """Directories below ``directory`` that hold a label."""
    return sorted(p.parent for p in directory.glob("*/expected.json"))


def judge(cases: Sequence[Path]) -> Scorecard:
    """Triage each case and compare; the label is not among what triage reads."""
    from .api import triage_paths

    card = Scorecard()
    for case in cases:
        label = json.loads((case / "expected.json").read_text(encoding="utf-8"))
        card.judged.append(Judged(case.name, label, triage_paths([case]).as_json()))
    return card
