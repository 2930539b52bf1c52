"""What heartbeats cost: a rank for each step, an agent for each look, a supervisor with 10,000 ranks.

NVRx's own heartbeat is measured beside ours, in the same process, under its launcher. A step here is what a
trainer does: a report, two marked collectives. The supervisor's work for 10 s is one report of each of 1,250
nodes of 8 ranks, read from the JSON it comes in, with one comparison for slow ranks and one for a hang.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from resiliency import contract, hang, straggler
from resiliency.fleet import Fleet, row
from resiliency.heartbeat import Heartbeat
from resiliency.steprecord import Recorder, Snapshot, path_of, read_all
from resiliency.workload import Workload
from scripts.bench.common import ROOT, Result, best_of, options, print_results

STEP_S = 0.1
NODES, RANKS, PERIOD_S = 1250, 8, 10.0
STEPS = 20_000


def paced(call: Callable[[int], object], count: int = 300) -> float:
    """Median seconds of a call between steps: caches are cold then, as they are in a training."""
    taken = []
    for step in range(count):
        time.sleep(0.004)
        began = time.perf_counter()
        call(step)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def step_costs(directory: Path) -> tuple[float, float]:
    """Seconds that heartbeats add to a step: over an empty loop, and between steps."""
    work = Workload(heartbeat=Heartbeat(Recorder(path_of(directory, 0), 0)))

    def step(number: int) -> None:
        with work.collective():
            pass
        with work.collective():
            pass
        work.report(step=number, loss=2.5, tokens=number * 4096)

    def nothing(number: int) -> None:
        pass

    def loop(call: Callable[[int], object]) -> float:
        return best_of(3, lambda: [call(number) for number in range(STEPS)]) / STEPS

    return loop(step) - loop(nothing), paced(step)


_UNDER_NVRX = """
import json, sys
sys.path.insert(0, sys.argv[1])
from nvidia_resiliency_ext.fault_tolerance import RankMonitorClient
from scripts.bench.bench_heartbeat import paced, step_costs
from pathlib import Path
client = RankMonitorClient()
client.init_workload_monitoring()
theirs = paced(lambda step: client.send_heartbeat())
ours = step_costs(Path(sys.argv[2]))
client.shutdown_workload_monitoring()
Path(sys.argv[2], "result.json").write_text(json.dumps([*ours, theirs]))
"""


def beside_nvrx(directory: Path) -> tuple[float, float, float] | None:
    """(ours in a loop, ours between steps, NVRx's between steps), in one process under ft_launcher; None
    where there is no NVRx."""
    program, config = directory / "measure.py", directory / "ft.yaml"
    program.write_text(_UNDER_NVRX)
    config.write_text("fault_tolerance: {initial_rank_heartbeat_timeout: 600, rank_heartbeat_timeout: 600}\n")
    argv = [
        *(sys.executable, "-m", "nvidia_resiliency_ext.fault_tolerance.launcher"),
        *("--nnodes", "1", "--nproc-per-node", "1", "--rdzv-backend", "c10d"),
        *("--rdzv-endpoint", "localhost:0", "--max-restarts", "0", "--ft-cfg-path", str(config)),
        *(str(program), str(ROOT), str(directory)),
    ]
    env = {name: value for name, value in os.environ.items() if name != contract.ENV_RECORDS}
    done = subprocess.run(argv, capture_output=True, timeout=180, env=env, cwd=directory, check=False)
    result = directory / "result.json"
    if done.returncode != 0 or not result.exists():
        return None
    loop, ours, theirs = json.loads(result.read_text())
    return loop, ours, theirs


def look_cost(directory: Path) -> float:
    """Seconds of an agent for one look at its 8 ranks: read, judge, and make the rows of a report."""
    for rank in range(RANKS):
        heart = Heartbeat(Recorder(path_of(directory, rank), rank))
        for step in range(100):
            heart.step(step)
    history, settings = hang.History(), hang.Settings()

    def look() -> None:
        now = time.monotonic()
        seen = read_all(directory)
        views = [hang.view(one, "n0", now, "S") for one in seen.values()]
        history.learn(views)
        hang.stalled(views, history, settings)
        json.dumps([row(one, now, "S") for one in seen.values()])

    return best_of(20, look)


def reports(rng: random.Random, step: int) -> list[tuple[str, str]]:
    """(node, line) of every node."""
    found = []
    for node in range(NODES):
        rows = []
        for local in range(RANKS):
            times = tuple(0.1 * rng.lognormvariate(0, 0.1) for _ in range(4)) * 16
            seen = Snapshot(
                node * RANKS + local, 4000 + local, 10 * step, step, "step", 99.5, 99.5,
                in_collective=bool(rng.getrandbits(1)), compute_times=times, collectives=8 * step,
                slowest={"step": 0.31 + rng.random(), "checkpoint": 4.2, "eval": 3.9},
            )  # fmt: skip
            rows.append(row(seen, 99.5 + rng.random() / 10, "S"))
        name = f"node{node:04d}"
        found.append((name, json.dumps({"kind": "status", "node": name, "cycle": 0, "ranks": rows})))
    return found


def supervisor_cost() -> tuple[float, float]:
    """(CPU seconds for one period of all ranks' reports and judgements, bytes of one report)."""
    rounds = [reports(random.Random(n), 100 * n) for n in range(3)]
    settings, slow = hang.Settings(), straggler.Settings()
    fleet, history = Fleet(), hang.History()
    spent = []
    for n, lines in enumerate(rounds):
        began = time.process_time()
        now = PERIOD_S * n
        for node, line in lines:
            message = json.loads(line)
            history.learn(fleet.update(node, message["ranks"], now))
        straggler.slow(fleet.compute_times(), slow)
        if hang.stalled(fleet.views(now), history, settings):
            raise SystemExit("a healthy fleet was taken for a hung one")
        spent.append(time.process_time() - began)
    return min(spent), sum(len(line) for _, line in rounds[0]) / NODES


def main() -> int:
    given = options(__doc__ or "")
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as name:
        directory = Path(name)
        found = beside_nvrx(directory)
        loop, ours, theirs = found or (*step_costs(directory), None)
        look = look_cost(directory)
    spent, size = supervisor_cost()
    ranks = NODES * RANKS
    print_results(
        "heartbeats",
        [
            Result("step: report and two collectives, in a loop", 1e6 * loop, "us", aim=20),
            Result(
                "the same between steps (NVRx: one beat)", 1e6 * ours, "us",
                None if theirs is None else 1e6 * theirs,
                None if theirs is None else ours / theirs,
            ),
            Result(f"of a {STEP_S * 1000:.0f} ms step", 100 * ours / STEP_S, "%", aim=0.5),
            Result(f"agent: a look at {RANKS} ranks", 1e3 * look, "ms"),
            Result(f"a node's report of {RANKS} ranks", size / 1024, "KiB"),
            Result(f"supervisor: {ranks:,} ranks, a report in {PERIOD_S:.0f} s", 100 * spent / PERIOD_S,
                   "% of a core", None, None, 100),
        ],
        as_json=given.json,
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
