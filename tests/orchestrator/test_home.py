"""The home directory: finding runs, remembering roots, markers of what is not finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.home import Home
from resiliency.errors import NotFound, StorageError


def make_run(root: Path, name: str) -> Path:
    path = root / name
    path.mkdir(parents=True)
    (path / "run.json").write_text("{}")
    return path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.at(tmp_path / "home").ensure()


def test_a_run_is_found_by_id_unique_prefix_and_path(home: Home) -> None:
    one = make_run(home.default_runs, "alpha-1")
    make_run(home.default_runs, "beta-1")
    assert home.find_run("alpha-1") == home.find_run("al") == home.find_run(str(one)) == one


def test_a_prefix_of_several_runs_names_them(home: Home) -> None:
    make_run(home.default_runs, "alpha-1")
    make_run(home.default_runs, "alpha-2")
    with pytest.raises(NotFound, match="2 runs: alpha-1, alpha-2"):
        home.find_run("alpha")


def test_an_unknown_run_suggests_the_nearest(home: Home) -> None:
    make_run(home.default_runs, "quickstart-1")
    with pytest.raises(NotFound, match="did you mean quickstart-1"):
        home.find_run("quikstart-1")


def test_roots_are_remembered_once_and_a_torn_line_hides_none(home: Home, tmp_path: Path) -> None:
    home.remember_root(tmp_path / "scratch")
    home.remember_root(tmp_path / "scratch")
    home.roots_file.write_bytes(home.roots_file.read_bytes() + b'{"root": "/torn')
    home.remember_root(tmp_path / "other")
    assert home.run_roots() == [home.default_runs, tmp_path / "scratch", tmp_path / "other"]
    assert home.roots_file.read_text().count("scratch") == 1


def test_a_half_made_run_directory_is_no_run(home: Home) -> None:
    (home.default_runs / "half-1").mkdir(parents=True)
    make_run(home.default_runs, ".building-1")
    assert list(home.run_dirs()) == []


def test_active_markers_come_and_go_and_one_without_a_run_is_skipped(home: Home) -> None:
    run = make_run(home.default_runs, "alpha-1")
    home.mark_active(run)
    home.mark_active(run)
    home.mark_active(home.default_runs / "never-made-1")
    assert home.active_run_dirs() == [run]
    home.mark_finished("alpha-1")
    home.mark_finished("alpha-1")
    assert home.active_run_dirs() == []


def test_a_home_that_cannot_be_made_is_an_error_with_a_next_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="next: ") as caught:
        Home.at(tmp_path / "file" / "home").ensure()
    assert caught.value.exit_code == 5


def test_the_home_is_the_users_alone(home: Home) -> None:
    assert home.root.stat().st_mode & 0o777 == 0o700
