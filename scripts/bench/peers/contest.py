"""One run of one contestant with one fault, on a dev cluster; its row.

The clock is the work's own diary: from the harm to the first step past the highest one done before it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .contestants import CONTESTANTS, OURS, ROOT, Setting

STEPS, EVERY, STEP_S, HARM_AT = 120, 20, 0.2, 30
#: With a limit of a minute, steps long enough that the work does not fit.
LIMIT_STEP_S = 0.8
INSIDE = ("raise", "kill", "hang", "stop")
FROM_OUTSIDE = ("crash", "crash-spare", "crash-host", "preempt")
FAULTS = ("none", *INSIDE, *FROM_OUTSIDE, "limit")
#: Minutes. Where only the limit ends a hang, it must not take an hour.
_MINUTES = {"hang": 2, "stop": 2, "limit": 1}
_CAP_S = 300.0
_QUIET_S = 130.0
_DEV_CLUSTER = ROOT / "scripts" / "dev-cluster"


@dataclass
class Row:
    """``end``: done, jobs ended, stalled or cap. Seconds; None: did not come to it. ``wall_s``: from
    submission to the last step."""

    fault: str
    peer: str
    number: int
    end: str = ""
    first_step_s: float | None = None
    wall_s: float | None = None
    recovery_s: float | None = None
    lost: int | None = None
    losses_agree: bool = True
    starts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def recovered(self) -> bool:
        return self.end == "done" and self.recovery_s is not None


def run(fault: str, peer: str, number: int, folder: Path, state_dir: Path) -> Row:
    """Submit, harm, wait, clean up; nothing of it is left in the queue."""
    name = f"{peer.replace('_', '')}-{fault}-{number}"
    here = folder / name
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    step_s = LIMIT_STEP_S if fault == "limit" else STEP_S
    env = {
        "WORK_DIR": str(here),
        "WORK_STEPS": str(STEPS),
        "WORK_EVERY": str(EVERY),
        "WORK_STEP_S": str(step_s),
        "WORK_HARM": fault if fault in INSIDE else "none",
        "WORK_HARM_AT": str(HARM_AT),
    }
    setting = Setting(here, name, _MINUTES.get(fault, 5), env, fault)
    row = Row(fault, peer, number)
    began = time.time()
    outside = _Outside(fault, name, here, state_dir)
    try:
        CONTESTANTS[peer](setting)
        row.end = _wait(setting, outside)
    finally:
        _clean(setting, peer)
        outside.undo()
    _measure(row, here, began, outside.at)
    (here / "row.json").write_text(json.dumps(asdict(row), indent=1))
    return row


def _slurm(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def _jobs(name: str) -> list[list[str]]:
    """[id, state, nodes] of the run's jobs; ours carry the run's name within a token."""
    lines = _slurm("squeue", "-h", "-o", "%i|%T|%N|%j").splitlines()
    rows = [line.split("|") for line in lines]
    return [row[:3] for row in rows if row[3] == name or row[3].startswith(f"{name}-")]


def diary(folder: Path) -> list[dict[str, Any]]:
    """All ranks' lines, in the order of time; half ones are not there yet."""
    found = []
    for path in folder.glob("rank*.jsonl"):
        for line in path.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return sorted(found, key=lambda entry: entry["time"])


