"""``ledger import --sacct`` at size: 100,000 rows of accounting into an empty home, and the same once more.

The command itself, a process of its own; processor time, from start to exit. The baseline is sqlite-utils
inserting the same rows, already parsed, as they stand.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.bench.common import ROOT, Result, options, print_results

COLUMNS = "JobIDRaw|JobName|User|Cluster|State|ExitCode|Submit|Start|End|NodeList|WorkDir|AllocTRES"
ENDS = (
    ("TIMEOUT", "0:0"),
    ("COMPLETED", "0:0"),
    ("FAILED", "1:0"),
    ("NODE_FAIL", "0:0"),
    ("CANCELLED by 1000", "0:0"),
)


def rows(count: int) -> Iterator[str]:
    """Jobs of 20 names by 20 users over a year; one in eight was requeued once."""
    draw = random.Random(1)
    at, job = 1_750_000_000, 1_000_000
    while count > 0:
        at, job = at + 300, job + 1
        name, user, first = draw.randrange(20), draw.randrange(20), draw.randrange(1, 900)
        again = draw.random() < 0.125 and count > 1
        for run in range(1 + again):
            start = at + run * 8000
            state, code = ENDS[3] if again and not run else draw.choice(ENDS)
            nodes = f"gpu[{first:04d}-{first + 7:04d}]"
            yield (
                f"{job}|train-{name}|user{user}|alpha|{state}|{code}|{_time(start)}|{_time(start + 60)}|"
                f"{_time(start + 7260)}|{nodes}|/home/user{user}/{name}|gres/gpu=64,node=8"
            )
            count -= 1


def _time(at: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))


def run_import(home: Path, dump: Path, *more: str) -> tuple[float, float]:
    """Processor seconds and peak memory in bytes of the command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    argv = ["-m", "orchestrator", "ledger", "import", "--timezone", "UTC", "--sacct", str(dump)]
    subprocess.run(
        [sys.executable, *argv, *more, "--home", str(home)],
        cwd=ROOT,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return spent, after.ru_maxrss * 1024.0


def plain_insert(path: Path, dump: Path) -> float:
    """Processor seconds of sqlite-utils inserting the rows as they are."""
    import sqlite_utils

    names, *lines = dump.read_text().splitlines()
    found = [dict(zip(names.split("|"), line.split("|"), strict=True)) for line in lines]
    started = time.process_time()
    sqlite_utils.Database(path)["job"].insert_all(found, pk=("JobIDRaw", "Submit"))
    return time.process_time() - started


def main() -> int:
    def sizes(parser: ArgumentParser) -> None:
        parser.add_argument("--rows", type=int, default=100_000)

    args = options(__doc__ or "", sizes)
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as name:
        home, dump = Path(name) / "home", Path(name) / "jobs.txt"
        dump.write_text("\n".join([COLUMNS, *rows(args.rows)]) + "\n")
        dry, _ = run_import(home, dump, "--dry-run")
        first, memory = run_import(home, dump)
        again, _ = run_import(home, dump)
        plain = plain_insert(Path(name) / "plain.db", dump)
    size = f"{args.rows:,} rows"
    aim = 10.0 * args.rows / 100_000
    results = [
        Result(f"import of {size}, processor time", first, "s", plain, first / plain, aim),
        Result(f"reading and grouping alone ({size}, --dry-run)", dry, "s", plain, dry / plain),
        Result(f"the same {size} once more", again, "s", plain, again / plain, aim),
        Result(f"memory, import of {size}", memory / 1e6, "MB"),
    ]
    print_results("import", results, as_json=args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
