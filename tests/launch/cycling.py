"""A small program that does harm once, and looks at the cycles it goes through."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from .conftest import CLUSTER, RunDir

#: Writes down where it is; does harm once, when told to; steps quickly.
RANK = """
import json, os, signal, sys, time
from pathlib import Path
out, harm, culprit, steps = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rank, cycle, world = (int(os.environ[n]) for n in ("RANK", "TRAINMASTER_CYCLE", "WORLD_SIZE"))
name = f"{cycle}.{rank}.{os.environ['TRAINMASTER_NODE']}"
here = os.environ["TRAINMASTER_NODE_DIR"]
Path(here, "kept").touch() if cycle == 0 else None
(out / name).write_text(json.dumps({"world": world, "kept": Path(here, "kept").exists(),
    "master": os.environ.get("MASTER_ADDR", ""), "pid": os.getpid()}))
done, once = out / f"done.{rank}", out / "harmed"
step = int(done.read_text()) if done.exists() else 0
while step < steps:
    step += 1
    time.sleep(0.05)
    if rank == culprit and step >= 5 and not (once.exists() and harm != "always"):
        once.touch()
        if harm in ("raise", "always"):
            raise ValueError(f"harm at step {step}")
        if harm == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if harm == "wait":
            time.sleep(600)
    saving = out / f"saving.{rank}"
    saving.write_text(str(step))
    os.replace(saving, done)  # it may be killed at any moment, and goes on from what is there
"""


def stage(
    run_dir: RunDir, program: Path, out: Path, harm: str, *, culprit: int = 0, steps: int = 20, **more: Any
) -> None:
    out.mkdir()
    argv = [sys.executable, str(program), str(out), harm, str(culprit), str(steps)]
    run_dir.stage(argv=argv, **{"restarts_in_job": 3, "grace_s": 2, **more})


def cycles_of(run_dir: RunDir) -> list[dict[str, Any]]:
    return [dict(event.data) for event in run_dir.events("cycle.started")]


def agent_of(node: str) -> int:
    """Process id of a node's agent."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        mine = any(word.startswith(f"{CLUSTER}/".encode()) for word in words)
        if mine and b"launch.agent" in words and node.encode() in words:
            return int(entry.name)
    raise AssertionError(f"no agent of {node}")