class _Outside:
    """Harm that comes from outside, once step HARM_AT is done."""

    def __init__(self, fault: str, name: str, folder: Path, state_dir: Path) -> None:
        self.fault, self.name, self.folder, self.state_dir = fault, name, folder, state_dir
        self.at: float | None = None
        self.node = ""
        self.job = ""

    def look(self) -> None:
        if self.at is not None or self.fault not in FROM_OUTSIDE:
            return
        steps = [entry for entry in diary(self.folder) if entry["what"] == "step"]
        if max((entry["step"] for entry in steps), default=0) < HARM_AT:
            return
        running = next((job for job in _jobs(self.name) if job[1] == "RUNNING"), None)
        if running is None:
            return
        host = _slurm("scontrol", "show", "hostnames", running[2]).split()[0]
        nodes = list(dict.fromkeys(entry["node"] for entry in reversed(steps[-8:])))
        others = [node for node in nodes if node != host]
        self.node = host if self.fault == "crash-host" else others[0]
        self.at = time.time()
        if self.fault == "preempt":
            wanted = ["-p", "high", "-w", self.node, "--exclusive", "-t", "1", "-o", "/dev/null"]
            self.job = _slurm("sbatch", "--parsable", "-J", "intruder", *wanted, "--wrap", "sleep 20").strip()
        else:
            self._verb("kill-node", self.node)

    def undo(self) -> None:
        if self.job:
            _slurm("scancel", self.job)
        elif self.node:
            self._verb("start-node", self.node)

    def _verb(self, *argv: str) -> None:
        words = [sys.executable, str(_DEV_CLUSTER), *argv, "--dir", str(self.state_dir)]
        subprocess.run(words, capture_output=True, check=True)


def _wait(setting: Setting, outside: _Outside) -> str:
    """How it ended."""
    began, gone = time.time(), 0
    look_at = 0.0
    while True:
        time.sleep(0.1)
        now = time.time()
        if (setting.folder / "done").exists():
            return "done"
        if now - began > _CAP_S:
            return "cap"
        outside.look()
        if now - look_at < 0.5:
            continue
        look_at = now
        gone = 0 if _jobs(setting.name) else gone + 1
        if gone > 6:
            return "jobs ended"
        written = [path.stat().st_mtime for path in setting.folder.glob("rank*.jsonl")]
        if now - max(written, default=began) > _QUIET_S:
            return "stalled"


def _clean(setting: Setting, peer: str) -> None:
    """A moment to leave by themselves, then by force; and no job of it in the queue any more."""
    end = time.monotonic() + 8.0
    while time.monotonic() < end and any(job[1] == "RUNNING" for job in _jobs(setting.name)):
        time.sleep(0.3)
    end = time.monotonic() + 40.0
    while time.monotonic() < end and (left := _jobs(setting.name)):
        _slurm("scancel", *(job[0] for job in left))
        time.sleep(0.5)
    if peer == OURS:
        log = setting.folder / "status.txt"
        env = {**os.environ, "TRAINMASTER_HOME": str(setting.folder / "home"), "PYTHONPATH": str(ROOT)}
        argv = [sys.executable, "-m", "orchestrator", "status"]
        with log.open("w") as file:
            subprocess.run(argv, env=env, stdout=file, stderr=subprocess.STDOUT, check=False)


def _measure(row: Row, folder: Path, began: float, harmed_at: float | None) -> None:
    entries = diary(folder)
    steps = [entry for entry in entries if entry["what"] == "step"]
    row.starts = [entry for entry in entries if entry["what"] == "start"]
    if steps:
        row.first_step_s = round(steps[0]["time"] - began, 2)
    if row.end == "done":
        row.wall_s = round(max(entry["time"] for entry in steps) - began, 2)
    losses: dict[tuple[int, int], set[float]] = {}
    for entry in steps:
        losses.setdefault((entry["rank"], entry["step"]), set()).add(entry["loss"])
    row.losses_agree = all(len(seen) == 1 for seen in losses.values())
    resumed = [entry for entry in entries if entry["what"] == "resume"]
    if (folder / "harmed").exists():
        harmed_at = json.loads((folder / "harmed").read_text())["time"]
    if row.fault == "limit" and steps:
        again = [entry["time"] for entry in resumed if entry["step"] > 0]
        harmed_at = max(e["time"] for e in steps if not again or e["time"] < again[0])
    if harmed_at is None:
        return
    back = [entry for entry in resumed if entry["time"] > harmed_at]
    if not back:
        return
    # A rank that is well may finish a step after another one was harmed.
    highest = max((e["step"] for e in steps if e["time"] < back[0]["time"]), default=0)
    new = [e["time"] for e in steps if e["step"] > highest and e["time"] > back[0]["time"]]
    if new:
        row.recovery_s = round(min(new) - harmed_at, 2)
        row.lost = highest - back[0]["step"]
