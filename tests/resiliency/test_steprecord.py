"""Step records: readable at any moment, whatever happened to the writer or the file."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resiliency import steprecord
from resiliency.steprecord import RING, Recorder, read, read_all


def recorder(tmp_path: Path, rank: int = 0) -> Recorder:
    return Recorder(steprecord.path_of(tmp_path, rank), rank)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    record = recorder(tmp_path, 7)
    record.step, record.tokens, record.loss = 41, 12345678901, 2.5
    record.section, record.entered, record.beat = b"step", 10.0, 11.5
    record.beats, record.collectives, record.in_collective = 99, 3, True
    record.took(0.25, 0.125)
    record.passed(b"step", 0.25)
    record.write()
    seen = read(tmp_path / "rank-7")
    assert seen == steprecord.Snapshot(
        7,
        os.getpid(),
        99,
        41,
        "step",
        10.0,
        11.5,
        True,
        12345678901,
        2.5,
        (0.25,),
        (0.125,),
        {"step": 0.25},
        3,
    )


def test_before_the_first_word_there_is_nothing_to_read(tmp_path: Path) -> None:
    recorder(tmp_path)
    assert read(tmp_path / "rank-0") is None


def test_what_was_not_said_is_none_and_what_cannot_be_said_too(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    record.write()
    seen = read(tmp_path / "rank-0")
    assert seen is not None and (seen.step, seen.tokens, seen.loss) == (None, None, None)
    record.step, record.tokens, record.loss = 2**70, -(2**70), math.nan
    record.write()
    seen = read(tmp_path / "rank-0")
    assert seen is not None and (seen.step, seen.tokens) == (None, None)
    assert seen.loss is not None and math.isnan(seen.loss)


@pytest.mark.parametrize("count", [1, RING - 1, RING, RING + 1, 3 * RING + 5])
def test_the_ring_keeps_the_newest_steps_in_order(tmp_path: Path, count: int) -> None:
    record = recorder(tmp_path)
    for n in range(count):
        record.took(float(n), n / 2)
    record.write()
    seen = read(tmp_path / "rank-0")
    wanted = range(max(0, count - RING), count)
    assert seen is not None and seen.step_times == tuple(wanted)
    assert seen.compute_times == tuple(n / 2 for n in wanted)


def test_the_slowest_pass_of_each_section_stays_and_too_many_sections_do_no_harm(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    for seconds in (1.0, 4.0, 2.0):
        record.passed(b"step", seconds)
    for n in range(2 * steprecord.SECTIONS):
        record.passed(b"s%d" % n, 1.0)
    record.write()
    seen = read(tmp_path / "rank-0")
    assert seen is not None
    assert seen.slowest["step"] == 4.0 and len(seen.slowest) == steprecord.SECTIONS


def test_a_section_of_the_start_is_learned_only_where_it_comes_again_and_again(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    slowest = []
    for seconds in (9.0, 1.0, 2.0, 10.0):
        record.passed(b"data", seconds)
        record.write()
        seen = read(tmp_path / "rank-0")
        assert seen is not None
        slowest.append(seen.slowest)
    assert slowest == [{}, {}, {"data": 9.0}, {"data": 10.0}]


@given(st.text(max_size=40))
@settings(max_examples=100, deadline=None)
def test_a_section_s_name_is_cut_between_characters(name: str) -> None:
    raw = steprecord.encode(name)
    assert len(raw) <= steprecord.NAME_BYTES
    assert name.encode("utf-8", "replace").startswith(raw) and isinstance(raw.decode(), str)


def test_a_file_that_is_missing_short_or_something_else_is_none(tmp_path: Path) -> None:
    assert read(tmp_path / "none") is None
    assert read(tmp_path) is None
    assert read_all(tmp_path / "none") == {}
    record = recorder(tmp_path)
    record.write()
    record.write()
    path = tmp_path / "rank-0"
    whole = path.read_bytes()
    for size in (0, 5, 63, 64, 100, len(whole) // 2):
        path.write_bytes(whole[:size])
        assert read(path) is None, size
    path.write_bytes(b"x" * len(whole))
    assert read(path) is None


@given(st.binary(max_size=3000))
@settings(max_examples=200, deadline=None)
def test_garbage_is_none(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "garbage"
    path.write_bytes(data)
    assert read(path) is None
    path.write_bytes(steprecord._MAGIC + data)
    assert read(path) is None


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_spoilt_slot_leaves_the_word_before(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A rank that is killed while it writes leaves one slot half new, half old."""
    directory = tmp_path_factory.mktemp("torn")
    record = recorder(directory)
    for step in (5, 6):
        record.step = step
        record.write()
    path = directory / "rank-0"
    whole = bytearray(path.read_bytes())
    # The newest word (the second) lies in the first slot.
    at = data.draw(st.integers(0, steprecord._SLOW_AT + 1)) + steprecord._HEADER
    whole[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(whole)
    seen = read(path)
    spoilt_padding = steprecord._HEADER + 4 <= at < steprecord._HEADER + steprecord._BODY_AT
    assert seen is not None and seen.step == (6 if spoilt_padding else 5)


_WRITER = """
import sys
from pathlib import Path
from resiliency.steprecord import Recorder, path_of
record = Recorder(path_of(Path(sys.argv[1]), 0), 0)
step = 0
while True:
    step += 1
    record.step = record.tokens = record.beats = record.collectives = step
    record.loss = record.entered = record.beat = float(step)
    record.took(float(step), float(step))
    record.write()
    if step == 1:
        print("go", flush=True)
"""


def test_reading_beside_a_busy_writer_is_never_torn_and_a_kill_leaves_the_record(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert writer.stdout is not None and writer.stdout.readline() == b"go\n"
        last = got = 0
        for _ in range(3000):
            seen = read(tmp_path / "rank-0")
            if seen is None:  # it wrote twice during each of many reads: rare, and said honestly
                continue
            got += 1
            step = seen.step
            assert step is not None and step >= last
            assert (seen.tokens, seen.beats, seen.collectives) == (step, step, step)
            assert (seen.loss, seen.entered, seen.beat) == (step, step, step)
            assert seen.step_times == tuple(float(n) for n in range(max(1, step - RING + 1), step + 1))
            last = step
        assert got > 1000
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    seen = read_all(tmp_path)[0]
    assert seen.pid == writer.pid and seen.step is not None and seen.step >= last


def test_only_records_are_taken_for_records(tmp_path: Path) -> None:
    for rank in (0, 12):
        recorder(tmp_path, rank).write()
    for name in ("rank-", "rank-x", "rank-\u00b2", ".rank-3.77", "other", "rank-5"):
        (tmp_path / name).write_bytes(b"x")
    assert sorted(read_all(tmp_path)) == [0, 12]


def test_a_full_disk_is_an_error_at_the_start_not_a_bus_error_later(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    taken = os.stat(tmp_path / "rank-0").st_blocks * 512
    assert taken >= os.stat(tmp_path / "rank-0").st_size
    record.close()
    record.write()  # nothing, and no error


def test_a_directory_that_is_gone_is_an_oserror(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        recorder(tmp_path / "gone")
