"""Stands for your training program: counts, saves, and stops when told. Needs nothing but Python.

Exit codes: 0 all steps done; 75 told to stop, state saved, run me again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

stopping = False


def stop(signum: int, frame: object) -> None:
    """Only note it: the loop saves at a step's end."""
    global stopping
    stopping = True


def save(path: Path, step: int) -> None:
    """Write aside and rename, so that a kill never leaves half a checkpoint."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps({"step": step}))
    os.replace(temporary, path)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a step")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    options.checkpoints.mkdir(parents=True, exist_ok=True)
    path = options.checkpoints / "state.json"
    step = json.loads(path.read_text())["step"] if path.exists() else 0
    while step < options.steps:
        if stopping:
            save(path, step)
            return 75
        time.sleep(options.seconds)
        step += 1
        print(f"step {step} loss {4 / step + 1:.4f}", flush=True)
        if step % 10 == 0:
            save(path, step)
    return 0


if __name__ == "__main__":
    sys.exit(main())
