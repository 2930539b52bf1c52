"""The ledger at size: ``status`` on 10,000 attempts and 1,000,000 events, and what ingest costs.

``status`` is the command itself, a process of its own, from start to exit; one run's rows are asked of the
ledger alone, also by a process of its own, and so is each ingest.
The baseline of ingest is sqlite-utils inserting the same, already parsed, rows with the same key. Both are
measured in processor time (user and system) of one process, which the machine's other work disturbs least.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from metrics.ledger import Ledger
from resiliency import contract
from resiliency.events import Event, encode
from scripts.bench.common import Result, options, print_results, python_run

RUNS = 100  # the last is a single long chain, so that one run's table is long too

STATUS = """
import contextlib, sys
from orchestrator.cli.main import main
sys.argv[:] = ["orchestrator", "status", "--all", "--home", sys.argv[1]]
with contextlib.suppress(SystemExit):
    main()
"""

INGEST = """
import json, sys, time
from pathlib import Path
from metrics.ledger import Ledger
began = time.process_time(), time.perf_counter()
with Ledger.open(Path(sys.argv[1]) / "ledger.db") as ledger:
    runs = sorted((Path(sys.argv[1]) / "runs").iterdir())
    events = sum(ledger.ingest_run(run_dir).events for run_dir in runs)
print(json.dumps([events, time.process_time() - began[0], time.perf_counter() - began[1]]))
"""

ONE_RUN = """
import sys
from pathlib import Path
from metrics.ledger import Ledger, queries
with Ledger.open(Path(sys.argv[1]), readonly=True) as ledger:
    print(len(queries.run_status(ledger, sys.argv[2]).attempts))
