"""What a training run says: Megatron-LM's log line, and every step's figures in a JSON lines file.

The file is written in batches (every ten seconds, at checkpoints and at the end): a shared file
system must not see an append per step. Rank 0 only. Floats keep all their digits.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import time
from pathlib import Path
from typing import Any

from .stage import say

FLUSH_S = 10.0


def metrics_path(directory: Path, attempt: str | None) -> Path:
    """``metrics/train-<attempt>.jsonl`` below the stage's directory."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", attempt or "by-hand")
    return directory / "metrics" / f"train-{name}.jsonl"


class TrainLog:
    """Buffers step records and prints one line each ``log_interval`` steps."""

    def __init__(self, path: Path, steps: int, log_interval: int, global_batch: int) -> None:
        self._path, self._steps = path, steps
        self._interval, self._batch = log_interval, global_batch
        self._pending: list[str] = []
        self._flushed = time.monotonic()
        self._since, self._steps_since = time.monotonic(), 0

    def step(self, record: dict[str, Any]) -> None:
        """``record``: step, loss, lr, grad_norm, consumed_samples, tokens, seconds."""
        self._pending.append(json.dumps(record))
        self._steps_since += 1
        if record["step"] % self._interval == 0 or record["step"] == self._steps:
            self._say(record)
        if time.monotonic() - self._flushed >= FLUSH_S:
            self.flush()

    def _say(self, record: dict[str, Any]) -> None:
        now = time.monotonic()
        per_step_ms = 1000 * (now - self._since) / max(1, self._steps_since)
        self._since, self._steps_since = now, 0
        stamp = datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S.%f")
        say(
            f" [{stamp}] iteration {record['step']:8d}/{self._steps:8d} |"
            f" consumed samples: {record['consumed_samples']:12d} |"
            f" elapsed time per iteration (ms): {per_step_ms:.1f} |"
            f" learning rate: {record['lr']:.6E} |"
            f" global batch size: {self._batch:5d} |"
            f" lm loss: {record['loss']:.6E} |"
            f" grad norm: {record['grad_norm']:.3f} |"
        )

    def pause(self, seconds: float) -> None:
        """Time that belongs to no step (a checkpoint): left out of the time per iteration."""
        self._since += seconds

    def flush(self) -> None:
        """Append what is pending with one write."""
        self._flushed = time.monotonic()
        if not self._pending:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        data = ("\n".join(self._pending) + "\n").encode()
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)
        self._pending.clear()
