"""Attempts on emulated nodes with a site's check: a bad node is replaced, a bad check stops nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..conftest import RunDir
from ..cycling import cycles_of, stage


def site(tmp_path: Path, text: str) -> dict[str, object]:
    program = tmp_path / "site-check"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return {"preflight": {"site": [str(program)], "skip": ["pairwise"]}}


@pytest.mark.parametrize("bad", ["local-0", "local-1"])
def test_a_node_that_fails_its_checks_is_not_trained_on(
    run_dir: RunDir, program: Path, tmp_path: Path, bad: str
) -> None:
    recovery = site(tmp_path, f'[ "$TRAINMASTER_NODE" != {bad} ] || {{ echo fan 3 stands still; exit 2; }}')
    stage(run_dir, program, tmp_path / "out", "none", nodes=2, spare_nodes=1, recovery=recovery)
    assert run_dir.run(nodes="local-0,local-1,local-2") == 0
    (cycle,) = cycles_of(run_dir)
    assert set(cycle["nodes"]) == {"local-0", "local-1", "local-2"} - {bad}
    told = run_dir.one("preflight").data
    assert (told["status"], told["failed"]) == ("CRITICAL", [bad])
    (found,) = [check for check in told["checks"] if check["check"] == "site:site-check"]
    assert found["node"] == bad and "fan 3 stands still" in found["detail"]


def test_a_check_that_is_wrong_itself_stops_nobody(run_dir: RunDir, program: Path, tmp_path: Path) -> None:
    recovery = site(tmp_path, "if then")  # a syntax error, for which shells exit with 2 as well
    stage(run_dir, program, tmp_path / "out", "none", nodes=2, recovery=recovery)
    assert run_dir.run(nodes="local-0,local-1") == 0
    told = run_dir.one("preflight").data
    assert (told["status"], told["failed"]) == ("WARN", [])
    assert all("2 of 2 nodes" in check["detail"] for check in told["checks"])


def test_a_check_that_hangs_is_waited_for_no_longer_than_told(
    run_dir: RunDir, program: Path, tmp_path: Path
) -> None:
    recovery = site(tmp_path, "exec sleep 600")
    recovery["preflight"]["timeout"] = 1  # type: ignore[index]
    stage(run_dir, program, tmp_path / "out", "raise", recovery=recovery)
    assert run_dir.run() == 0
    first, restart = run_dir.events("preflight")
    assert (first.data["status"], first.data["failed"]) == ("UNKNOWN", [])
    assert restart.data["status"] == "OK", "a restart does not ask it again"
