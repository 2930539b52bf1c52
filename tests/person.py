"""Drives the command line as a person would, and waits for what should happen."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
COUNTER = ROOT / "tests" / "workloads" / "counter.py"


class Person:
    """A user at a shell, with a home of their own on a shared directory."""

    def __init__(self, workdir: Path, env: dict[str, str], cluster: str, **profiles: dict[str, Any]) -> None:
        self.workdir = workdir
        self.cluster = cluster
        self.home = workdir / "home"
        self.home.mkdir(exist_ok=True)
        self.env = {**env, "TRAINMASTER_HOME": str(self.home), "PYTHONPATH": str(ROOT)}
        self.profiles(profiles)

    def profiles(self, profiles: dict[str, dict[str, Any]]) -> None:
        (self.home / "clusters.yaml").write_text(yaml.safe_dump(profiles))

    def run(
        self,
        *argv: str,
        check: bool = True,
        timeout_s: float = 180,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """``python -m orchestrator ARGV``."""
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", *argv],
            cwd=self.workdir,
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if check and done.returncode:
            raise AssertionError(f"{argv}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def write(self, experiment: dict[str, Any]) -> Path:
        path = self.workdir / f"{experiment['name']}.yaml"
        path.write_text(yaml.safe_dump(experiment, sort_keys=False))
        return path

    def submit(self, experiment: dict[str, Any], *extra: str) -> str:
        """Submit and return the run id."""
        done = self.run("submit", str(self.write(experiment)), "--cluster", self.cluster, "--json", *extra)
        return str(json.loads(done.stdout)["run"])

    def status(self, run: str) -> dict[str, Any]:
        """``status --json``, which reconciles first."""
        return dict(json.loads(self.run("status", run, "--json").stdout))

    def until(
        self,
        run: str,
        happened: Callable[[dict[str, Any]], Any],
        *,
        timeout_s: float = 120,
        pause_s: float = 1.0,
    ) -> dict[str, Any]:
        """Reconcile until ``happened(status)``; the status then. Fails with the whole story."""
        end = time.monotonic() + timeout_s
        while True:
            seen = self.status(run)
            if happened(seen):
                return seen
            if time.monotonic() > end:
                raise AssertionError(
                    f"not within {timeout_s} s:\n{json.dumps(seen, indent=1)}\n{self.story(run)}"
                )
            time.sleep(pause_s)

    def finish(self, run: str, *, timeout_s: float = 180) -> dict[str, Any]:
        """Reconcile until the run is over and the scheduler has said the last word on its jobs."""

        def over(status: dict[str, Any]) -> bool:
            states = [a["state"] for s in status["stages"] for a in s["attempts"]]
            return status["status"] in ("complete", "stopped", "cancelled") and not (
                {"PENDING", "RUNNING", "COMPLETING", "UNKNOWN"} & set(states)
            )

        return self.until(run, over, timeout_s=timeout_s)

    def story(self, run: str) -> str:
        return self.run("logs", run, "-n", "30", check=False).stdout[-6000:]


def counter(
    name: str = "count",
    *,
    steps: int = 40,
    nodes: int = 1,
    time_limit: str = "00:05:00",
    args: tuple[str, ...] = (),
    **stage: Any,
) -> dict[str, Any]:
    """An experiment of one counting stage."""
    command = [
        sys.executable,
        str(COUNTER),
        "--steps",
        str(steps),
        "--state",
        "{stage_dir}/state",
        *args,
    ]
    return {
        "name": name,
        "stages": {
            "count": {
                "kind": "command",
                "run": command,
                "env": {"PYTHONPATH": str(ROOT)},
                "resources": {"nodes": nodes, "time": time_limit, "mem": "200M"},
                "chain": {"startup": "5s", "save_time": "2s", "signal_lead": "10s"},
                **stage,
            }
        },
    }


def stage(status: dict[str, Any], name: str) -> dict[str, Any]:
    """One stage of a status document."""
    return next(s for s in status["stages"] if s["stage"] == name)


def attempts(status: dict[str, Any], name: str = "count") -> list[dict[str, Any]]:
    return list(stage(status, name)["attempts"])
