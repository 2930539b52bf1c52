"""How long checking a node takes, in full and before a restart, and what nodes that meet in pairs cost.

Beside it: one hung check, since the answer must come in time whatever hangs. Nodes are emulated, threads of
one process on the loopback: this machine's cores set their pace. Without GPUs nothing is asked of NVML.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from launch.pairing import ROUNDS
from launch.partner import MEGABYTES
from launch.preflight import CheckPlace, Settings, run_checks
from launch.preflight.pairwise import Pair, Responder, exchange, judge, plan_round, rounds
from scripts.bench.common import Result, options, print_results

HOST, TOKEN = "127.0.0.1", "of-this-bench"
#: A restart aims at half the best peer's 6 to 8 s; its checks should not show in that.
QUICK_S, LATE_S = 0.1, 1.0


def seconds(times: int, place: CheckPlace) -> tuple[float, float]:
    """Medians of full and quick runs that take turns, in this process, as an agent does them."""

    def run(quick: bool) -> float:
        began = time.perf_counter()
        health = run_checks(Settings(), place, quick=quick)
        took = time.perf_counter() - began
        if health.failed:
            raise SystemExit(f"this machine fails its checks: {health.summary_line()}")
        return took

    found = [(run(False), run(True)) for _ in range(times)]
    return statistics.median(full for full, _ in found), statistics.median(quick for _, quick in found)


def late(place: CheckPlace, directory: Path, timeout: float) -> float:
    """Seconds past the timeout when a site check never ends."""
    program = directory / "hangs.sh"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    began = time.perf_counter()
    run_checks(Settings.read({"timeout": timeout, "site": [str(program)]}), place)
    return time.perf_counter() - began - timeout


def meet(count: int, megabytes: float, silent: bool = False) -> tuple[float, list[str]]:
    """Seconds until ``count`` nodes have met as the supervisor lets them, and who is named. ``silent``: the
    last one answers nobody."""
    nodes = [f"n{number:02d}" for number in range(count)]
    responders = {
        node: Responder(TOKEN if not silent or node != nodes[-1] else "other", HOST) for node in nodes
    }
    found: list[Pair] = []
    began = time.perf_counter()
    with ThreadPoolExecutor(count) as pool:
        for number in range(min(ROUNDS, rounds(count))):
            asked = [
                (a, b, pool.submit(exchange, HOST, responders[b].port, TOKEN, megabytes, 3.0))
                for a, b in plan_round(nodes, number)
            ]
            found += [Pair(a, b, one.result()) for a, b, one in asked]
    took = time.perf_counter() - began
    for responder in responders.values():
        responder.close()
    return took, [suspect.node for suspect in judge(found)]


def main() -> int:
    def extra(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--times", type=int, default=15, help="runs per figure, of which the median counts"
        )

    given = options(__doc__ or "", extra)
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        place = CheckPlace("bench", directory, directory)
        full, quick = seconds(given.times, place)
        results.append(Result("all checks of a node", full, "s"))
        results.append(Result("checks before a restart", quick, "s", full, quick / full, QUICK_S))
        results.append(Result("late, when a check hangs", late(place, directory, 0.5), "s", aim=LATE_S))
    for count in (3, 8, 16):
        took, named = meet(count, MEGABYTES)
        if named:
            print(f"  {count} good nodes met, and these were named: {', '.join(named)}")
        results.append(Result(f"{count} nodes meet, {ROUNDS} rounds of {MEGABYTES:g} MB", took, "s"))
        results.append(Result(f"{count} good nodes, wrongly named", float(len(named)), "nodes", aim=0))
    took, named = meet(8, MEGABYTES, silent=True)
    print(f"  8 nodes, n07 answers nobody: {', '.join(named) or 'nobody'} named after {took:.2f} s")
    print_results("checks of nodes", results, as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
