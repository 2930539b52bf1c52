"""Which checks run when, that documentation names them all, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from launch.preflight import CheckPlace, Settings, host, run_checks
from launch.preflight.checks import PROBES
from resiliency.health import Status
from resiliency.taxonomy import CATEGORIES

ROOT = Path(__file__).resolve().parents[3]


def names(place: CheckPlace, quick: bool = False, **settings: object) -> list[str]:
    health = run_checks(Settings.read({"timeout": 30, **settings}), place, quick=quick)
    return [check.name for check in health.checks]


@pytest.fixture
def place(tmp_path: Path) -> CheckPlace:
    return CheckPlace("n1", tmp_path, tmp_path)


def test_without_gpus_nothing_is_said_of_gpus(place: CheckPlace) -> None:
    found = names(place)
    assert not [name for name in found if name.startswith(("gpu", "dcgm"))]
    assert {"shm", "memory", "local_storage", "shared_storage", "clock"} <= set(found)


def test_with_gpus_asked_for_something_is(tmp_path: Path) -> None:
    assert "gpu_count" in names(CheckPlace("n1", tmp_path, tmp_path, 1), quick=True)


def test_restarts_touch_nothing_that_may_hang_for_long(place: CheckPlace) -> None:
    quick = names(place, quick=True)
    assert "shared_storage" not in quick and {"shm", "memory", "local_storage"} <= set(quick)


def test_checks_are_left_out_by_name(place: CheckPlace) -> None:
    found = names(place, skip=["shm", "clock", "nonsense"])
    assert "shm" not in found and "clock" not in found and "memory" in found


def test_a_breaking_check_fails_no_node(place: CheckPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "MEMINFO", Path("/nonexistent"))
    health = run_checks(Settings(), place)
    broken = next(check for check in health.checks if check.name == "memory")
    assert broken.status is Status.UNKNOWN and not health.failed


def test_what_is_not_there_fails(tmp_path: Path) -> None:
    assert run_checks(Settings(), CheckPlace("n1", tmp_path / "unmounted", tmp_path)).failed


def test_names_are_unique() -> None:
    every = [name for probe in PROBES for name in probe.names]
    assert len(every) == len(set(every))


def test_documentation_and_code_name_the_same_checks() -> None:
    lines = (ROOT / "docs" / "preflight.md").read_text().splitlines()
    rows = [line.split("|")[1].strip().strip("`") for line in lines if line.startswith("| `")]
    assert rows == [name for probe in PROBES for name in probe.names]
    quick = {
        line.split("|")[1].strip().strip("`")
        for line in lines
        if line.startswith("| `") and "| yes |" in line
    }
    assert quick == {name for probe in PROBES if probe.quick for name in probe.names}


def test_documented_categories_exist_and_are_node_faults() -> None:
    text = (ROOT / "docs" / "preflight.md").read_text()
    sources = "".join(path.read_text() for path in (ROOT / "launch" / "preflight").glob("*.py"))
    used = {name for name, row in CATEGORIES.items() if f'category="{name}"' in sources}
    assert used and all(CATEGORIES[name].node_fault for name in used)
    assert all(f"`{name}`" in text for name in used)


def test_importing_it_brings_nothing_heavy() -> None:
    code = (
        "import sys, launch.preflight; "
        "print([m for m in ('torch','pynvml','numpy','pydantic','rich') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
