"""Copies in the nodes' memory: a restart goes on from them, exactly, also on a node that has none.

Two ranks as processes, each on a "node" of its own: a name and a directory. Losses are compared as Python
floats read back from the metrics files: every digit counts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from models.copy_file import CopyFile, Damaged, read_facts
from tests.models.programs import Program, wait_for
from tests.models.test_pretrain import pretrain

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("memory")]


class Pair:
    """One rank on each of two nodes."""

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
        """Start, and kill both ranks after this step's line in the log."""
        ranks = self.start(attempt)
        said = wait_for(ranks[0], lambda line: f"iteration {step:8d}/" in line)
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, signal.SIGKILL)
        for rank in ranks:
            rank.communicate(timeout=60)
        return said

    def run(self, attempt: str) -> str:
        ranks = self.start(attempt)
        said, error = ranks[0].communicate(timeout=240)
        other = ranks[1].communicate(timeout=60)[1]
        assert [rank.returncode for rank in ranks] == [0, 0], error + other
        return said

    def copies(self) -> dict[tuple[str, int, int], Path]:
        """(node, owner, step) → file, of those that are whole."""
        found = {}
        for node in self.nodes:
            for path in sorted((node / "copies").glob("*.*")):
                with contextlib.suppress(Damaged):
                    facts = read_facts(path)
                    found[node.name, facts["owner"], facts["step"]] = path
        return found


def events(program: Program, kind: str) -> list[dict[str, Any]]:
    return [event["data"] for event in program.events() if event["type"] == kind]


def flip(path: Path) -> None:
    file = CopyFile(path)
    content = file.payload(file.verify())
    content[len(content) // 2] ^= 1
    content.release()
    file.close()


def test_recovery_from_memory(tmp_path: Path, dataset: Path) -> None:
    settings: dict[str, Any] = {
        "parallel": {"distributed_optimizer": True},
        "checkpoint": {"interval": 20, "keep": 3, "local_interval": 3},
    }
    whole = Pair(pretrain(tmp_path / "whole", dataset, {"precision": "bf16"}, **settings), tmp_path / "w")
    whole.run("whole")
    want = whole.program.losses("whole")
    taken = events(whole.program, "snapshot.taken")
    assert taken
    assert taken[0]["replicas"] == 2
    assert taken[0]["bytes"] > 2 * 100_000

    program = pretrain(tmp_path / "broken", dataset, {"precision": "bf16"}, **settings)
    pair = Pair(program, tmp_path / "b")
    pair.run_until("first", 29)
    steps = {step for _, _, step in pair.copies()}
    assert len(steps) in (1, 2)
    # Each rank's copy is on its node and on the other one.
    newest = max(s for s in steps if len([1 for copy in pair.copies() if copy[2] == s]) == 4)
    assert newest > 20

    # A spare takes the place of node b: it has nothing, all comes from node a.
    shutil.rmtree(pair.nodes[1])
    pair.nodes[1] = pair.nodes[1].with_name("spare")
    said = pair.run_until("second", 36)
    resumed = events(program, "workload.resumed")[-1]
    assert (resumed["source"], resumed["step"]) == ("memory", newest)
    assert f"resumed at step {newest} from copies" in said
    assert events(program, "checkpoint.quarantined") == []

    # Both copies of one rank's newest state are damaged: the generation before is used, all of it.
    copies = pair.copies()
    generations = sorted({step for _, _, step in copies if step > newest})
    assert generations
    last = generations[-1]
    for node in pair.nodes:
        flip(copies[node.name, 1, last])
    pair.run("third")
    quarantined = events(program, "checkpoint.quarantined")
    assert quarantined
    assert all("checksum" in one["reason"] for one in quarantined)
    assert all(Path(one["path"]).exists() for one in quarantined)
    final = events(program, "workload.resumed")[-1]
    assert final["step"] < last
    assert final["source"] == ("memory" if final["step"] > 20 else "global")
    third = program.losses("third")
    assert third == {step: want[step] for step in range(final["step"] + 1, 41)}
    assert final["step"] >= 20


def test_without_room_training_goes_on_without_copies(tmp_path: Path, dataset: Path) -> None:
    """A directory of a file system that is nearly full: a small one is made where that is possible."""
    place = tmp_path / "node"
    place.mkdir()
    small = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "true"], capture_output=True, check=False
    )
    if small.returncode != 0:
        pytest.skip("no private mounts here")
    program = pretrain(
        tmp_path / "stage", dataset, {"steps": 5}, checkpoint={"interval": 20, "local_interval": 2}
    )
    command = " ".join(program.command(1))
    # 600 kB: room for one generation, which is more than half of it.
    script = f"mount -t tmpfs -o size=1m tmpfs {place} && exec {command}"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
            "OMP_NUM_THREADS": "1",
            "TRAINMASTER_NODE_DIR": str(place),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("no copies in memory") == 1
    assert "would be more than half" in done.stdout
