"""Fixtures for tests on a real Slurm: a dev cluster that is healed before every test.

- `slurm_cluster` uses the dev cluster that is up at TRAINMASTER_DEV_CLUSTER_DIR (or its
  default), else brings one up and takes it down at the end; skips where that cannot be. With
  TRAINMASTER_REQUIRE_SLURM=1 (CI) it fails instead of skipping.
- Each test has the cluster to itself (a file lock), so several sessions may share one.
- Before each test, and after the last, `heal` cancels *all* jobs and undoes all faults.

Tests act on the cluster only through `scripts/dev-cluster` and Slurm's own commands.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

DEV_CLUSTER = Path(__file__).resolve().parents[2] / "scripts/dev-cluster"
NOT_POSSIBLE_HERE = {4: "needs root", 5: "Slurm is not installed (scripts/dev-cluster install)"}


def default_state_dir() -> Path:
    given = os.environ.get("TRAINMASTER_DEV_CLUSTER_DIR")
    return Path(given) if given else Path(os.environ.get("TMPDIR") or "/tmp") / "trainmaster-slurm"


@dataclass(frozen=True)
class SlurmCluster:
    """A running dev cluster: faults to inject, and commands as one of its users."""

    state_dir: Path

    def verb(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `scripts/dev-cluster VERB ...` on this cluster."""
        done = subprocess.run(
            [sys.executable, str(DEV_CLUSTER), *argv, "--dir", str(self.state_dir)],
            capture_output=True,
            text=True,
            timeout=300,
            stdin=subprocess.DEVNULL,
        )
        if check and done.returncode:
            shown = f"dev-cluster {' '.join(argv)}: exit code {done.returncode}"
            raise AssertionError(f"{shown}\n{done.stdout}{done.stderr}")
        return done

    def status(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(self.verb("status", "--json", check=False).stdout)
        return record

    def kill_node(self, *nodes: str, daemon_only: bool = False) -> None:
        self.verb("kill-node", *nodes, *(["--daemon-only"] if daemon_only else []))

    def start_node(self, *nodes: str) -> None:
        self.verb("start-node", *nodes)

    def freeze(self, cluster: str = "alpha") -> None:
        self.verb("freeze-controller", cluster)

    def thaw(self, cluster: str = "alpha") -> None:
        self.verb("thaw-controller", cluster)

    def kill_controller(self, cluster: str = "alpha") -> None:
        self.verb("kill-controller", cluster)

    def start_controller(self, cluster: str = "alpha") -> None:
        self.verb("start-controller", cluster)

    def stop_accounting(self) -> None:
        self.verb("stop-accounting")

    def start_accounting(self) -> None:
        self.verb("start-accounting")

    def fail_prolog(self, *nodes: str) -> None:
        self.verb("fail-prolog", *nodes)

    def clear_prolog(self, *nodes: str) -> None:
        self.verb("clear-prolog", *nodes)

    def heal(self) -> None:
        """No jobs, no faults, all nodes idle."""
        self.verb("heal")

    def env(self, cluster: str = "alpha", user: str = "root") -> dict[str, str]:
        """The environment of a login shell of `user` whose Slurm commands talk to `cluster`."""
        return {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "LANG": "C.UTF-8",
            "HOME": str(self.home(user)),
            "USER": user,
            "LOGNAME": user,
            "SHELL": "/bin/bash",
            "SLURM_CONF": str(self.state_dir / "etc" / cluster / "slurm.conf"),
        }

    def home(self, user: str) -> Path:
        return Path("/root") if user == "root" else self.state_dir / "home" / user

    def run_as(
        self,
        user: str,
        argv: Sequence[str | Path],
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        *,
        cluster: str = "alpha",
        check: bool = False,
        timeout_s: float = 120,
        stdin: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as `user` (`env` is added to `self.env`); by default in the user's home."""
        who = pwd.getpwnam(user)
        done = subprocess.run(
            [str(word) for word in argv],
            cwd=cwd or self.home(user),
            env={**self.env(cluster, user), **(env or {})},
            user=who.pw_uid,
            group=who.pw_gid,
            extra_groups=os.getgrouplist(user, who.pw_gid),
            umask=0o022,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if check and done.returncode:
            shown = f"{argv} as {user}: exit code {done.returncode}"
            raise AssertionError(f"{shown}\n{done.stdout}{done.stderr}")
        return done

    def job_state(self, job_id: str | int, cluster: str = "alpha") -> str:
        """As squeue, then sacct, know it: "RUNNING", "COMPLETED" ...; "" when neither does."""
        ask = ["squeue", "--noheader", "--states=all", "-j", str(job_id), "-o", "%T"]
        words = self.run_as("root", ask, cluster=cluster).stdout.split()
        if not words:
            ask = ["sacct", "-n", "-X", "-P", "-j", str(job_id), "-o", "state"]
            words = self.run_as("root", ask, cluster=cluster).stdout.split()
        return words[0] if words else ""

    def wait_for_job(
        self, job_id: str | int, *states: str, timeout_s: float = 60, cluster: str = "alpha"
    ) -> str:
        """Wait until the job is in one of `states`; which one it is."""
        end = time.monotonic() + timeout_s
        while (state := self.job_state(job_id, cluster)) not in states:
            if time.monotonic() > end:
                ask = ["scontrol", "show", "job", str(job_id)]
                known = self.run_as("root", ask, cluster=cluster).stdout
                raise AssertionError(f"job {job_id} is {state!r}, wanted {states}:\n{known}")
            time.sleep(0.2)
        return state


@contextmanager
def _locked(path: Path, mode: int = fcntl.LOCK_EX) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, mode)
        yield descriptor
    finally:
        os.close(descriptor)


def _bring_up(cluster: SlurmCluster) -> bool:
    """True when this session had to start it; skips the tests where there can be no Slurm."""
    strict = os.environ.get("TRAINMASTER_REQUIRE_SLURM") == "1"
    there = '"running"' in cluster.verb("status", "--json", check=False).stdout
    done = cluster.verb("up", check=False)
    reason = NOT_POSSIBLE_HERE.get(done.returncode)
    if reason and not strict:
        pytest.skip(f"no Slurm to test on: {reason}")
    if done.returncode:
        pytest.fail(f"dev-cluster up: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return not there


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[SlurmCluster]:
    """The dev cluster, up. The last of the sessions that share one it started takes it down."""
    cluster = SlurmCluster(default_state_dir())
    fresh = not cluster.state_dir.exists()
    beside = cluster.state_dir.with_name(f"{cluster.state_dir.name}.tests")
    beside.parent.mkdir(parents=True, exist_ok=True)
    marker = cluster.state_dir / "started-by-tests"
    with _locked(beside, fcntl.LOCK_SH) as descriptor:
        if _bring_up(cluster) and not marker.exists():
            marker.write_text("wipe" if fresh else "keep")
        yield cluster
        with _locked(cluster.state_dir / "test.lock"):
            cluster.heal()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another session still uses it, and will see to it
        if marker.exists():
            wipe = marker.read_text() == "wipe"
            marker.unlink()
            cluster.verb("down", *(["--wipe"] if wipe else []))
            beside.unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def _clean_cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test that uses the cluster has it to itself, and finds it with all nodes idle."""
    if "slurm_cluster" not in request.fixturenames:
        yield
        return
    cluster: SlurmCluster = request.getfixturevalue("slurm_cluster")
    with _locked(cluster.state_dir / "test.lock"):
        cluster.heal()
        yield


@pytest.fixture
def slurm_env(slurm_cluster: SlurmCluster) -> dict[str, str]:
    """Environment for commands run by the test's own user (root) against alpha."""
    return slurm_cluster.env("alpha")


@pytest.fixture
def slurm_workdir(slurm_cluster: SlurmCluster, request: pytest.FixtureRequest) -> Path:
    """An empty folder of lab1's that every node and user can reach (tmp_path is root's alone).

    Stays after the test, to look at when it failed; the next run of the same test empties it."""
    name = re.sub(r"\W+", "-", request.node.name).strip("-")[:60]
    path = slurm_cluster.state_dir / "work" / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    shutil.chown(path, "lab1", "lab1")
    return path
