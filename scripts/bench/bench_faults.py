#!/usr/bin/env python3
"""Seconds from a fault to the first new step, on a real Slurm: others' ways beside ours, in the same run.

Without options, or with ``--quick``: three faults, two peers, once; some ten minutes. ``--all``: every fault
and way, three times each (``-n``); hours. ``--only FAULT,PEER`` (repeatable; either may be empty) chooses.
``--out FOLDER`` keeps the raw rows and goes on where they stop. Brings up a dev cluster of its own and takes
it down again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench import figures  # noqa: E402
from scripts.bench.peers import table  # noqa: E402
from scripts.bench.peers.contest import FAULTS, Row, run  # noqa: E402
from scripts.bench.peers.contestants import CONTESTANTS, OURS  # noqa: E402

DEV_CLUSTER = [sys.executable, str(ROOT / "scripts" / "dev-cluster")]
#: Where a spare is there, only those that can use it.
SPARE_ONLY = ("ft_spare", OURS)
QUICK = (("none", "raise", "kill", "hang"), ("torchrun", "ft_launcher", OURS))


def cells(options: argparse.Namespace) -> list[tuple[str, str]]:
    """(fault, peer) to run, faults outermost so that those compared run close together."""
    faults, peers = (QUICK if options.quick else (FAULTS, tuple(CONTESTANTS)))[:2]
    every = [(fault, peer) for fault in faults for peer in peers if _makes_sense(fault, peer)]
    chosen = []
    for text in options.only or [","]:
        fault, _, peer = text.partition(",")
        if (fault and fault not in FAULTS) or (peer and peer not in CONTESTANTS):
            sys.exit(f"--only {text}: faults are {', '.join(FAULTS)}; peers are {', '.join(CONTESTANTS)}")
        pool = every if not options.only else [(f, p) for f in FAULTS for p in CONTESTANTS]
        chosen += [cell for cell in pool if cell[0] in (fault or cell[0],) and cell[1] in (peer or cell[1],)]
    return [cell for cell in dict.fromkeys(chosen) if _makes_sense(*cell) or options.only]


def _makes_sense(fault: str, peer: str) -> bool:
    if fault == "crash-spare":
        return peer in SPARE_ONLY
    return peer != "ft_spare" or fault == "none"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="raise, kill and hang against two peers, once")
    parser.add_argument("--all", action="store_true", help="every fault and every way")
    parser.add_argument("--only", action="append", metavar="FAULT,PEER", help="a subset; either may be empty")
    parser.add_argument("-n", type=int, help="times each (default 3; quick: 1)")
    parser.add_argument("--out", type=Path, help="folder for raw rows; rows that are there are not run again")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    options = parser.parse_args()
    options.quick = options.quick or not (options.all or options.only)
    options.n = options.n or (1 if options.quick else 3)
    return options


def contest(options: argparse.Namespace, folder: Path, state_dir: Path) -> list[Row]:
    raw = folder / "rows.jsonl"
    rows = [Row(**json.loads(line)) for line in raw.read_text().splitlines()] if raw.exists() else []
    have = {(row.fault, row.peer, row.number) for row in rows}
    for number in range(1, options.n + 1):
        for fault, peer in cells(options):
            if (fault, peer, number) in have:
                continue
            row = run(fault, peer, number, folder / "runs", state_dir)
            rows.append(row)
            with raw.open("a") as file:
                file.write(json.dumps(asdict(row)) + "\n")
            took = "-" if row.recovery_s is None else f"{row.recovery_s:.1f} s, {row.lost} lost"
            agree = "" if row.losses_agree else ", LOSSES DIFFER"
            print(f"{fault} {peer} #{number}: {row.end}, {took}{agree}", file=sys.stderr, flush=True)
    wanted = set(cells(options))
    return [row for row in rows if (row.fault, row.peer) in wanted]


def report(rows: list[Row]) -> None:
    """Ratios and losses of ours as figures, for scripts/bench/run."""
    found = table.Table(rows)
    for fault, aim in table.AIMS.items():
        ratio = found.ratio(fault)
        if ratio is not None:
            best = found.best_peer(fault)
            figures.report(figures.Figure(f"{fault}: over {best[0] if best else '-'}", ratio, "x", aim))
        lost = found.lost(fault, OURS)
        if fault in table.NO_LOSS and lost is not None:
            figures.report(figures.Figure(f"{fault}: steps lost", lost, "steps", 0))
    ettr = [value for fault in ("raise", "kill") if (value := found.ettr(fault, OURS)) is not None]
    if ettr:
        figures.report(figures.Figure("ETTR with a rank fault", min(ettr), "", table.LEAST_ETTR, True))


def main() -> int:
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="tmb-") as scratch:
        os.chmod(scratch, 0o755)  # Slurm's daemons and the test users must reach it
        state_dir = Path(scratch) / "c"
        there = ["--dir", str(state_dir)]
        up = subprocess.run(
            [*DEV_CLUSTER, "up", "--nodes", "5", "--nodes-b", "0", "--port-base", "25800", *there],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        if up.returncode:
            sys.exit(f"no Slurm to measure on: {(up.stderr or up.stdout).strip()[-400:]}")
        os.environ["SLURM_CONF"] = str(state_dir / "etc" / "alpha" / "slurm.conf")
        folder = options.out or Path(scratch) / "out"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            rows = contest(options, folder.resolve(), state_dir)
        finally:
            subprocess.run([*DEV_CLUSTER, "down", "--wipe", *there], capture_output=True, check=False)
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
        return 0
    print(table.Table(rows).text())
    report(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
