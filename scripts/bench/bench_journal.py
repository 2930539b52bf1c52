"""What the journal costs: an append, synced and not, and a training step's report.

The baseline of an append is one ``write`` (and fsync) of a line of the same length to an open file.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from resiliency.journal import JournalWriter
from resiliency.workload import Workload
from scripts.bench.common import Result, best_of, options, print_results

STEP_S = 0.1
WORD = {"step": 12345, "loss": 2.34567, "tokens": 123456789, "section": "step", "steps_per_s": 9.87}


def append_cost(directory: Path, count: int, *, sync: bool) -> tuple[float, float]:
    """Seconds per append: ours, and bare."""
    with JournalWriter(directory / f"j{sync}", run="demo-20260101-000000-abcd", writer="w") as journal:

        def ours() -> None:
            for _ in range(count):
                journal.append("progress", WORD, sync=sync, stage="train", attempt="c1/7.0")

        mine = best_of(3, ours) / count
        length = journal.path.stat().st_size // (3 * count)
    fd = os.open(directory / f"bare{sync}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    line = b"x" * (length - 1) + b"\n"

    def bare() -> None:
        for _ in range(count):
            os.write(fd, line)
            if sync:
                os.fsync(fd)

    plain = best_of(3, bare) / count
    os.close(fd)
    return mine, plain


def step_cost(directory: Path, steps: int) -> tuple[float, float, float]:
    """Seconds per step: report alone, report with the stop check, and with nobody listening."""
    journal = JournalWriter(directory / "steps", run="demo", writer="rank0")
    # One aggregate per 10 s is one write per 100 steps of 100 ms: keep that proportion here.
    workload = Workload(journal=journal, stop_file=directory / "stop", interval_s=1e9)
    silent = Workload()

    def reports() -> None:
        for step in range(steps):
            workload.report(step=step, loss=2.5, tokens=step * 4096)
            if step % 100 == 99:
                workload.flush()

    def checked() -> None:
        for step in range(steps):
            workload.report(step=step, loss=2.5, tokens=step * 4096)
            workload.should_stop()
            if step % 100 == 99:
                workload.flush()

    def quiet() -> None:
        for step in range(steps):
            silent.report(step=step, loss=2.5, tokens=step * 4096)
            silent.should_stop()

    costs = tuple(best_of(3, work) / steps for work in (reports, checked, quiet))
    workload.close()
    return costs[0], costs[1], costs[2]


def main() -> int:
    args = options(__doc__ or "")
    # Not /tmp: that is memory on many machines, where fsync costs nothing.
    with tempfile.TemporaryDirectory(prefix=".trainmaster-bench-", dir=Path.cwd()) as name:
        directory = Path(name)
        plain, bare_plain = append_cost(directory, 5000, sync=False)
        synced, bare_synced = append_cost(directory, 100, sync=True)
        report, checked, quiet = step_cost(directory, 20_000)
    us = 1e6

    def share(name: str, cost: float) -> Result:
        part = 100 * cost / STEP_S
        return Result(f"{name}, of a 100 ms step", part, "%", aim=0.5)

    print_results(
        "journal",
        [
            Result("append", plain * us, "us", bare_plain * us, plain / bare_plain),
            Result("append, synced", synced * us, "us", bare_synced * us, synced / bare_synced),
            share("report", report),
            share("report and stop check", checked),
            share("report, nobody listening", quiet),
        ],
        as_json=args.json,
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
