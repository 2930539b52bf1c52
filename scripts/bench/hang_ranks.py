"""A hang of real processes: ranks with heartbeats and a barrier between them, one of which stops going on.

``python scripts/bench/hang_ranks.py DIRECTORY RANKS RANK STEP KIND`` is the training; :func:`hang` runs it,
harms it and judges. Used by ``bench_hang.py`` and ``tests/resiliency/test_hang.py``.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from resiliency import hang as judge
from resiliency.heartbeat import Heartbeat
from resiliency.steprecord import Recorder, path_of, read_all

KINDS = ("data", "compute", "between", "checkpoint", "stopped", "dead")


def _state(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text[text.rindex(")") + 2 :].split()[0]


def _train(directory: Path, rank: int, barrier: object, harm: tuple[int, int, str]) -> None:
    heart = Heartbeat(Recorder(path_of(directory, rank), rank))
    rng = random.Random(rank)
    who, when, kind = harm

    def work(here: str) -> None:
        time.sleep(0.003 * rng.lognormvariate(0, 0.3))
        if (rank, here) == (who, kind) and step >= when:
            time.sleep(1000)

    for step in range(1, 100_000):
        with heart.section("data"):
            work("data")
        work("compute")
        with heart.collective():
            barrier.wait()  # type: ignore[attr-defined]
        work("between")
        with heart.collective():
            barrier.wait()  # type: ignore[attr-defined]
        heart.step(step)
        if step % 5 == 0:
            with heart.section("checkpoint"):
                work("checkpoint")
                with heart.collective():
                    barrier.wait()  # type: ignore[attr-defined]


def _main() -> None:
    directory, count, who, when, kind = Path(sys.argv[1]), *map(int, sys.argv[2:5]), sys.argv[5]
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(count)
    ranks = [
        context.Process(target=_train, args=(directory, rank, barrier, (who, when, kind)), daemon=True)
        for rank in range(count)
    ]
    for rank in ranks:
        rank.start()
    signal.pause()  # a rank that dies stays a zombie


@dataclass(frozen=True)
class Outcome:
    kind: str
    culprit: int
    stall: judge.Stall | None
    found: list[judge.Culprit]

    @property
    def right(self) -> bool:
        return bool(self.found) and self.found[0].rank == self.culprit


def hang(
    seed: int, *, kind: str | None = None, ranks: int = 8, floor: float = 0.5, wait_s: float = 60
) -> Outcome:
    """Run, harm, watch as a node agent would, judge, clean up."""
    rng = random.Random(seed)
    kind = kind or rng.choice(KINDS)
    culprit, when = rng.randrange(ranks), rng.randrange(8, 20)
    settings = judge.Settings(floor=floor, first=30.0)
    history = judge.History()
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as directory:
        argv = [sys.executable, __file__, directory, str(ranks), str(culprit), str(when), kind]
        training = subprocess.Popen(argv, start_new_session=True)
        stall, views = None, []
        try:
            harmed, end = kind not in ("stopped", "dead"), time.monotonic() + wait_s
            while stall is None and time.monotonic() < end:
                time.sleep(0.05)
                seen = read_all(Path(directory))
                if not harmed and culprit in seen and (seen[culprit].step or 0) >= when:
                    harmed = True
                    time.sleep(rng.random() * 0.02)
                    os.kill(seen[culprit].pid, signal.SIGSTOP if kind == "stopped" else signal.SIGKILL)
                now = time.monotonic()
                views = [judge.view(one, "n0", now, _state(one.pid)) for one in seen.values()]
                history.learn(views)
                if len(views) == ranks:
                    stall = judge.stalled(views, history, settings)
            return Outcome(kind, culprit, stall, judge.culprits(views) if stall else [])
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(training.pid, signal.SIGKILL)
            training.wait()


if __name__ == "__main__":
    _main()
