"""Written and read back: real directories, and the errors of broken ones."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from launch.preflight import CheckPlace
from launch.preflight.writing import Wrote, judge_write, local_storage, shared_storage, write_and_read
from resiliency.health import Status


@pytest.mark.parametrize("sync", [True, False])
def test_a_good_directory_is_left_as_it_was(tmp_path: Path, sync: bool) -> None:
    assert write_and_read(tmp_path, 100_001, sync=sync).ok
    assert not list(tmp_path.iterdir())


def test_both_directories_of_a_place(tmp_path: Path) -> None:
    for probe in (local_storage, shared_storage):
        (found,) = probe(CheckPlace("n", tmp_path, tmp_path), 0.0)
        assert found.status is Status.OK and str(tmp_path) in found.detail
        (missing,) = probe(CheckPlace("n", tmp_path / "no", tmp_path / "no"), 0.0)
        assert missing.status is Status.CRITICAL and "is not there" in missing.detail


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS])
def test_a_broken_disk_is_the_nodes_if_it_is_the_nodes_own(error: int) -> None:
    assert judge_write("x", Wrote(error), "/tmp", provable=True).status is Status.CRITICAL
    assert judge_write("x", Wrote(error), "/tmp", provable=False).status is Status.WARN


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.ESTALE])
def test_a_full_or_foreign_disk_is_never_the_nodes_fault(error: int) -> None:
    for provable in (True, False):
        assert judge_write("x", Wrote(error), "/tmp", provable=provable).status is Status.WARN


def test_data_that_changed_and_slow_storage() -> None:
    assert judge_write("x", Wrote(same=False), "/d", provable=True).status is Status.CRITICAL
    assert judge_write("x", Wrote(same=False), "/d", provable=False).status is Status.WARN
    assert judge_write("x", Wrote(seconds=20), "/d", provable=True).status is Status.WARN
