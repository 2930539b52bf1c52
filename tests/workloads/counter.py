"""A small real workload for tests of chains: counts, saves, resumes, and stops when told to.

``counter.py --steps N --every K --step-s S --state DIR [--crash-at STEP CODE]`` keeps its step in DIR/step
(atomically), reports like a training program and follows the exit-code contract. Needs no torch.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from resiliency import durable, exitcodes
from resiliency.workload import Workload


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--step-s", type=float, default=0.1)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--fail-at", type=int)
    parser.add_argument("--fail-code", type=int, default=1)
    parser.add_argument("--config-error", action="store_true")
    args = parser.parse_args()
    work = Workload.from_env()
    work._interval = 1.0
    # Slurm's TERM goes to every process of a step; what counts here is the stop file, a step later.
    signal.signal(signal.SIGTERM, lambda *_: None)
    args.state.mkdir(parents=True, exist_ok=True)
    saved = args.state / "step"
    step = int(saved.read_text()) if saved.exists() else 0
    print(f"attempt {os.environ.get('TRAINMASTER_ATTEMPT')} starts from step {step}", flush=True)
    if args.config_error:
        work.error(
            "config_error",
            "hidden_size 65 cannot be split over 2 heads",
            "correct model.hidden_size",
        )
        print("config error: hidden_size 65 cannot be split over 2 heads", file=sys.stderr, flush=True)
        work.close()
        return exitcodes.NEEDS_HUMAN
    work.event("workload.resumed", step=step, checkpoint=str(saved))

    def save() -> None:
        durable.write_atomic(saved, str(step))
        work.event("checkpoint.committed", step=step, path=str(saved), bytes=len(str(step)), seconds=0.0)

    while step < args.steps:
        time.sleep(args.step_s)
        step += 1
        work.report(step=step, loss=1.0 / step)
        if step == args.fail_at:
            work.close()
            return args.fail_code
        if step % args.every == 0 or step == args.steps:
            save()
        if work.should_stop() and step < args.steps:
            save()
            print(f"told to stop: saved step {step}", flush=True)
            work.close()
            return exitcodes.PROGRESS_MADE
    artifact = (
        Path(os.environ["TRAINMASTER_RUN_DIR"]) / "stages" / os.environ["TRAINMASTER_STAGE"] / "artifact"
    )
    artifact.mkdir(exist_ok=True)
    (artifact / "result.txt").write_text(f"{step}\n")
    print(f"complete at step {step}", flush=True)
    work.close()
    return exitcodes.COMPLETE


if __name__ == "__main__":
    sys.exit(main())
