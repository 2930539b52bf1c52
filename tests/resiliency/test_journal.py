"""The journal: whatever happens to its files, intact events are read and the rest is reported."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resiliency import journal
from resiliency.errors import StorageError
from resiliency.events import Event, encode
from resiliency.journal import JournalWriter, read_control, read_file, read_run
from resiliency.state import fold
from tests.resiliency.histories import RUN, histories


def write(directory: Path, writer: str = "w", count: int = 3, **data: object) -> list[Event]:
    with JournalWriter(directory, run=RUN, writer=writer) as stream:
        return [stream.append("decision", {"n": n, **data}) for n in range(count)]


def raw(events: list[Event]) -> bytes:
    return b"".join(encode(event).encode() + b"\n" for event in events)


def test_what_is_returned_is_what_is_read(tmp_path: Path) -> None:
    with JournalWriter(tmp_path / "j", run=RUN, writer="w", defaults={"stage": "a", "rank": 0}) as stream:
        one = stream.append("progress", {"step": 1}, sync=True, node="n1")
        more = stream.append_many([("decision", {}, {"stage": "b"}), ("decision", {}, {})])
        stream.sync()
    assert [event.seq for event in (one, *more)] == [1, 2, 3]
    assert [event.stage for event in (one, *more)] == ["a", "b", "a"]
    assert read_run(tmp_path / "j") == ([one, *more], [])
    assert (tmp_path / "j" / "w.jsonl").stat().st_mode & 0o077 == 0


def test_no_journal_is_an_empty_one(tmp_path: Path) -> None:
    assert journal.files(tmp_path / "nowhere") == []
    assert read_run(tmp_path / "nowhere") == ([], [])


def test_a_tail_torn_at_any_byte_is_left_until_complete(tmp_path: Path) -> None:
    events = write(tmp_path, count=2)
    path = tmp_path / "w.jsonl"
    whole = path.read_bytes()
    first = len(raw(events[:1]))
    for cut in range(first, len(whole)):
        path.write_bytes(whole[:cut])
        chunk = read_file(path)
        assert (chunk.events, chunk.problems, chunk.next_offset) == (events[:1], [], first)
        assert chunk.torn_tail == (cut > first)
    path.write_bytes(whole)
    assert read_file(path, first).events == events[1:]


def test_a_writer_goes_on_after_a_tail_torn_at_any_byte(tmp_path: Path) -> None:
    events = write(tmp_path, count=2)
    path = tmp_path / "w.jsonl"
    whole = path.read_bytes()
    first = len(raw(events[:1]))
    for cut in range(first, len(whole) + 1):
        path.write_bytes(whole[:cut])
        with JournalWriter(tmp_path, run=RUN, writer="w") as stream:
            later = stream.append("decision", {"later": True})
        found, problems = read_run(tmp_path)
        # A line whose newline only is missing is intact, and its number must not be used again.
        kept = events if cut >= len(whole) - 1 else events[:1]
        assert found == sorted([*kept, later], key=lambda event: event.order)
        assert len(problems) == (first < cut < len(whole) - 1)
        assert later.seq > max(event.seq for event in kept)


def test_a_number_that_a_torn_line_may_have_used_is_not_used_again(tmp_path: Path) -> None:
    write(tmp_path, count=2)
    path = tmp_path / "w.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    with JournalWriter(tmp_path, run=RUN, writer="w") as stream:
        assert stream.append("decision").seq == 3


def test_a_sequence_goes_on_behind_a_long_bad_stretch(tmp_path: Path) -> None:
    write(tmp_path, count=5)
    with (tmp_path / "w.jsonl").open("ab") as stream:
        stream.write(b"\0" * 300_000 + b"\n" + b"x" * 100_000)
    with JournalWriter(tmp_path, run=RUN, writer="w") as writer:
        assert writer.append("decision").seq > 5
    found, problems = read_run(tmp_path)
    assert len(found) == 6 and len(problems) == 2


@pytest.mark.parametrize(
    "junk",
    [b"\n", b"\n\n  \n", b"\0" * 4096 + b"\n", b"\xff\xfe\n", b"{}\n", b"x" * 5_000_000 + b"\n", b"\r\n"],
    ids=["empty", "blank", "nuls", "bytes", "object", "long", "cr"],
)
def test_junk_between_lines_costs_no_event(tmp_path: Path, junk: bytes) -> None:
    events = write(tmp_path)
    path = tmp_path / "w.jsonl"
    path.write_bytes(raw(events[:1]) + junk + raw(events[1:]))
    found, problems = read_run(tmp_path)
    assert found == events
    assert [problem.offset for problem in problems] == [len(raw(events[:1]))] * bool(junk.strip())


def test_a_very_long_event_is_an_event(tmp_path: Path) -> None:
    events = write(tmp_path, text="λ" * 300_000)
    assert read_run(tmp_path)[0] == events
    chunk = read_file(tmp_path / "w.jsonl", max_bytes=100)
    assert chunk.events == events[:1]
    with JournalWriter(tmp_path, run=RUN, writer="w") as stream:
        assert stream.append("decision").seq == 4


@settings(max_examples=80, deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_any_mixture_of_files_gives_each_intact_event_once(events: list[Event], rng: random.Random) -> None:
    """Lines in any file, any order, any number of times, with garbage between them."""
    lines = (
        [encode(event).encode() for event in events + rng.choices(events, k=len(events))] if events else []
    )
    lines += [rng.randbytes(rng.randint(0, 40)).replace(b"\n", b"") for _ in range(5)]
    lines += [line[: rng.randint(0, len(line) - 1)] for line in lines[:3] if line]
    rng.shuffle(lines)
    with tempfile.TemporaryDirectory() as name:
        for number in range(3):
            part = lines[number::3]
            tail = encode(events[0]).encode()[:20] if events else b""
            (Path(name) / f"{number}.jsonl").write_bytes(b"".join(line + b"\n" for line in part) + tail)
        found, problems = read_run(Path(name))
        assert found == sorted(events, key=lambda event: event.order)
        assert all(problem.reason and problem.path for problem in problems)
        assert fold(read_control(Path(name))[0]).status == fold(events).status


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_can_be_read(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "w.jsonl").write_bytes(content)
        assert read_run(Path(name))[0] == []
        with JournalWriter(Path(name), run=RUN, writer="w") as stream:
            event = stream.append("decision")
        assert read_run(Path(name))[0] == [event]


def test_reading_in_windows_gives_the_same(tmp_path: Path) -> None:
    events = write(tmp_path, count=30)
    for size in (1, 50, 200, 1000, 10**6):
        found, offset = [], 0
        while True:
            chunk = read_file(tmp_path / "w.jsonl", offset, max_bytes=size)
            if chunk.next_offset == offset:
                break
            found += chunk.events
            offset = chunk.next_offset
        assert found == events


def test_a_number_used_twice_gives_every_reader_the_same_event(tmp_path: Path) -> None:
    one, other = (Event("decision", RUN, "w", 1, 1.0, 1.0, data={"n": n}) for n in (1, 2))
    answers = []
    for names in (("a", "b"), ("b", "a")):
        directory = tmp_path / names[0]
        directory.mkdir()
        for name, event in zip(names, (one, other), strict=True):
            (directory / f"{name}.jsonl").write_bytes(raw([event]))
        answers += [read_run(directory)[0], read_control(directory)[0]]
    assert len(answers[0]) == 1
    assert answers == [answers[0]] * 4


def test_the_control_reader_folds_like_the_full_one(tmp_path: Path) -> None:
    with JournalWriter(tmp_path, run=RUN, writer="w", defaults={"stage": "a", "attempt": "c/1.0"}) as stream:
        for step in (*range(50), 20, 21):
            stream.append("progress", {"step": step, "loss": 1.0 * step, "tokens": step, "section": "s"})
        stream.append("checkpoint.committed", {"step": 40})
    full, control = read_run(tmp_path)[0], read_control(tmp_path)[0]
    assert len(control) == 3 < len(full)
    assert fold(control).stages["a"].attempts["c/1.0"].step == 49
    assert fold(control).stages["a"].attempts["c/1.0"].loss == fold(full).stages["a"].attempts["c/1.0"].loss


APPEND = """
import sys
from pathlib import Path
from resiliency.journal import JournalWriter
with JournalWriter(Path(sys.argv[1]), run=sys.argv[2], writer="w") as stream:
    print(stream.append("decision", {"n": 1}, sync=True).seq, flush=True)
    while True:
        print(stream.append("decision", {"pad": "x" * 2000}, sync=True).seq, flush=True)
