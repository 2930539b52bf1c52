"""A person on the dev cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.person import ROOT, Person, attempts, counter, stage

__all__ = ["ROOT", "Person", "SlurmPerson", "attempts", "counter", "environment", "stage"]


class SlurmPerson(Person):
    """Submits to the profile ``alpha``; ``profile`` changes it."""

    def __init__(self, workdir: Path, env: dict[str, str], **profile: Any) -> None:
        base = {
            "scheduler": "slurm",
            "partition": "low",
            "runs_dir": str(workdir / "runs"),
            "settle_s": 3,
            "signal_early_s": 15,
        }
        super().__init__(workdir, env, "alpha", alpha={**base, **profile})

    def jobs_of(self, run: str) -> list[str]:
        """Names (tokens) of all jobs of a run that the queue knows, ended ones included."""
        ask = ["squeue", "-h", "-t", "all", "-o", "%i %j"]
        done = subprocess.run(ask, env=self.env, capture_output=True, text=True, check=True)
        return [line.split()[1] for line in done.stdout.splitlines() if f" {run}." in line]


def environment(cluster_env: dict[str, str]) -> dict[str, str]:
    """The cluster's login environment, plus what Python needs to find its packages."""
    return {
        **cluster_env,
        "PATH": f"{Path(sys.executable).parent}:{cluster_env['PATH']}:{os.environ['PATH']}",
    }
