"""Submitting 300 links: the whole `submit` command, against a bare sbatch loop over the same scripts."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from figures import Figure, report
from slurm_bench import dev_cluster, write_home

STAGES, AHEAD = 100, 3
LINKS = STAGES * AHEAD
AIM = 0.8


def bare(scripts: list[Path]) -> float:
    """Seconds of a loop of sbatch, links queued behind each other as a chain's are."""
    began = time.perf_counter()
    previous = None
    for number, script in enumerate(scripts):
        after = ["--dependency", f"afterany:{previous}"] if number % AHEAD else []
        done = subprocess.run(
            ["sbatch", "--parsable", *after, str(script)],
            capture_output=True,
            text=True,
            check=True,
        )
        previous = done.stdout.strip()
    return time.perf_counter() - began


def main() -> None:
    with dev_cluster() as work:
        path = write_home(work, 1, STAGES, AHEAD)[0]
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "orchestrator", "submit", str(path)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        ours = time.perf_counter() - began
        scripts = sorted(next((work / "home" / "runs").glob("bench0-*")).glob("scripts/*.sbatch"))
        assert len(scripts) == LINKS, len(scripts)
        theirs = bare(scripts)
    report(Figure(f"bare sbatch loop, {LINKS} jobs", LINKS / theirs, "links/s"))
    report(Figure(f"submit, {LINKS} links, start to end", LINKS / ours, "links/s"))
    report(Figure("submit against the loop", theirs / ours, "x", AIM, at_least=True))


if __name__ == "__main__":
    main()
