"""One reconcile with 2,000 live jobs: scheduler calls made, and seconds against one bare squeue and sacct."""

from __future__ import annotations

import subprocess
import sys
import time

from figures import Figure, interleaved, report
from slurm_bench import CountingRunner, dev_cluster, write_home

RUNS, STAGES = 10, 100  # two links a stage
AIM = 2.0


def reconcile(count: int) -> tuple[float, int]:
    """Seconds and scheduler calls of one reconcile over the ``count`` oldest active runs."""
    from orchestrator.home import Home
    from orchestrator.schedulers import open_scheduler
    from orchestrator.session import Session

    session, counting = Session(Home.at(None)), CountingRunner()
    chosen = session.active()[:count]
    for run in chosen:
        session._schedulers[run.record.profile_key] = open_scheduler(
            run.record.profile(), home=session.home.root, runner=counting
        )
    began = time.perf_counter()
    report_ = session.reconcile(chosen)
    seconds = time.perf_counter() - began
    assert len(report_.runs) == count and not report_.problems, report_.problems
    return seconds, len(counting.calls)


def bare() -> float:
    began = time.perf_counter()
    for argv in (["squeue", "--me", "-t", "all"], ["sacct", "-X", "-P", "-D", "-S", "now-1hours"]):
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    with dev_cluster() as work:
        for path in write_home(work, RUNS, STAGES):
            argv = [sys.executable, "-m", "orchestrator", "submit", str(path), "--offline"]
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        reconcile(RUNS)  # the first look records 2,000 new states; later ones only what changed
        _, few = reconcile(1)
        _, many = reconcile(RUNS)
        ours, theirs = interleaved(5, [lambda: reconcile(RUNS)[0], bare])
    report(Figure(f"scheduler calls, {2 * STAGES} live jobs", few, "calls"))
    report(Figure(f"scheduler calls, {2 * STAGES * RUNS} live jobs", many, "calls", few))
    report(Figure("bare squeue and sacct", theirs, "s"))
    report(Figure(f"reconcile, {2 * STAGES * RUNS} live jobs", ours, "s"))
    report(Figure("reconcile against bare squeue and sacct", ours / theirs, "x", AIM))


if __name__ == "__main__":
    main()
