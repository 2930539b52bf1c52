"""``python -m launch.preflight`` as a person or a prolog runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from launch.preflight.__main__ import main
from resiliency.health import NodeHealth

ROOT = Path(__file__).resolve().parents[3]


def program(tmp_path: Path, code: int) -> str:
    path = tmp_path / "bad.sh"
    path.write_text(f"#!/bin/sh\necho fan 3 stands still\nexit {code}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 0), (2, 2), (9, 0)])
def test_only_a_failed_check_is_an_error(tmp_path: Path, code: int, expected: int) -> None:
    words = ["--site", program(tmp_path, code), "--dir", str(tmp_path), "--timeout", "60"]
    ran = subprocess.run(
        [sys.executable, "-m", "launch.preflight", *words], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == expected, ran.stderr
    assert "site:bad.sh" in ran.stdout and "fan 3 stands still" in ran.stdout
    assert "shared_storage" in ran.stdout


def test_json_is_the_health_as_others_read_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "--quick", "--dir", str(tmp_path), "--skip", "shm"]) == 0
    health = NodeHealth.from_data(json.loads(capsys.readouterr().out))
    assert "memory" in {check.name for check in health.checks}
    assert not {"shm", "shared_storage"} & {check.name for check in health.checks}


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "example:\n  srun" in capsys.readouterr().out
