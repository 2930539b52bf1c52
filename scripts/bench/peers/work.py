"""The work that every contestant does: a very small GPT, data-parallel over gloo, one rank a node.

A step takes WORK_STEP_S seconds (what is left of it is slept), every WORK_EVERY steps torch's distributed
checkpoint is written while the step waits. It goes on from the newest complete checkpoint. Each rank adds a
line to $WORK_DIR/rank<R>.jsonl for its start, its resumption and each step.

Rank 1 comes to harm once, before it trains step WORK_HARM_AT, by WORK_HARM: raise, kill, hang or stop.
Heartbeats: ours where the launcher has made a place for them, NVRx's under its own launcher, else none.
Told to stop by a stop file (only we make one), it saves and ends with 75.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BEGAN = time.time()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

ENV = os.environ
VOCABULARY, WIDTH, LENGTH, BATCH = 384, 64, 48, 2
STOPPED = 75


class TinyGPT(nn.Module):
    """Two causal layers: enough for a checkpoint and an all-reduce, little enough for two cores."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, VOCABULARY)
        self.register_buffer("causal", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out(self.layers(self.words(tokens) + self.places, mask=self.causal))


class Diary:
    """What this rank did and when, a line each, unbuffered."""

    def __init__(self, rank: int) -> None:
        path = Path(ENV["WORK_DIR"], f"rank{rank}.jsonl")
        self.file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", buffering=1)
        self.always = {"rank": rank, "node": ENV.get("SLURMD_NODENAME"), "pid": os.getpid()}

    def __call__(self, what: str, **more: Any) -> None:
        self.file.write(json.dumps({"what": what, "time": time.time(), **self.always, **more}) + "\n")


class Beats:
    """Whoever wants to hear that this rank is alive."""

    def __init__(self) -> None:
        self.ours: Any = None
        self.theirs: Any = None
        if ENV.get("TRAINMASTER_RECORDS"):
            from resiliency.heartbeat import Heartbeat

            self.ours = Heartbeat.from_env()
        elif ENV.get("FT_RANK_MONITOR_IPC_SOCKET"):
            from nvidia_resiliency_ext.fault_tolerance import RankMonitorClient

            self.theirs = RankMonitorClient()
            self.theirs.init_workload_monitoring()

    def begins(self, step: int) -> None:
        if self.theirs is not None:
            self.theirs.send_heartbeat()

    def done(self, step: int) -> None:
        if self.ours is not None:
            self.ours.step(step)

    def collective(self) -> Any:
        return contextlib.nullcontext() if self.ours is None else self.ours.collective()

    def section(self, name: str) -> Any:
        return contextlib.nullcontext() if self.ours is None else self.ours.section(name)

    def end(self) -> None:
        if self.ours is not None:
            self.ours.close()
        if self.theirs is not None:
            self.theirs.shutdown_workload_monitoring()


def newest(folder: Path) -> Path | None:
    """torch writes ``.metadata`` last: without it a checkpoint is half one."""
    whole = [path for path in folder.glob("step-*") if (path / ".metadata").exists()]
    return max(whole, default=None, key=lambda path: path.name)


def harm(step: int, rank: int) -> None:
    """Once over all restarts: the file that says so outlives them."""
    kind, once = ENV.get("WORK_HARM", ""), Path(ENV["WORK_DIR"], "harmed")
    if rank != 1 or kind not in HARM or step < int(ENV["WORK_HARM_AT"]) or once.exists():
        return
    once.write_text(json.dumps({"time": time.time(), "step": step}))
    HARM[kind]()


def _raise() -> None:
    raise RuntimeError("harmed on purpose")


HARM: dict[str, Callable[[], object]] = {
    "raise": _raise,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hang": lambda: time.sleep(1e7),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
}


def main() -> int:
    # Under a bare srun the ranks are Slurm's.
    for name, slurm in (("RANK", "SLURM_PROCID"), ("WORLD_SIZE", "SLURM_NTASKS")):
        ENV.setdefault(name, ENV.get(slurm, ""))
    steps, every = int(ENV["WORK_STEPS"]), int(ENV["WORK_EVERY"])
    step_s, stop_file = float(ENV["WORK_STEP_S"]), ENV.get("TRAINMASTER_STOP_FILE")
    folder = Path(ENV["WORK_DIR"], "checkpoints")
    # Slurm tells every process of a step to end; who listens for it would lose what it has not saved.
    if stop_file:
        signal.signal(signal.SIGTERM, lambda *_: None)
    torch.set_num_threads(1)
    imported = time.time()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    diary, beats = Diary(rank), Beats()
    diary(
        "start", world=world, imports_s=round(imported - BEGAN, 3), group_s=round(time.time() - imported, 3)
    )
    torch.manual_seed(20)
    model = TinyGPT()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, foreach=False)
    replicated = DistributedDataParallel(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()  # its state must be there to be loaded into
    optimizer.zero_grad()

    def state(step: int) -> dict[str, Any]:
        moments = {
            f"{number}.{name}": value
            for number, entry in optimizer.state_dict()["state"].items()
            for name, value in entry.items()
        }
        return {"model": model.state_dict(), "optimizer": moments, "step": torch.tensor(step)}

    step = 0
    if (last := newest(folder)) is not None:
        saved = state(0)
        dcp.load(saved, checkpoint_id=str(last))
        model.load_state_dict(saved["model"])
        whole = optimizer.state_dict()
        for number, entry in whole["state"].items():
            entry.update({name: saved["optimizer"][f"{number}.{name}"] for name in entry})
        optimizer.load_state_dict(whole)
        step = int(saved["step"])
    diary("resume", step=step)
    while step < steps:
        began, step = time.time(), step + 1
        beats.begins(step)
        harm(step, rank)
        dice = torch.Generator().manual_seed(7919 * step + rank)
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), generator=dice)
        logits = replicated(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        with beats.collective():
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(max(0.0, step_s - (time.time() - began)))
        diary("step", step=step, loss=loss.item())
        beats.done(step)
        stop = False
        if stop_file:
            with beats.collective():
                wish = torch.tensor([float(os.path.exists(stop_file))])
                dist.all_reduce(wish)
            stop = bool(wish.item()) and step < steps
        if step % every == 0 or stop:
            with beats.section("checkpoint"):
                dcp.save(state(step), checkpoint_id=str(folder / f"step-{step:06d}"))
        if stop:
            beats.end()
            return STOPPED
    if rank == 0:
        Path(ENV["WORK_DIR"], "done").write_text(str(time.time()))
    beats.end()
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
