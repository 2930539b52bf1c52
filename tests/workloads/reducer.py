"""A small training program for rehearsals: ranks that need each other at every step, without torch.

Its "model" is a few numbers; the loss of a step depends on every step before it and on all samples, so
that a step left out, done twice or done with the wrong state shows in each later loss. Ranks meet through
rank 0 by TCP; a rank that dies ends the others, as gloo does, and one that stands still makes them wait.
Reports, heartbeats, checkpoints (sealed, renamed, verified before use), metrics and exit codes are those of
a real program. ``reducer.py --steps N --every K --step-s S --stage-dir DIR``.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

from resiliency import artifact, contract, exitcodes, faults
from resiliency.workload import Workload

WIDTH = 64
#: Samples of a step, shared out over the ranks: the result does not depend on how many there are.
SAMPLES = 4
VECTOR = struct.Struct(f"<{WIDTH}d")

Vectors = dict[int, list[float]]  # sample → what a rank made of it


class Group:
    """Sums vectors over all ranks. Rank 0 is the hub."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self.peers: list[socket.socket] = []
        if world == 1:
            return
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if rank == 0:
            with socket.create_server(address, backlog=world) as door:
                self.peers = [door.accept()[0] for _ in range(world - 1)]
            return
        end = time.monotonic() + 60
        while True:
            try:
                self.peers = [socket.create_connection(address, timeout=5)]
                self.peers[0].settimeout(None)
                return
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def sum(self, mine: Vectors) -> list[float]:
        """In the order of samples, so that the result is the same to the last digit each time."""
        if self.rank:
            hub = self.peers[0]
            hub.sendall(struct.pack("<i", len(mine)))
            for number, vector in mine.items():
                hub.sendall(struct.pack("<i", number) + VECTOR.pack(*vector))
            return list(VECTOR.unpack(_read(hub, VECTOR.size)))
        found = dict(mine)
        for peer in self.peers:
            for _ in range(struct.unpack("<i", _read(peer, 4))[0]):
                data = _read(peer, 4 + VECTOR.size)
                found[struct.unpack("<i", data[:4])[0]] = list(VECTOR.unpack(data[4:]))
        total = added(found)
        for peer in self.peers:
            peer.sendall(VECTOR.pack(*total))
        return total