"""


def lines(run_id: str, attempts: int, per_attempt: int, first: int = 0) -> dict[str, list[str]]:
    """Journals of a run: the login host's and one per attempt, as a long chain leaves them; those of the
    attempts from ``first`` on."""
    now = 1_700_000_000.0
    stages = [{"name": "train", "kind": "pretrain", "max_links": attempts}]
    data = {"name": run_id.split("-")[0], "cluster": "c1", "user": "me", "stages": stages}
    login = [] if first else [Event("run.created", run_id, "login-a", 1, now, now, data=data)]
    files: dict[str, list[str]] = {}

    def say(type: str, at: float, attempt: str | None, **data: object) -> None:
        number = 2 + 4 * first + len(login) - (not first)
        login.append(Event(type, run_id, "login-a", number, at, at, "train", attempt, data=data))

    for n in range(first, attempts):
        began, job = now + n * 4000, str(1000 + n)
        token, attempt = contract.token(run_id, "train", n + 1), contract.attempt_id("c1", job, 0)
        say("submission.intent", began - 60, None, token=token, cluster="c1", epoch=0, link=n + 1)
        say("submission.accepted", began - 59, None, token=token, job_id=job)
        seen = {"token": token, "job_id": job, "nodes": "node-[001-064]", "submitted_at": began - 60}
        say("job.observed", began, attempt, state="RUNNING", started_at=began, **seen)
        ended = {"state": "TIMEOUT", "started_at": began, "ended_at": began + 3600}
        say("job.observed", began + 3600, attempt, **ended, **seen)
        writer = f"c1-{job}.0-train-rank0"
        told = [("role.started", {"role": "trainer"}), ("workload.resumed", {"step": n * 90})]
        for step in range(per_attempt - 8):
            word = {"step": n * 90 + step, "loss": 5 / (step + 1), "tokens": step * 4096, "section": "step"}
            told.append(("progress", {**word, "steps_per_s": 0.02}))
        told.append(("checkpoint.committed", {"step": n * 90 + 90, "path": f"step-{n}", "bytes": 1}))
        told.append(("role.exited", {"role": "trainer", "exit_code": 75}))
        files[writer] = [
            encode(
                Event(t, run_id, writer, i + 1, began + i, float(i), "train", attempt, 0, "node-001", 0, d)
            )
            for i, (t, d) in enumerate(told)
        ]
    files["login-a"] = [encode(event) for event in login]
    return files


def make(home: Path, attempts: int, per_attempt: int) -> list[Path]:
    """Run directories with that many attempts in all."""
    made = []
    for number in range(RUNS):
        # Half of all attempts in 99 runs, the other half in the last one.
        share = attempts // 2 if number == RUNS - 1 else attempts // 2 // (RUNS - 1)
        if number == RUNS - 2:
            share += attempts // 2 - (attempts // 2 // (RUNS - 1)) * (RUNS - 1)
        run_dir = home / "runs" / f"run{number:03d}-20260101-000000-0000"
        journal = contract.RunPaths(run_dir).journal
        journal.mkdir(parents=True)
        _append(run_dir, share, per_attempt)
        made.append(run_dir)
    return made


def _append(run_dir: Path, attempts: int, per_attempt: int, first: int = 0) -> None:
    for name, text in lines(run_dir.name, attempts, per_attempt, first).items():
        with (contract.RunPaths(run_dir).journal / f"{name}.jsonl").open("a") as stream:
            stream.write("\n".join(text) + "\n")


def more(runs: list[Path], attempts: int, per_attempt: int) -> None:
    """That many further attempts, spread evenly over the runs, each of which goes on where it was."""
    for run_dir in runs:
        known = sum(1 for _ in contract.RunPaths(run_dir).journal.iterdir()) - 1
        _append(run_dir, known + attempts // len(runs), per_attempt, known)


def ingest(home: Path) -> tuple[int, float, float, int]:
    """``(new events, processor seconds, seconds, peak memory)`` of looking at all runs of ``home``."""
    _, memory, told = python_run(INGEST, str(home))
    events, processor, wall = json.loads(told)
    return events, processor, wall, memory


def plain_insert(path: Path, ledger: Path) -> tuple[int, float]:
    """sqlite-utils inserting the same events, parsed beforehand: ``(rows, processor seconds)``."""
    import sqlite3

    import sqlite_utils

    source = sqlite3.connect(ledger)
    source.row_factory = sqlite3.Row
    rows = [
        dict(row) for row in source.execute("SELECT * FROM event ORDER BY run_id, writer, seq LIMIT 100000")
    ]
    texts = [json.dumps(row) for row in rows]
    started = time.process_time()
    table = sqlite_utils.Database(path)["event"]
    table.insert_all((json.loads(text) for text in texts), pk=("run_id", "writer", "seq"), ignore=True)
    return len(rows), time.process_time() - started


def main() -> int:
    def sizes(parser: ArgumentParser) -> None:
        parser.add_argument("--attempts", type=int, default=10_000)
        parser.add_argument("--events", type=int, default=1_000_000)

    args = options(__doc__ or "", sizes)
    per_attempt = max(9, args.events // args.attempts)
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as name:
        home = Path(name)
        runs = make(home, args.attempts, per_attempt)
        path = home / "ledger.db"
        events, full, wall, memory = ingest(home)
        with Ledger.open(path, readonly=True) as ledger:
            attempts = ledger.rows("SELECT count(*) FROM attempt")[0][0]
        rows, seconds = plain_insert(home / "plain.db", path)
        each, plain = full / events * 1e6, seconds / rows * 1e6
        python_run(STATUS, str(home))  # fills the page cache, as the commands before did
        listed = min(python_run(STATUS, str(home)) for _ in range(3))
        long = min(python_run(ONE_RUN, str(path), runs[-1].name) for _ in range(3))
        bare = min(python_run("") for _ in range(3))
        started = time.perf_counter()
        with Ledger.open(path) as ledger:
            for run_dir in runs:
                ledger.ingest_run(run_dir)
        idle = time.perf_counter() - started
        size = path.stat().st_size / 1e6
        percent = []
        for chosen in (runs[:10], runs[-1:]):
            more(chosen, args.attempts // 100, per_attempt)
            new, took, _, _ = ingest(home)
            percent.append(100 * took / full * (0.01 * events / new))
    mb = 1e6
    print_results(
        f"ledger: {attempts:,} attempts, {events:,} events, {size:,.0f} MB",
        [
            Result("status --all", listed[0], "s", bare[0], listed[0] / bare[0], aim=0.5),
            Result("status --all: peak memory", listed[1] / mb, "MB", bare[1] / mb, aim=150),
            Result(f"rows of one run of {args.attempts // 2:,} attempts", long[0], "s", bare[0], aim=0.5),
            Result("rows of one run: peak memory", long[1] / mb, "MB", bare[1] / mb, aim=150),
            Result("look at 100 unchanged runs", idle, "s"),
            Result("ingest, of an event (baseline: sqlite-utils)", each, "us", plain, each / plain, aim=20),
            Result("ingest, events per second of a core", 1e6 / each, "", 1e6 / plain),
            Result("ingest: wall clock", wall, "s"),
            Result("ingest: peak memory", memory / mb, "MB", bare[1] / mb),
            Result("1 % more events in 10 of 100 runs, of the full time", percent[0], "%", aim=5),
            Result("1 % more events in the longest run, of the full time", percent[1], "%", aim=5),
        ],
        as_json=args.json,
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
