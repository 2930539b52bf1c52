"""For the whole suite: what needs a real Slurm, what shares it, and one line on what was skipped.

The cluster itself is started and stopped by the fixtures of tests/slurm.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

# Set before torch is imported anywhere: two workers with two threads each only fight for two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# What a user's shell says must not steer a test, and no test may touch a user's own runs.
_KEPT = (
    "TRAINMASTER_DEV_CLUSTER_DIR",
    "TRAINMASTER_REQUIRE_SLURM",
    "TRAINMASTER_CHAOS",
    "TRAINMASTER_CHAOS_SEED",
)
for _name in list(os.environ):
    if _name.startswith(("TRAINMASTER_", "SLURM_", "SBATCH_")) and _name not in _KEPT:
        del os.environ[_name]
_HOME = tempfile.TemporaryDirectory(prefix="trainmaster-home-")
os.environ["TRAINMASTER_HOME"] = _HOME.name

SLURM_TESTS = Path(__file__).parent / "slurm"
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
_NO_SLURM = "needs a real Slurm: "


def why_no_slurm() -> str | None:
    """None if this session can start a Slurm of its own, else the reason and the way out."""
    if os.geteuid() != 0:
        return "not root (`sudo make test` runs them)"
    path = f"{os.environ.get('PATH', '')}:{_SBIN}"
    if not all(shutil.which(name, path=path) for name in ("slurmctld", "slurmd", "sbatch")):
        return "Slurm is not installed (`scripts/dev-cluster install` brings it)"
    return None


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """All tests of the one cluster go to one worker. Without Slurm they are skipped, unless
    TRAINMASTER_REQUIRE_SLURM=1 (CI) says that a missing one is a fault."""
    strict = os.environ.get("TRAINMASTER_REQUIRE_SLURM") == "1"
    reason = None if strict else why_no_slurm()
    for item in items:
        if SLURM_TESTS in item.path.parents:
            item.add_marker(pytest.mark.slurm)
        if item.get_closest_marker("slurm"):
            item.add_marker(pytest.mark.xdist_group("slurm"))
            if reason:
                item.add_marker(pytest.mark.skip(reason=_NO_SLURM + reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line a reason, so that a green run does not hide what it left out."""
    reasons: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        text = text.removeprefix("Skipped: ")
        reasons[text] = reasons.get(text, 0) + 1
    for text, count in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped {count} test{'s' * (count > 1)}: {text}")