"""


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    acknowledged = 0
    for _ in range(4):
        argv = [sys.executable, "-c", APPEND, str(tmp_path), RUN]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert process.stdout
        for _ in range(20):
            seq = int(process.stdout.readline())
            assert seq > acknowledged
            acknowledged = seq
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        acknowledged = max([acknowledged, *(int(line) for line in rest.split())])
    found, problems = read_run(tmp_path)
    assert [event.seq for event in found] == list(range(1, len(found) + 1))
    assert len(found) >= acknowledged and problems == []


def test_a_kill_before_the_write_leaves_nothing_and_after_it_everything(tmp_path: Path) -> None:
    for point, wanted in (("journal.before_write", 0), ("journal.before_sync", 1)):
        env = {**os.environ, "TRAINMASTER_CRASH_AT": point}
        argv = [sys.executable, "-c", APPEND, str(tmp_path / point), RUN]
        done = subprocess.run(argv, env=env, capture_output=True, check=False)
        assert done.returncode == -signal.SIGKILL
        assert len(read_run(tmp_path / point)[0]) == wanted


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    where = tmp_path / "tiny"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(where)]
    if not (
        os.geteuid() == 0 and shutil.which("mount") and subprocess.run(mount, check=False).returncode == 0
    ):
        pytest.skip("needs the right to mount a small file system")
    yield where
    subprocess.run(["umount", str(where)], check=True)


def _fill_until_refused(stream: JournalWriter) -> list[Event]:
    events = []
    with pytest.raises(StorageError) as caught:
        for _ in range(1000):
            events.append(stream.append("decision", {"pad": "x" * 900}))
    assert str(stream.path) in caught.value.message
    return events


def test_a_full_disk_is_said_so_and_the_journal_goes_on_once_there_is_room(tiny: Path) -> None:
    with JournalWriter(tiny / "j", run=RUN, writer="w") as stream:
        events = _fill_until_refused(stream)
        with pytest.raises(StorageError) as caught:
            stream.append("decision", {"pad": "x" * 9000})
        assert "free space" in caught.value.hint
        subprocess.run(["mount", "-o", "remount,size=1m", str(tiny)], check=True)
        events.append(stream.append("decision", {"room": True}, sync=True))
    found, problems = read_run(tiny / "j")
    assert found == events
    assert len(problems) <= 1  # the line that was cut short, if one was


def test_a_file_size_limit_loses_only_what_was_refused(tmp_path: Path) -> None:
    """The same without root's rights: writes are cut short at a limit on the file's size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with JournalWriter(tmp_path, run=RUN, writer="w") as stream:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
            events = _fill_until_refused(stream)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        events.append(stream.append("decision", {"room": True}))
    found, problems = read_run(tmp_path)
    assert found == events and len(problems) == 1


def test_a_journal_that_cannot_be_opened_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    with pytest.raises(StorageError, match=r"w\.jsonl"):
        JournalWriter(tmp_path / "plain", run=RUN, writer="w")


def test_a_host_s_login_commands_share_a_writer() -> None:
    assert journal.login_writer().startswith("login-")
    assert "." not in journal.login_writer()
