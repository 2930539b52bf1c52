"""Kills a submitter at chosen points, brings the run forward again, and reports what is in the queue.

A process of its own (started by test_crash_points.py) that imports everything once and forks for each
command, so that hundreds of seeds take seconds. Prints one JSON line per seed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import sys
import time
import traceback
from pathlib import Path

import orchestrator.prepare
import orchestrator.spec.load
from orchestrator import lifecycle, submit
from orchestrator.control import read_state
from orchestrator.home import Home
from orchestrator.session import Session
from resiliency import crashpoint

EXPERIMENT = """
name: crash
cluster: {cluster}
stages:
  one:
    kind: command
    run: ["true"]
    resources: {{time: "00:10:00"}}
  two:
    kind: command
    needs: one
    run: ["true"]
    resources: {{time: "00:10:00"}}
"""

#: Nothing may start, so the queue holds exactly what was submitted. A second profile lets jobs run.
CLUSTERS = """
paused: {scheduler: local, max_running: 0}
running: {scheduler: local, max_running: 2}
"""


def command(home: Path, verb: str, crash_at: str | None) -> int:
    """Run one command in a fork; its exit status, or minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            crashpoint._passed = 0
            os.environ.pop("TRAINMASTER_CRASH_AT", None)
            if crash_at:
                os.environ["TRAINMASTER_CRASH_AT"] = crash_at
            with contextlib.redirect_stdout(io.StringIO()):
                session = Session(Home.at(home))
                if verb == "submit":
                    ready = orchestrator.prepare.prepare(session.home, home / "crash.yaml", [])
                    submit.submit(session, ready)
                elif verb == "tick":
                    session.reconcile(session.active())
                elif verb == "cancel":
                    run = session.find(None)
                    lifecycle.cancel(session, run, [])
                    session.reconcile([run])
                elif verb == "resume":
                    run = session.find(None)
                    lifecycle.resume(session, run, [])
                    session.reconcile([run])
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def queue(home: Path, cluster: str) -> dict[str, int]:
    """Token → number of jobs that carry it, over every run of this home."""
    import sqlite3

    path = home / "local" / "queue.db"
    if not path.exists():
        return {}
    with sqlite3.connect(path) as db:
        return dict(db.execute("SELECT token, count(*) FROM job GROUP BY token"))


def one(seed: int, base: Path) -> dict[str, object]:
    """One seed: up to three crashes, then the same submit again, then ticks until nothing changes."""
    rng = random.Random(seed)
    cluster = "running" if seed % 10 == 0 else "paused"
    home = base / f"seed{seed}"
    home.mkdir()
    (home / "crash.yaml").write_text(EXPERIMENT.format(cluster=cluster))
    (home / "clusters.yaml").write_text(CLUSTERS)
    verbs, crashes = [], 0
    for number in range(rng.randint(1, 3)):
        verb = "submit" if number == 0 else rng.choice(["submit", "tick"])
        # Seeds walk through every point in turn; repeated crashes take random ones.
        at = seed if number == 0 else rng.randint(1, 45)
        at = (at - 1) % 60 + 1
        code = command(home, verb, str(at))
        verbs.append([verb, at, code])
        crashes += code == -9
    # Jobs that run may be done by now, and a finished experiment submitted again is a new run.
    made = (home / "runs").exists() and any(not p.name.startswith(".") for p in (home / "runs").iterdir())
    last = "tick" if cluster == "running" and made else "submit"
    final = [command(home, last, None)]
    if rng.random() < 0.3:
        final += [command(home, last, None), command(home, "tick", None)]
    runs = [p for p in (home / "runs").iterdir() if not p.name.startswith(".")]
    session = Session(Home.at(home))
    statuses = []
    if cluster == "running":
        end = time.monotonic() + 60
        while session.active() and time.monotonic() < end:
            command(home, "tick", None)
            time.sleep(0.2)
    for path in runs:
        statuses.append(read_state(session.find(path.name)).status)
    return {
        "seed": seed,
        "cluster": cluster,
        "verbs": verbs,
        "crashes": crashes,
        "final": final,
        "runs": len(runs),
        "jobs": queue(home, cluster),
        "statuses": statuses,
    }


def main() -> None:
    base, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for seed in range(first, last):
        print(json.dumps(one(seed, base)), flush=True)


if __name__ == "__main__":
    main()
