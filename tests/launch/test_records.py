"""What is known of ranks from their records and from the launcher's words."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from launch.children import Started, final_ends
from launch.records import LOST, Records
from launch.roles import Process

from .conftest import until


def write(directory: Path, rank: int, cycle: int, word: str, **data: object) -> None:
    record = {"rank": rank, "cycle": cycle, "pid": os.getpid(), "at": 1.0, **data}
    (directory / f"{rank}.{cycle}.{word}").write_text(json.dumps(record))


def test_a_living_rank_has_no_end(tmp_path: Path) -> None:
    write(tmp_path, 0, 0, "start")
    records = Records(tmp_path, "n")
    assert records.ends() == {}
    assert records.ends(final=True)[0].code == LOST


def test_a_recorded_end(tmp_path: Path) -> None:
    write(tmp_path, 0, 0, "start")
    write(tmp_path, 0, 0, "end", code=17, summary="x", category="")
    end = Records(tmp_path, "n").ends()[0]
    assert (end.code, end.summary, end.node) == (17, "x", "n")


def test_the_end_of_an_earlier_cycle_does_not_count(tmp_path: Path) -> None:
    write(tmp_path, 0, 0, "start")
    write(tmp_path, 0, 0, "end", code=1)
    write(tmp_path, 0, 1, "start")
    assert Records(tmp_path, "n").ends() == {}


def test_only_one_cycle_counts(tmp_path: Path) -> None:
    write(tmp_path, 0, 0, "start")
    write(tmp_path, 0, 0, "end", code=1)
    write(tmp_path, 1, 1, "start", pid=4711)
    assert Records(tmp_path, "n", cycle=0).ends()[0].code == 1
    late = Records(tmp_path, "n", cycle=1)
    assert late.pids() == {1: 4711}
    assert set(late.ends(final=True)) == {1}


def test_the_launchers_word_about_a_shim_is_about_its_rank(tmp_path: Path) -> None:
    write(tmp_path, 0, 0, "start", pid=990001, shim=990000)
    records = Records(tmp_path, "n", watch_pids=False)
    records.line(b"failures={0: ProcessFailure(local_rank=0, pid=990000, exitcode=-9, error_file='<N/A>')}")
    assert records.ends()[0].code == 137


def dead_pid() -> int:
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


def test_a_silent_death_is_noticed_without_the_launcher(tmp_path: Path) -> None:
    write(tmp_path, 0, 0, "start", pid=dead_pid())
    records = Records(tmp_path, "n")
    assert until(records.ends)[0].code == LOST


def test_the_launchers_word_tells_the_signal(tmp_path: Path) -> None:
    for rank, pid in ((0, 990001), (1, 990002)):
        write(tmp_path, rank, 0, "start", pid=pid)
    records = Records(tmp_path, "n", watch_pids=False)
    records.line(b"E1130 api.py:1] failed (exitcode: -11) local_rank: 0 (pid: 990001) of binary: python")
    records.line(b"failures={1: ProcessFailure(local_rank=1, pid=990002, exitcode=3, error_file='<N/A>')}")
    records.line(b"exitcode \xff\xfe: nonsense (exitcode: x) local_rank")
    assert {rank: end.code for rank, end in records.ends().items()} == {0: 139, 1: 3}


def test_torn_records_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "0.0.start").write_text("{")
    (tmp_path / "1.0.start").write_text("[]")
    assert Records(tmp_path, "n").ends(final=True) == {}


def test_a_rank_is_not_given_up_before_its_shim_has_spoken(tmp_path: Path) -> None:
    write(tmp_path, 0, 0, "start", pid=dead_pid(), shim=os.getpid())
    records = Records(tmp_path, "n")
    assert records.ends() == {}
    write(tmp_path, 0, 0, "end", code=139)
    assert records.ends()[0].code == 139


def launched(code: int) -> Started:
    popen = subprocess.Popen(["sh", "-c", f"exit {code}"])
    popen.wait()
    return Started(Process([], {}), popen, ended_at=9.0)


@pytest.mark.parametrize(
    ("ranks", "launcher", "codes"),
    [
        (2, 1, [75, 75]),  # ft_launcher after a TERM, in spite of ranks that saved
        (3, 1, [75, 75, 1]),  # one rank never started
        (3, 0, [75, 75, 1]),
    ],
)
def test_once_all_ranks_have_spoken_their_launcher_is_not_asked(
    tmp_path: Path, ranks: int, launcher: int, codes: list[int]
) -> None:
    for rank in (0, 1):
        write(tmp_path, rank, 0, "start")
        write(tmp_path, rank, 0, "end", code=75)
    ends = final_ends([launched(launcher)], Records(tmp_path, "n"), ranks)
    assert [end.code for end in ends] == codes


def test_both_a_rank_and_its_shim_are_watched(tmp_path: Path) -> None:
    write(tmp_path, 0, 0, "start", pid=7, shim=8)
    write(tmp_path, 1, 0, "start", pid=9)
    assert Records(tmp_path, "n").watched() == {0: {7, 8}, 1: {9}}


@pytest.mark.parametrize(("died_at", "killed"), [(1.0, False), (9e9, True)])
def test_a_rank_that_had_gone_before_its_launcher_was_killed_was_not_killed(
    tmp_path: Path, died_at: float, killed: bool
) -> None:
    write(tmp_path, 0, 0, "start")
    write(tmp_path, 0, 0, "end", code=LOST, at=died_at)
    popen = subprocess.Popen(["sleep", "60"])
    launcher = Started(Process([], {}), popen)
    launcher.kill_now()
    popen.kill()
    popen.wait()
    (end,) = final_ends([launcher], Records(tmp_path, "n"), 1)
    assert (end.rank, end.code, end.killed) == (0, LOST, killed)
