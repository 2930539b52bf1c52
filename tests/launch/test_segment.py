"""The segment from its start to its exit code, with real processes and without a scheduler."""

from __future__ import annotations

import sys

from resiliency import artifact

from .conftest import RunDir


def test_a_command_that_ends_with_0_completes_its_stage(run_dir: RunDir) -> None:
    run_dir.stage(argv=["sh", "-c", "echo hello; echo out > {artifact_dir}/result.txt"])
    assert run_dir.run() == 0
    assert artifact.verifies(run_dir.paths.artifact("work"), kind="command")
    assert run_dir.state().stage("work").status == "complete"
    assert run_dir.one("attempt.finished").data["category"] == "healthy"
    assert "hello" in run_dir.node_log()
