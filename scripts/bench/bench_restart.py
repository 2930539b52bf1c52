"""From "start the ranks" to their first step, cold and from a warm server, in turns in one run.

The stage's own start: NVRx's launcher (torchrun where there is none), two ranks, gloo, a tiny model; on one
node, and with a launcher on each of two emulated ones. Said by phase: launcher and rendezvous (until a
rank's program begins), Python and imports, process groups, the rest (model, data, first step).
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from figures import Figure, report  # noqa: E402

from launch import processes, rank, warm  # noqa: E402
from launch.config import StageConfig, read_stage_config  # noqa: E402
from launch.rendezvous import free_port  # noqa: E402
from launch.roles import Place, build, role_environment, warm_environment, warm_modules  # noqa: E402

ROUNDS = 3
#: A restart, fault to first new step, may take half of what the launchers take (6.6 to 8.6 s on 2 cores).
AIM = 0.5
PHASES = ("launcher", "python", "imports", "groups", "rest")


@dataclass
class Start:
    """One start. ``private``: bytes that a rank at its first step shares with nobody."""

    first_step: float = 0.0
    private: int = 0
    phases: dict[str, float] = field(default_factory=dict)


def dataset(directory: Path) -> Path:
    """The artifact of a small text stage."""
    spec = {"kind": "text", "vocab_size": 320, "max_bytes": 300_000}
    config = directory / "stage.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"stage": spec, "stage_dir": str(directory), "inputs": {}}))
    argv = [sys.executable, "-m", "models.prepare_text", "--config", str(config)]
    subprocess.run(argv, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return directory / "artifact"


def stage(directory: Path, data: Path, nodes: int) -> StageConfig:
    spec = {
        "kind": "pretrain",
        "model": {"preset": "tiny"},
        "train": {"steps": 2, "global_batch_size": 2, "micro_batch_size": 1, "seq_length": 64, "threads": 1,
                  "precision": "fp32", "log_interval": 1},
        "checkpoint": {"interval": 1000, "keep": 2},
    }  # fmt: skip
    launch = {
        "nodes": nodes, "ranks_per_node": 2 // nodes, "program": ["-m", "scripts.bench.restart_rank"],
        "python": sys.executable, "warm": ["models.warm"], "workdir": str(ROOT),
    }  # fmt: skip
    content = {
        "run": "bench", "name": "pretrain", "kind": "pretrain", "cluster": "local", "scheduler": "local",
        "stage": spec, "stage_dir": str(directory), "artifact_dir": str(directory / "artifact"),
        "inputs": {"text": str(data)}, "artifact_kind": "checkpoint", "budgets": {}, "launch": launch,
    }  # fmt: skip
    directory.mkdir(parents=True)
    path = directory / "stage.json"
    path.write_text(json.dumps(content))
    return read_stage_config(path)


def private_bytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Private_"))


def start(config: StageConfig, env: Mapping[str, str], cycle: int, scratch: Path) -> Start:
    """Start the ranks of all nodes, wait for their first step and let them finish."""
    for name in ("artifact", "checkpoints", "data-cache"):
        shutil.rmtree(config.stage_dir / name, ignore_errors=True)
    nodes = config.launch.nodes
    records = scratch / f"cycle-{cycle}"
    env = {**env, "TRAINMASTER_CYCLE": str(cycle), rank.ENV_DIR: str(records)}
    port = free_port(f"bench#{cycle}")
    read, write = os.pipe()
    began, began_mono = time.time(), time.monotonic()
    launchers = []
    for index in range(nodes):
        local = records / str(index)
        local.mkdir(parents=True)
        place = Place(f"n{index}", index, nodes, "127.0.0.1", port)
        for one in build(config, place, env, run_dir=scratch, link=1, local_dir=local):
            launchers.append(
                subprocess.Popen(
                    list(one.argv), env=dict(one.env), cwd=ROOT, start_new_session=True,
                    stdin=subprocess.DEVNULL, stdout=write, stderr=write,
                    preexec_fn=processes.child_hook(ignore=one.ignore),
                )
            )  # fmt: skip
    os.close(write)
    found, said = Start(), []
    with open(read, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            said.append(line)
            if "iteration        1/" in line:
                found.first_step = time.monotonic() - began_mono
                pids = [json.loads(path.read_text())["pid"] for path in records.glob("*.start")]
                found.private = max(private_bytes(pid) for pid in pids)
            elif line.startswith("PHASES ") and (told := json.loads(line.partition(" ")[2])).pop("rank") == 0:
                found.phases = told
    if any(launcher.wait() for launcher in launchers) or not found.first_step:
        raise SystemExit("the measured start failed:\n" + "".join(said))
    program = json.loads((records / f"0.{cycle}.start").read_text())["at"] - began
    # What ran before the record belongs to the launcher's phase, also for a rank started cold.
    found.phases["launcher"] = program
    known = sum(found.phases.get(name, 0.0) for name in PHASES)
    found.phases["rest"] = max(0.0, found.first_step - known)
    return found


def measure(nodes: int, scratch: Path, data: Path) -> None:
    config = stage(scratch / f"nodes-{nodes}", data, nodes)
    base = {name: value for name, value in os.environ.items() if not name.startswith("TRAINMASTER_")}
    cold_env = role_environment(config, base, {"TRAINMASTER_ATTEMPT": "local/1.0"})
    socket = scratch / f"warm-{nodes}.sock"
    began = time.monotonic()
    server = warm.start(
        sys.executable, socket, warm_modules(config), warm_environment(config, base), str(ROOT)
    )
    try:
        if not warm.wait_ready(socket, 120, server):
            raise SystemExit("the warm server did not come up")
        ready = time.monotonic() - began
        warm_env = {**cold_env, "TRAINMASTER_WARM": str(socket)}
        scratch = scratch / f"cycles-{nodes}"
        start(config, cold_env, 0, scratch)  # byte code and disk cache
        runs: dict[str, list[Start]] = {"cold": [], "warm": []}
        for number in range(ROUNDS):
            runs["cold"].append(start(config, cold_env, 10 + number, scratch))
            runs["warm"].append(start(config, warm_env, 20 + number, scratch))
    finally:
        server.kill()
        server.wait()
        processes.kill_descendants()
    where = f"{nodes} node{'s' * (nodes > 1)}"
    print(f"{where}, 2 ranks: the server is ready after {ready:.1f} s; medians of {ROUNDS}, seconds")
    print("        first step   " + "".join(f"{name:>10}" for name in PHASES) + "   private MB a rank")
    medians = {}
    for kind, starts in runs.items():
        medians[kind] = statistics.median(one.first_step for one in starts)
        phases = [statistics.median(one.phases.get(name, 0.0) for one in starts) for name in PHASES]
        private = statistics.median(one.private for one in starts) / 1e6
        print(
            f"  {kind}  {medians[kind]:10.2f}   " + "".join(f"{p:10.2f}" for p in phases) + f"{private:12.0f}"
        )
    report(Figure(f"first step after a warm start, {where}", medians["warm"], "s"))
    report(Figure(f"warm against cold start, {where}", medians["warm"] / medians["cold"], "x", AIM))


def main() -> None:
    processes.become_subreaper()
    with tempfile.TemporaryDirectory() as directory:
        data = dataset(Path(directory) / "text")
        for nodes in (1, 2):
            measure(nodes, Path(directory), data)


if __name__ == "__main__":
    main()
