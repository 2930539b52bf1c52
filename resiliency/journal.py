"""The journal: per-writer append-only files of events; the truth that every index is made from.

A writer owns one file and appends whole lines with one ``write`` each. A reader survives torn tails,
bad lines, duplicated lines and files, and any order; it never fails on content, it reports problems.
``tests/resiliency/test_journal.py`` holds both to that, with hypothesis.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from .crashpoint import point
from .durable import file_mode, storage_error
from .edges import Clock, SystemClock
from .events import BadEvent, Event, decode, encode

SUFFIX = ".jsonl"


def login_writer() -> str:
    """Writer id of control-plane commands on this host; they append one at a time under the run's lock."""
    return f"login-{socket.gethostname().split('.')[0]}"


class JournalWriter:
    """Appends events of one writer to ``directory/<writer>.jsonl``.

    ``sync=True`` on an append makes it durable (fsync) before returning; others become durable with the
    next synced one or when the kernel writes them. Opening continues the sequence of an earlier process
    of the same writer and seals a torn tail, so at most one process may have a writer open.
    """

    def __init__(
        self,
        directory: Path,
        *,
        run: str,
        writer: str,
        clock: Clock | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = directory / f"{writer}{SUFFIX}"
        self._run = run
        self._writer = writer
        self._clock = clock or SystemClock()
        self._defaults = dict(defaults or {})
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, file_mode(directory))
            self._seq, self._torn = _last_sequence(self._fd)
        except OSError as error:
            raise storage_error(error, self.path, "open journal") from error

    def append(
        self,
        type: str,
        data: Mapping[str, Any] | None = None,
        *,
        sync: bool = False,
        **fields: Any,
    ) -> Event:
        """Write one event; ``fields`` are stage, attempt, cycle, node, rank. Raises StorageError."""
        return self.append_many([(type, data or {}, fields)], sync=sync)[0]

    def append_many(
        self,
        items: Iterable[tuple[str, Mapping[str, Any], Mapping[str, Any]]],
        *,
        sync: bool = False,
    ) -> list[Event]:
        """Write several ``(type, data, fields)`` with one ``write`` and at most one fsync."""
        events: list[Event] = []
        for type_, data, fields in items:
            self._seq += 1
            merged = {**self._defaults, **fields}
            events.append(
                Event(
                    type=type_,
                    run=self._run,
                    writer=self._writer,
                    seq=self._seq,
                    # rounded as encode does, so that what is returned equals what is read back
                    ts=round(self._clock.wall(), 6),
                    mono=round(self._clock.mono(), 6),
                    data=data,
                    **merged,
                )
            )
        text = "".join(encode(event) + "\n" for event in events)
        if self._torn:
            # A newline ends the torn line, so the reader drops that line only, not ours.
            text = "\n" + text
        raw = text.encode()
        try:
            point("journal.before_write")
            written = os.write(self._fd, raw)
            if written != len(raw):
                self._torn = True
                raise OSError(28, os.strerror(28))  # ENOSPC: the usual cause of a short write
            self._torn = False
            point("journal.before_sync")
            if sync:
                os.fsync(self._fd)
                point("journal.after_sync")
        except OSError as error:
            # The sequence numbers of a failed write are not used again: a part may be on disk.
            raise storage_error(error, self.path, "append to journal") from error
        return events

    def sync(self) -> None:
        """Make everything appended so far durable."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise storage_error(error, self.path, "sync journal") from error

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _last_sequence(fd: int) -> tuple[int, bool]:
    """Highest sequence number near the end of the file, and whether the tail is torn."""
    size = os.fstat(fd).st_size
    if size == 0:
        return 0, False
    torn = os.pread(fd, 1, size - 1) != b"\n"
    window = 1 << 16
    while True:
        start = max(0, size - window)
        best, bad_after_best = 0, 0
        for line in os.pread(fd, size - start, start).split(b"\n"):
            if not line.strip():
                continue
            try:
                seq = decode(line).seq
            except BadEvent:
                bad_after_best += 1
                continue
            if seq >= best:
                best, bad_after_best = seq, 0
        if best or start == 0:
            # Torn or altered lines may have used the next numbers: skip those.
            return best + bad_after_best, torn
        window *= 8


@dataclass(frozen=True)
class Problem:
    """Something in a journal file that is not an intact event; the rest of the file is still read."""

    path: str
    offset: int
    reason: str


@dataclass
class Chunk:
    """What was read from one file: events in file order, problems, and the offset to go on from.

    ``next_offset`` stops before an unfinished last line, which may still be being written.
    """

    path: Path
    next_offset: int
    events: list[Event] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    torn_tail: bool = False


def read_raw(path: Path, offset: int = 0, *, max_bytes: int | None = None) -> tuple[bytes, bool]:
    """Whole lines of one file from ``offset`` (bytes, at a line start), at least one where there is one;
    and whether something unfinished follows (not asked for when ``max_bytes`` limits the look).

    Raises StorageError only when the file cannot be read at all.
    """
    try:
        with path.open("rb") as stream:
            stream.seek(offset)
            raw = stream.read() if max_bytes is None else stream.read(max_bytes)
            if max_bytes is not None and raw and b"\n" not in raw:
                raw += stream.readline()  # one line longer than the window: take it whole
    except OSError as error:
        raise storage_error(error, path, "read journal") from error
    end = raw.rfind(b"\n") + 1
    return raw[:end], end != len(raw) and max_bytes is None


def read_file(path: Path, offset: int = 0, *, max_bytes: int | None = None) -> Chunk:
    """Read events of one file from ``offset`` (bytes, at a line start).

    Raises StorageError only when the file cannot be read at all.
    """
    raw, torn = read_raw(path, offset, max_bytes=max_bytes)
    chunk = Chunk(path, offset + len(raw), torn_tail=torn)
    at = offset
    for line in raw.split(b"\n")[:-1]:
        if line.strip():
            try:
                chunk.events.append(decode(line))
            except BadEvent as bad:
                chunk.problems.append(Problem(str(path), at, str(bad)))
        at += len(line) + 1
    return chunk


def files(directory: Path) -> list[Path]:
    """The journal files of a run, sorted by name; empty when there is none."""
    return [directory / name for name in sizes(directory)]


def sizes(directory: Path) -> dict[str, tuple[int, int]]:
    """``(bytes, mtime in ns)`` of each journal file of a run, sorted by name."""
    found: dict[str, tuple[int, int]] = {}
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(SUFFIX) and name != SUFFIX and entry.is_file():
                    stat = entry.stat()
                    found[name] = (stat.st_size, stat.st_mtime_ns)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise storage_error(error, directory, "list journal") from error
    return dict(sorted(found.items()))


def prefer(one: Event, other: Event) -> Event:
    """Which of two events with the same writer and sequence number counts; any order, same answer.

    They differ only after a number was used twice (a lost write that was seen, two hosts of one
    name); every reader must then keep the same one.
    """
    return min(one, other, key=repr)


def _keep(seen: dict[tuple[str, int], Event], event: Event) -> None:
    known = seen.get(event.key)
    seen[event.key] = event if known is None else prefer(known, event)


def read_run(directory: Path) -> tuple[list[Event], list[Problem]]:
    """All events of a run, without duplicates, in :attr:`Event.order`; and the problems met."""
    seen: dict[tuple[str, int], Event] = {}
    problems: list[Problem] = []
    for path in files(directory):
        chunk = read_file(path)
        problems += chunk.problems
        for event in chunk.events:
            _keep(seen, event)
    return sorted(seen.values(), key=lambda event: event.order), problems


_PROGRESS = b'{"v":1,"type":"progress",'
_STEP = re.compile(rb'"step":(\d+)')


def read_control(directory: Path) -> tuple[list[Event], list[Problem]]:
    """Like :func:`read_run`, but of each file's ``progress`` events only the last and the furthest.

    Progress is nearly all of a long run's journal and only its latest word matters to a decision.
    """
    seen: dict[tuple[str, int], Event] = {}
    problems: list[Problem] = []
    for path in files(directory):
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise storage_error(error, path, "read journal") from error
        at, last_progress, furthest, furthest_step = 0, b"", b"", -1
        for line in raw[: raw.rfind(b"\n") + 1].split(b"\n")[:-1]:
            if line.startswith(_PROGRESS):
                last_progress = line
                step = _STEP.search(line)
                if step and int(step[1]) >= furthest_step:
                    furthest, furthest_step = line, int(step[1])
            elif line.strip():
                try:
                    event = decode(line)
                    _keep(seen, event)
                except BadEvent as bad:
                    problems.append(Problem(str(path), at, str(bad)))
            at += len(line) + 1
        for line in {last_progress, furthest} - {b""}:
            # A bad one is counted by the full reader; here the other words of progress suffice.
            with contextlib.suppress(BadEvent):
                event = decode(line)
                _keep(seen, event)
    return sorted(seen.values(), key=lambda event: event.order), problems


def iter_unique(events: Iterable[Event]) -> Iterator[Event]:
    """Drop repeats of the same ``(run, writer, seq)``."""
    seen: set[tuple[str, str, int]] = set()
    for event in events:
        key = (event.run, *event.key)
        if key not in seen:
            seen.add(key)
            yield event
