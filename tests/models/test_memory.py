"""Copies in the nodes' memory: a restart goes on from them, exactly, also on a node that has none.

Two ranks as processes, each on a "node" of its own: a name and a directory. Losses are compared as Python
floats read back from the metrics files: every digit counts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from models.copy_file import CopyFile, Damaged, read_facts
from tests.models.programs import MODEL, Pair
from tests.models.test_pretrain import pretrain

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("memory")]


def copies_of(pair: Pair) -> dict[tuple[str, int, int], Path]:
    """(node, owner, step) → file, of those that are whole."""
    found = {}
    for node in pair.nodes:
        for path in sorted((node / "copies").glob("*.*")):
            with contextlib.suppress(Damaged):
                facts = read_facts(path)
                found[node.name, facts["owner"], facts["step"]] = path
    return found


def flip(path: Path) -> None:
    file = CopyFile(path)
    content = file.payload(file.verify())
    content[len(content) // 2] ^= 1
    content.release()
    file.close()


def test_recovery_from_memory(tmp_path: Path, dataset: Path) -> None:
    settings: dict[str, Any] = {
        "parallel": {"distributed_optimizer": True},
        "model": {**MODEL, "hidden_dropout": 0.1},  # random streams matter
        "checkpoint": {"interval": 20, "keep": 3, "local_interval": 3},
    }
    whole = Pair(pretrain(tmp_path / "whole", dataset, {"precision": "bf16"}, **settings), tmp_path / "w")
    assert whole.run("whole")[0] == [0, 0]
    want = whole.program.losses("whole")
    taken = whole.program.told("snapshot.taken")
    assert taken
    assert taken[0]["replicas"] == 2
    assert taken[0]["bytes"] > 2 * 100_000

    program = pretrain(tmp_path / "broken", dataset, {"precision": "bf16"}, **settings)
    pair = Pair(program, tmp_path / "b")
    pair.run_until("first", 29)
    copies = copies_of(pair)
    # Each rank's copy is on its node and on the other one, but those that were under way.
    newest = max(step for node, owner, step in copies if node == "node-a" and owner == 1)
    assert newest > 20
    assert ("node-a", 0, newest) in copies

    # A spare takes the place of node b: it has nothing, all comes from node a.
    shutil.rmtree(pair.nodes[1])
    pair.nodes[1] = pair.nodes[1].with_name("spare")
    said = pair.run_until("second", 36)
    resumed = program.told("workload.resumed")[-1]
    assert (resumed["source"], resumed["step"]) == ("memory", newest)
    assert f"resumed at step {newest} from copies" in said
    assert program.told("checkpoint.quarantined") == []

    # Both copies of one rank's newest state are damaged: the generation before is used, all of it.
    copies = copies_of(pair)
    whole_ones = {s for _, owner, s in copies if owner == 0} & {s for _, owner, s in copies if owner == 1}
    last = max(whole_ones)
    assert last > newest
    for (_, owner, step), path in copies.items():
        if (owner, step) == (1, last):
            flip(path)
    codes, _, error = pair.run("third")
    assert codes == [0, 0], error
    quarantined = program.told("checkpoint.quarantined")
    assert quarantined
    assert all("checksum" in one["reason"] for one in quarantined)
    assert all(Path(one["path"]).exists() for one in quarantined)
    final = program.told("workload.resumed")[-1]
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
