"""``report`` on the command line: its formats, its files, what it refuses."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from metrics.ledger import Ledger
from tests.metrics.accounting.stories import RUN, two_attempts
from tests.metrics.rundirs import lines, write


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose ledger has the run computed by hand."""
    home = tmp_path / "home"
    home.mkdir()
    run_dir = write(home / "runs" / RUN, {"w": lines(two_attempts().events)})
    with Ledger.open(home / "ledger.db") as ledger:
        ledger.ingest_run(run_dir)
    return home


def report(home: Path, *argv: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "report", *argv],
        env={**os.environ, "TRAINMASTER_HOME": str(home)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_a_terminal_gets_figures_waterfall_failures_and_groups(home: Path) -> None:
    text = report(home, "demo", "--by", "attempt").stdout
    assert text.startswith(f"run {RUN}, ")
    for word in ("ettr", "goodput", "recomputing", "gpu_fault", "by attempt", "c1/7.0", "docs/accounting.md"):
        assert word in text, word


def test_json_and_csv_hold_the_same(home: Path, tmp_path: Path) -> None:
    told = json.loads(report(home, "--format", "json").stdout)
    folder = tmp_path / "out" / "new"
    said = report(home, "--format", "csv", "--output", str(folder)).stdout
    assert "failures.csv (1)" in said
    with (folder / "figures.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["name"] for row in rows] == [row["name"] for row in told["figures"]]
    lost = next(row for row in rows if row["name"] == "lost_steps")
    assert lost["value"] == "100.0"


def test_a_markdown_page_goes_to_a_file(home: Path, tmp_path: Path) -> None:
    report(home, "--format", "md", "--output", str(tmp_path / "page.md"))
    assert "## Waterfall" in (tmp_path / "page.md").read_text()


def test_a_window_cuts(home: Path) -> None:
    told = json.loads(report(home, "--since", "1h", "--format", "json").stdout)
    assert told["failures"] == []
    assert all(row["seconds"] == 0 for row in told["waterfall"])


@pytest.mark.parametrize(
    ("argv", "code", "word"),
    [
        (("--by", "colour"), 2, "no dimension"),
        (("--since", "yesterday"), 2, "--since 'yesterday' is no time"),
        (("--since", "1d", "--until", "2d"), 2, "--until is not after --since"),
        (("--format", "csv"), 2, "--output DIRECTORY"),
        (("--output", "x"), 2, "a table is for a terminal"),
        (("nosuchrun",), 7, "nosuchrun"),
        (("--format", "md", "--output", "/proc/nowhere/x"), 5, "cannot write /proc/nowhere/x"),
    ],
)
def test_what_it_cannot_do_is_said(home: Path, argv: tuple[str, ...], code: int, word: str) -> None:
    assert word in report(home, *argv, code=code).stderr


def test_without_a_ledger_the_next_step_is_said(tmp_path: Path) -> None:
    assert "tick makes it" in report(tmp_path / "empty", code=6).stderr


def test_runs_that_an_older_version_read_are_read_again(home: Path) -> None:
    with Ledger.open(home / "ledger.db") as ledger, ledger.writing() as connection:
        connection.execute("UPDATE journal_file SET mtime_ns = -1")
        connection.execute("DELETE FROM interval")
    done = report(home, "--no-refresh", "--format", "json")
    assert json.loads(done.stdout)["waterfall"] == [] and not done.stderr
    done = report(home, "--format", "json")
    assert "reading 1 runs again" in done.stderr
    assert any(row["kind"] == "recomputing" for row in json.loads(done.stdout)["waterfall"])
    assert not report(home).stderr


def test_nodes_are_ranked_with_their_evidence(home: Path) -> None:
    def ranked(*argv: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", "nodes", "rank", *argv],
            env={**os.environ, "TRAINMASTER_HOME": str(home)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done

    told = json.loads(ranked("--since", "1970-01-01T00:00", "--json").stdout)
    assert [(one["node"], one["failures"], one["lemon"]) for one in told["nodes"]] == [
        ("n2", 1, False),  # two nodes are no fleet to be compared with
        ("n1", 0, False),
    ]
    assert told["fleet"]["nodes"] == 2 and told["notes"]
    assert "n2" in ranked("--since", "1970-01-01T00:00").stdout
    assert "no node had work since 90d" in ranked().stdout
    assert "is not past" in ranked("--since", "2999-01-01", code=2).stderr
    ranked("--factor", "1", code=2)


def test_two_runs_side_by_side(home: Path) -> None:
    def compared(*argv: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", "compare", *argv],
            env={**os.environ, "TRAINMASTER_HOME": str(home)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done

    assert "ettr" in compared("demo", RUN).stdout
    told = json.loads(compared("demo", RUN, "--format", "json").stdout)
    assert told["first"].startswith(f"run {RUN}") and all(row["difference"] == 0 for row in told["compare"])
    assert compared("demo", RUN, "-f", "csv").stdout.startswith("what,name,unit,first,second")
    assert "nosuch" in compared("demo", "nosuch", code=7).stderr