def _read(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = peer.recv(count - len(data))
        if not more:
            raise ConnectionError("Connection closed by peer")
        data += more
    return data


def added(vectors: Vectors) -> list[float]:
    total = [0.0] * WIDTH
    for number in sorted(vectors):
        total = [a + b for a, b in zip(total, vectors[number], strict=True)]
    return total


def sample(step: int, number: int) -> list[float]:
    digest = hashlib.shake_128(f"{step}.{number}".encode()).digest(4 * WIDTH)
    return [value / 2**32 for value in struct.unpack(f"<{WIDTH}I", digest)]


def gradients(weights: list[float], step: int, rank: int, world: int) -> Vectors:
    """Of this rank's share of the step's samples; the last number of each is its loss."""
    found: Vectors = {}
    for number in range(rank, SAMPLES, world):
        gradient = [w * 0.1 + x for w, x in zip(weights, sample(step, number), strict=True)]
        found[number] = [*gradient[:-1], sum(gradient)]
    return found


def updated(weights: list[float], total: list[float]) -> list[float]:
    return [*(w - 0.01 * g for w, g in zip(weights[:-1], total[:-1], strict=True)), 0.0]


def expected(steps: int) -> dict[int, float]:
    """Step → loss of an undisturbed run, computed in this process."""
    weights, losses = [0.0] * WIDTH, {}
    for step in range(1, steps + 1):
        total = added(gradients(weights, step, 0, 1))
        weights, losses[step] = updated(weights, total), total[-1]
    return losses


class Checkpoints:
    """Rank 0's: sealed directories, of which the newest that verifies wins."""

    def __init__(self, root: Path, work: Workload) -> None:
        self.root, self.work = root, work

    def save(self, step: int, weights: list[float]) -> None:
        began = time.monotonic()
        aside = self.root / f".saving-{step}"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        faults.at_point("checkpoint.write")
        (aside / "weights.json").write_text(json.dumps(weights))
        artifact.seal(aside, "checkpoint", {"step": step})
        faults.at_point("checkpoint.commit")
        final = self.root / f"iter_{step:07d}"
        if final.exists():
            shutil.rmtree(final)
        os.rename(aside, final)
        seconds = time.monotonic() - began
        self.work.event("checkpoint.committed", step=step, path=str(final), bytes=1, seconds=seconds)
        for _, path in self.found()[3:]:
            shutil.rmtree(path)

    def found(self) -> list[tuple[int, Path]]:
        if not self.root.is_dir():
            return []
        names = ((re.fullmatch(r"iter_(\d+)", path.name), path) for path in self.root.iterdir())
        return sorted(((int(match[1]), path) for match, path in names if match), reverse=True)

    def newest(self) -> tuple[int, list[float]]:
        for step, path in self.found():
            problems = artifact.faults(path, kind="checkpoint")
            if not problems:
                return step, json.loads((path / "weights.json").read_text())
            os.rename(path, path.with_name(f"{path.name}.corrupt-{time.time_ns()}"))
            self.work.event("checkpoint.quarantined", path=str(path), reason=problems[0])
        return 0, [0.0] * WIDTH


def train(args: argparse.Namespace, work: Workload, group: Group) -> int:
    rank = group.rank
    checkpoints = Checkpoints(args.stage_dir / "checkpoints", work)
    with work.section("load"):
        # Rank 0 looks, everybody gets its answer.
        step, weights = checkpoints.newest() if rank == 0 else (0, [])
        step = int(group.sum({0: [float(step), *[0.0] * (WIDTH - 1)]} if rank == 0 else {})[0])
        weights = group.sum({0: weights} if rank == 0 else {})
    attempt = re.sub(r"[^A-Za-z0-9_.-]+", "-", work.attempt or "by-hand")
    log: Any = contextlib.nullcontext()
    if rank == 0:
        work.event("workload.resumed", step=step, checkpoint=str(args.stage_dir))
        (args.stage_dir / "metrics").mkdir(exist_ok=True)
        log = (args.stage_dir / "metrics" / f"train-{attempt}.jsonl").open("a", buffering=1)
    print(f"rank {rank} of {group.world}: from step {step}", flush=True)
    with log:
        while step < args.steps:
            faults.at_step(step + 1, rank)
            time.sleep(args.step_s)
            mine = gradients(weights, step + 1, rank, group.world)
            for vector in mine.values():
                vector[-1] = faults.loss(vector[-1])
            with work.collective():
                total = group.sum(mine)
                stop = group.sum({rank: [float(work.should_stop()), *[0.0] * (WIDTH - 1)]})[0] > 0
            loss = total[-1]
            if loss != loss:
                work.error("numeric", f"the loss is {loss} at step {step + 1}", "look at the samples")
                return exitcodes.RESULT_REJECTED
            weights = updated(weights, total)
            step += 1
            work.report(step=step, loss=loss, section="step")
            if rank == 0:
                log.write(json.dumps({"step": step, "loss": loss, "time": round(time.time(), 3)}) + "\n")
            last = step == args.steps
            if rank == 0 and (step % args.every == 0 or last or stop):
                with work.section("checkpoint"):
                    checkpoints.save(step, weights)
            if stop and not last:
                group.sum({})  # nobody leaves before rank 0 has saved
                return exitcodes.PROGRESS_MADE
    group.sum({})
    return exitcodes.COMPLETE


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--step-s", type=float, default=0.05)
    parser.add_argument("--stage-dir", type=Path, required=True)
    args = parser.parse_args()
    # Slurm's TERM goes to every process of a step; what counts here is the stop file, a step later.
    signal.signal(signal.SIGTERM, lambda *_: None)
    work = Workload.from_env()
    group = Group(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))
    try:
        code = train(args, work, group)
    except OSError as error:
        # A plain command has no shim that would tell what it died of.
        category = "storage_full" if error.errno == 28 else "comm_timeout"
        if not isinstance(error, ConnectionError):
            work.error(category, str(error))
        raise
    except MemoryError as error:
        work.error("host_oom", str(error))
        raise
    work.close()
    if code == exitcodes.COMPLETE and group.rank == 0:
        final = contract.RunPaths(Path(os.environ["TRAINMASTER_RUN_DIR"])).artifact(
            os.environ["TRAINMASTER_STAGE"]
        )
        final.mkdir(exist_ok=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
