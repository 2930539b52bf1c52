"""What a checkpoint costs training, and what coming back costs: two ranks, a state of 127 MB, all in one run.

Beside Megatron's own synchronous save of the same state (its writer, then checksums and a rename). Seconds
are those of the slower rank, medians of several rounds taken in turns.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from figures import Figure, report

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 5


def measure(kind: str) -> dict[str, Any]:
    memory = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
    scratch = Path(tempfile.mkdtemp(prefix="bench-checkpoint-"))
    local = Path(tempfile.mkdtemp(prefix="bench-checkpoint-", dir=memory))
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        ranks = []
        for rank in range(2):
            (local / str(rank)).mkdir()
            env = {
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "1",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "PYTHONPATH": str(ROOT),
                "PYTHONWARNINGS": "ignore",
                "OMP_NUM_THREADS": "1",
                "TRAINMASTER_NODE": f"node-{rank}",
                "TRAINMASTER_NODE_DIR": str(local / str(rank)),
            }
            program = str(ROOT / "scripts" / "bench" / "checkpoint_rank.py")
            ranks.append(
                subprocess.Popen(
                    [sys.executable, program, str(scratch), str(ROUNDS), kind],
                    env=env,
                    stdout=subprocess.PIPE,
                    stderr=None if rank == 0 else subprocess.DEVNULL,
                    text=True,
                )
            )
        said = [rank.communicate(timeout=600)[0] for rank in ranks]
        found: dict[str, Any] = json.loads(said[0].splitlines()[-1])
        return found
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(local, ignore_errors=True)


def main() -> None:
    for kind, name in (("PLAIN", "plain"), ("DISTRIBUTED", "distributed optimizer")):
        took = measure(kind)
        print(f"{name}: {took['megabytes']:.0f} MB; lowest: " + json.dumps(took["lowest"]), flush=True)
        report(Figure(f"{name}: Megatron's synchronous save", took["megatron"], "s"))
        report(Figure(f"{name}: ours, synchronous", took["waiting"] / took["megatron"], "x"))
        report(Figure(f"{name}: ours, stall against that", took["beside"] / took["waiting"], "x", 0.1))
        report(Figure(f"{name}: ours, stall against Megatron's", took["beside"] / took["megatron"], "x", 0.1))
        report(Figure(f"{name}: copy in memory, stall", took["copy"], "s"))
        report(Figure(f"{name}: copy, until it is replicated", took["copy until replicated"], "s"))
        report(Figure(f"{name}: back from a checkpoint", took["verify"] + took["load"], "s"))
        back = took["from memory"] / (took["verify"] + took["load"])
        report(Figure(f"{name}: back from memory against that", back, "x"))


if __name__ == "__main__":
    main()
