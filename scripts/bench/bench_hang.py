"""How often the rank that a hang is due to is named first: 100 simulated hangs of 8 ranks, some real ones.

The simulation has failures that records cannot tell (see ``hangs.KINDS``); they count as wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from resiliency import hang
from scripts.bench import figures, hang_ranks, hangs
from scripts.bench.common import machine, options


def named(case: hangs.Case) -> bool:
    found = hang.culprits(case.views)
    return bool(found) and found[0].rank == case.culprit


def main() -> int:
    def extra(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--seeds", type=int, default=100, help="simulated hangs")
        parser.add_argument("--real", type=int, default=20, help="hangs of eight real processes")

    given = options(__doc__ or "", extra)
    print(f"hang culprits ({machine()})")
    cases = [hangs.simulate(seed) for seed in range(given.seeds)]
    right = Counter(case.kind for case in cases if named(case))
    for kind, count in sorted(Counter(case.kind for case in cases).items()):
        print(f"  {kind:<12} {right[kind]:>3} of {count}")
    bare = sum(named(hangs.simulate(seed, marked=False)) for seed in range(given.seeds))
    results = [
        figures.Figure("simulated hangs, culprit named", 100 * right.total() / given.seeds, "%", 95, True),
        figures.Figure("the same, collectives not marked", 100 * bare / given.seeds, "%"),
    ]
    if given.real:
        found = [hang_ranks.hang(seed) for seed in range(given.real)]
        for seed, one in enumerate(found):
            if not one.right:
                print(f"  real, seed {seed}: {one}")
        results += [
            figures.Figure(
                "real hangs, culprit named", 100 * sum(o.right for o in found) / given.real, "%", 95, True
            ),
            figures.Figure(
                "real hangs, latest past the limit", max(o.stall.late_s for o in found if o.stall), "s", 1.0
            ),
        ]
    for result in results:
        print(f"  {result.name:<40} {result.value:.3g} {result.unit} {result.wanted()}")
        if not sys.stdout.isatty():
            figures.report(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
