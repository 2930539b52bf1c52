"""Node-local directories do not pile up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from launch import localdir

HOLD = """
import sys, time
from pathlib import Path
from launch import localdir
localdir.parent = lambda: Path(sys.argv[1])
with localdir.local_directory("c/1.0", "n1") as path:
    print(path, flush=True)
    time.sleep(600)
"""


def test_what_a_killed_agent_left_is_removed_and_a_living_one_s_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(localdir, "parent", lambda: tmp_path)
    (tmp_path / "trainmaster-other").mkdir()  # not an agent's
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as agent:
        assert agent.stdout is not None
        theirs = Path(agent.stdout.readline().strip())
        with localdir.local_directory("c/2.0", "n1") as mine:
            assert mine.is_dir() and theirs.is_dir()
        assert not mine.exists()
        agent.kill()
        agent.wait()
    localdir.sweep()
    assert [path.name for path in tmp_path.iterdir()] == ["trainmaster-other"]
