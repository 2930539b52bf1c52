#!/usr/bin/env python3
"""Score triage on labelled cases and print each miss; exit 1 when an aim is missed.

usage: score-triage.py [--all] [DIRECTORY ...]     (default: tests/data/triage/cases)
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))

from resiliency.triage import score  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="*", type=Path, default=[HERE / "tests/data/triage/cases"])
    parser.add_argument("--all", action="store_true", help="precision and recall per category too")
    options = parser.parse_args()
    cases = [c for d in options.directory for c in score.labelled(d)]
    begun = time.perf_counter()
    card = score.judge(cases)
    print(f"{len(cases)} labelled cases in {time.perf_counter() - begun:.1f} s")
    print("\n".join(card.lines()))
    if options.all:
        for name, count, precision, recall in card.by_category():
            shown = [f"{v:.2f}" if v is not None else "-" for v in (precision, recall)]
            print(f"{name:<22} {count:>3}  precision {shown[0]}  recall {shown[1]}")
    return 0 if card.good_enough and cases else 1


if __name__ == "__main__":
    sys.exit(main())
