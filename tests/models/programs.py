"""Starting stage programs as processes, and a model small enough for tests.

Torch is patched for CPU inside the programs, so nothing here imports torch: everything that needs it
runs in a process of its own, as it does in production.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

MODEL: dict[str, Any] = {
    "preset": "tiny",
    "num_layers": 2,
    "hidden_size": 32,
    "ffn_hidden_size": 64,
    "num_attention_heads": 4,
    "num_query_groups": 2,
}
TRAIN: dict[str, Any] = {
    "steps": 40,
    "global_batch_size": 4,
    "micro_batch_size": 2,
    "seq_length": 32,
    "lr": 3e-3,
    "warmup_steps": 4,
    "precision": "fp32",
    "log_interval": 1,
    "threads": 1,
}


class Program:
    """A stage program in a stage directory."""

    def __init__(self, name: str, directory: Path, spec: dict[str, Any], inputs: dict[str, Path]):
        self.name, self.directory = name, directory
        directory.mkdir(parents=True, exist_ok=True)
        self.config = directory / "stage.json"
        self.write(spec, inputs)

    def write(self, spec: dict[str, Any], inputs: dict[str, Path]) -> None:
        self.spec, self.inputs = spec, inputs
        content = {
            "stage": spec,
            "stage_dir": str(self.directory),
            "inputs": {name: str(path) for name, path in inputs.items()},
        }
        self.config.write_text(json.dumps(content))

    @property
    def artifact(self) -> Path:
        return self.directory / "artifact"

    def command(self, ranks: int) -> list[str]:
        program = ["-m", f"models.{self.name}", "--config", str(self.config)]
        if ranks == 1:
            return [sys.executable, *program]
        run = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        return [sys.executable, *run, *program]

    def start(self, ranks: int = 1, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(ranks),
            cwd=ROOT,
            env=_environment(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, ranks: int = 1, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(ranks), cwd=ROOT, env=_environment(env), capture_output=True, text=True, timeout=240
        )

    def processes(self) -> list[int]:
        """Process ids that run this stage, launcher first (torchrun gives ranks their own group)."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue  # it ended meanwhile
            if str(self.config).encode() in command:
                found.append(int(entry.name))
        return sorted(found)

    def losses(self, attempt: str) -> dict[int, float]:
        """Step → loss, with all digits, of one attempt."""
        path = self.directory / "metrics" / f"train-{attempt}.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return {row["step"]: row["loss"] for row in rows}

    def events(self) -> list[dict[str, Any]]:
        files = sorted((self.directory / "run" / "journal").glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def told(self, kind: str) -> list[dict[str, Any]]:
        """Data of the events of one type."""
        return [event["data"] for event in self.events() if event["type"] == kind]

    def journal_env(self, attempt: str) -> dict[str, str]:
        """The variables of an allocation, so that the program writes a journal."""
        return {
            "TRAINMASTER_RUN_DIR": str(self.directory / "run"),
            "TRAINMASTER_RUN": "test",
            "TRAINMASTER_STAGE": "stage",
            "TRAINMASTER_ATTEMPT": attempt,
        }


class Faulty(Program):
    """The pretrain program with a fault of ``faulty_pretrain``."""

    def __init__(self, fault: str, directory: Path, spec: dict[str, Any], inputs: dict[str, Path]):
        self.fault = fault
        super().__init__("pretrain", directory, spec, inputs)

    def command(self, ranks: int) -> list[str]:
        assert ranks == 1
        return [
            sys.executable,
            "-m",
            "tests.models.faulty_pretrain",
            self.fault,
            "--config",
            str(self.config),
        ]


class Pair:
    """One rank on each of two "nodes": a name and a directory. Without a launcher."""

    def __init__(self, program: Program, scratch: Path) -> None:
        self.program = program
        self.nodes = [scratch / "node-a", scratch / "node-b"]

    def start(self, attempt: str) -> list[subprocess.Popen[str]]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        ranks = []
        for rank, node in enumerate(self.nodes):
            node.mkdir(parents=True, exist_ok=True)
            place = {
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "1",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "TRAINMASTER_NODE": node.name,
                "TRAINMASTER_NODE_DIR": str(node),
            }
            ranks.append(self.program.start(1, **self.program.journal_env(attempt), **place))
        return ranks

    def run_until(self, attempt: str, step: int) -> str:
        """Start, and kill both ranks after this step's line in the log; that they are gone also shows that
        nothing of theirs is left (the pipe would stay open)."""
        ranks = self.start(attempt)
        said = wait_for(ranks[0], lambda line: f"iteration {step:8d}/" in line)
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, signal.SIGKILL)
        for rank in ranks:
            rank.communicate(timeout=60)
        return said

    def run(self, attempt: str) -> tuple[list[int], str, str]:
        """Exit codes, what rank 0 said, errors of both."""
        ranks = self.start(attempt)
        said, error = ranks[0].communicate(timeout=240)
        other = ranks[1].communicate(timeout=60)[1]
        return [int(rank.returncode) for rank in ranks], said, error + other


def _environment(extra: dict[str, str]) -> dict[str, str]:
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("TRAINMASTER_", "PYTEST_")) and key not in ("RANK", "WORLD_SIZE")
    }
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **extra}


def wait_for(process: subprocess.Popen[str], seen: Callable[[str], bool], seconds: float = 120) -> str:
    """Read output until a line satisfies ``seen``; all that was read. Fails when it never comes."""
    assert process.stdout is not None
    read = []
    deadline = time.monotonic() + seconds
    for line in process.stdout:
        read.append(line)
        if seen(line):
            return "".join(read)
        if time.monotonic() > deadline:
            break
    process.kill()
    raise AssertionError(f"the line never came; output:\n{''.join(read)}\n{process.stderr}")
