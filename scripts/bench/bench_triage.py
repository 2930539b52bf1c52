# ruff: noqa: E501
"""How fast triage reads: logs of 512 ranks, one gigabyte, against `grep -cE` over the same anchors.

The logs look like a large job's: NCCL's start-up, iterations, a fault on one rank, and then what the others
say about it. Both are timed by the processor time they use, one core each, so that a busy machine does not
change the ratio. `--bytes` makes a smaller job of it.
"""

from __future__ import annotations

import argparse
import gzip
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from resiliency.triage.prefilter import engine
from resiliency.triage.signatures import load
from scripts.bench.common import Result, options, print_results

RANKS = 512
CHILD = """
import json, resource, sys, time
begun = time.process_time()
from resiliency.triage.api import triage
made = triage([sys.argv[1]])
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([time.process_time() - begun, used.ru_maxrss / 1024, made.verdict.category, made.verdict.rank]))
"""


def write(folder: Path, total: int) -> int:
    """Logs of all ranks; returns their size."""
    chance = random.Random(7)
    size = 0
    for rank in range(RANKS):
        host = f"node-{rank // 8:04d}"
        with (folder / f"rank-{rank}.log").open("wb") as stream:
            blocks = max(1, total // RANKS // 120_000)
            for block in range(blocks):
                rows = []
                for n in range(450):
                    a, b = chance.randrange(RANKS), chance.randrange(RANKS)
                    rows.append(
                        f"[rank{rank}]: {host}:{4000 + rank}:{5000 + n} [{rank % 8}] NCCL INFO Channel "
                        f"{n % 16:02d}/0 : {a}[{a % 8}] -> {b}[{b % 8}] [send] via NET/IB/{n % 8}/GDRDMA"
                    )
                for n in range(300):
                    step = block * 300 + n
                    at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(1_790_000_000 + 4 * step))
                    rows.append(
                        f"[rank{rank}]:  [{at}] iteration {step:8d}/   50000 | consumed samples: {step * 512:12d} | "
                        f"elapsed time per iteration (ms): {4100 + chance.random() * 200:.1f} | learning rate: 3.000E-04 "
                        f"| lm loss: {2 + chance.random():.6E} | grad norm: {chance.random():.3f} | number of skipped "
                        "iterations:   0 | number of nan iterations:   0 |"
                    )
                stream.write(("\n".join(rows) + "\n").encode())
            stream.write(_end(rank, 1_790_000_000 + 1200 * blocks).encode())
            size += stream.tell()
    return size


def _end(rank: int, t: float) -> str:
    if rank == 307:
        return (
            "[rank307]: Traceback (most recent call last):\n"
            '[rank307]:   File "/workspace/train.py", line 3, in train_step\n'
            "[rank307]:     loss.backward()\n"
            "[rank307]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.75 GiB. GPU 3 has a total"
            " capacity of 79.11 GiB\n"
        )
    glog = time.strftime("%m%d %H:%M:%S", time.gmtime(t + 600)) + ".123456789"
    p = f"[rank{rank}]:[E{glog} ProcessGroupNCCL.cpp"
    return (
        f"{p}:607] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2291, "
        "OpType=ALLREDUCE, NumelIn=2048, NumelOut=2048, Timeout(ms)=600000) ran for 600084 milliseconds before"
        " timing out.\n"
        f"{p}:627] [Rank {rank}] To avoid data inconsistency, we are taking the entire process down.\n"
    )


def ours(folder: Path) -> tuple[float, float, str, int | None]:
    import json

    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    seconds, megabytes, category, rank = json.loads(done.stdout)
    return seconds, megabytes, category, rank


def grep(folder: Path) -> float:
    """Processor seconds of `grep -cE` with every anchor as an alternative."""
    words = [re.sub(r"([\\.^$*+?()\[\]{}|])", r"\\\1", a.decode()) for a in load([]).anchors]
    files = sorted(str(p) for p in folder.iterdir())
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        ["grep", "-a", "-c", "-E", "|".join(words), *files],
        stdout=subprocess.DEVNULL,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bytes", type=int, default=1_000_000_000, help="size of all logs together")


def main() -> int:
    asked = options(__doc__ or "", _more)
    with tempfile.TemporaryDirectory(prefix="bench-triage-") as scratch:
        folder = Path(scratch) / "plain"
        folder.mkdir()
        size = write(folder, asked.bytes)
        baseline = grep(folder)
        seconds, megabytes, category, rank = ours(folder)
        if (category, rank) != ("gpu_oom", 307):
            print(f"wrong verdict: {category}, rank {rank}", file=sys.stderr)
            return 1
        packed = Path(scratch) / "packed"
        packed.mkdir()
        some = sorted(folder.iterdir())[:32]
        for path in some:
            (packed / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 6))
        unpacked = sum(p.stat().st_size for p in some)
        packed_s, _, _, _ = ours(packed)
        scale = 1e9 / size
        print_results(
            f"triage of {size / 1e9:.2f} GB, {RANKS} ranks, {engine()}",
            [
                Result(
                    "1 GB of logs, one core", seconds * scale, "s", baseline * scale, seconds / baseline, 10.0
                ),
                Result("against grep -cE of the anchors", seconds / baseline, "x", aim=3.0),
                Result("memory", megabytes, "MB", aim=300.0),
                Result("1 GB, gzip", packed_s * 1e9 / unpacked, "s"),
            ],
            as_json=asked.json,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
