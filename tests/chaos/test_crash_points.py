"""Exactly once: a submitter killed with SIGKILL at any durable step leaves one job a link, none lost.

240 seeds walk the crash points one by one, with repeated crashes in between; every tenth seed lets its
jobs run to the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHUNKS = [(first, first + 40) for first in range(1, 241, 40)]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "last"), CHUNKS, ids=lambda value: str(value))
def test_killed_at_any_point_there_is_one_job_a_link_and_none_is_lost(
    tmp_path: Path, first: int, last: int
) -> None:
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "tests/chaos/crash_driver.py"),
            str(tmp_path),
            str(first),
            str(last),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seeds = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(seeds) == last - first
    for seed in seeds:
        story = f"{seed}\n{done.stderr[-3000:]}"
        assert set(seed["final"]) == {0}, story
        assert seed["runs"] == 1, story
        # Two links of the first stage, one queued behind it for the second.
        by_link = {token.split(".", 1)[1]: count for token, count in seed["jobs"].items()}
        if seed["cluster"] == "paused":
            assert by_link == {"one.001": 1, "one.002": 1, "two.001": 1}, story
        else:
            assert max(by_link.values()) == 1, story
            assert seed["statuses"] == ["complete"], story
    crashes = sum(seed["crashes"] for seed in seeds)
    assert crashes >= len(seeds) // 2, f"only {crashes} crashes: the points are not reached"
