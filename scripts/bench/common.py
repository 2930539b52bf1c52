"""What the benches share: a figure beside its aim, printed the same way by all.

A bench is a file ``bench_<what>.py`` with ``main() -> int``; it measures baseline and ours in one run, so
that a ratio means something on any machine. It prints; it fails only when it could not measure.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.bench import figures

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Result:
    """One figure. ``baseline`` is in the same unit and ``ratio`` is value over baseline, where there
    is one; ``aim`` is the most that ``value`` should be (None: no aim)."""

    name: str
    value: float
    unit: str
    baseline: float | None = None
    ratio: float | None = None
    aim: float | None = None

    @property
    def met(self) -> bool | None:
        return None if self.aim is None else self.value <= self.aim


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    if value and abs(value) < 0.01:
        return f"{value:.2e}"
    return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"


def print_results(title: str, results: Sequence[Result], *, as_json: bool = False) -> None:
    """A table for a person, or one JSON object; and the figures for ``scripts/bench/run``."""
    if as_json:
        found = [{**asdict(result), "met": result.met} for result in results]
        print(json.dumps({"bench": title, "machine": machine(), "results": found}))
        return
    rows = [("figure", "value", "unit", "baseline", "ratio", "aim", "")]
    rows += [
        (
            *(r.name, _figure(r.value), r.unit, _figure(r.baseline), _figure(r.ratio)),
            "" if r.aim is None else f"<= {r.aim:g}",
            {True: "met", False: "MISSED", None: ""}[r.met],
        )
        for r in results
    ]
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    right = {1, 3, 4}
    print(f"{title} ({machine()})")
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        print("  " + "  ".join(c.rjust(w) if n in right else c.ljust(w) for n, (c, w) in cells).rstrip())
    if not sys.stdout.isatty():
        for r in results:
            figures.report(figures.Figure(r.name, r.value, r.unit, r.aim))


def machine() -> str:
    """Enough to judge a figure by."""
    load = os.getloadavg()[0]
    return f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f}"


def options(about: str, extra: Callable[[argparse.ArgumentParser], None] | None = None) -> argparse.Namespace:
    """The command line that every bench has."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    if extra:
        extra(parser)
    return parser.parse_args()


def best_of(times: int, work: Callable[[], object]) -> float:
    """Seconds of the quickest of several runs: what the work costs without the neighbours."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return min(found)


_PEAK = """
import sys
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")), file=sys.stderr)
"""


def python_run(code: str, *argv: str) -> tuple[float, int, str]:
    """Runs Python code in a process of its own: ``(seconds, peak memory in bytes, output)``.

    The memory is what the kernel counted for that process, Python included. Not ``ru_maxrss``: that
    begins with the peak of the process that started it.
    """
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code + _PEAK, *argv], cwd=ROOT, text=True, capture_output=True, check=False
    )
    seconds = time.perf_counter() - started
    if done.returncode != 0:
        raise SystemExit(f"the measured process failed:\n{done.stderr}")
    return seconds, int(done.stderr.split()[-2]) * 1024, done.stdout
