"""What shows why ranks stand still, gathered on their node before they are ended.

Stacks of all ranks at once (py-spy, which stops nobody; what the kernel tells where that is missing or
refused), NCCL's flight recorder where there is one, the step records. Bounded in time: a rank that is stopped
or stuck in the kernel must not hold up its own evidence. Never raises over a single rank.
``tests/launch/test_evidence.py``.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from resiliency.redact import redact
from resiliency.steprecord import read_all

Found = dict[str, Any]

_PIPE: Final = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
_DUMP: Final = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
#: Where torch puts a dump that no variable names: newer, older.
_DUMP_DEFAULTS: Final = ("{home}/.cache/torch/comm_lib_trace_rank_", "/tmp/nccl_trace_rank_")
_FRESH_S: Final = 3600.0
_POLL_S: Final = 0.02
_LARGEST: Final = 64 << 20
#: First thread of a dump, then its innermost frame: '    step (train.py:12)'.
_FRAME: Final = re.compile(r'^Thread .*?"MainThread"\n\s+(?P<frame>\S.*)$', re.MULTILINE)
_ANY_FRAME: Final = re.compile(r"^Thread .*\n\s+(?P<frame>\S.*)$", re.MULTILINE)


def py_spy() -> str | None:
    """The program: beside this Python, else on the path."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return beside if os.access(beside, os.X_OK) else shutil.which("py-spy")


def gather(
    pids: Mapping[int, int],
    out_dir: Path,
    timeout_s: float = 2.0,
    *,
    records_dir: Path | None = None,
    node: str = "",
) -> list[Found]:
    """Write what there is on ``pids`` (rank → process) into ``out_dir``, within ``timeout_s``.

    Items of the answer: ``rank`` (None for what is about all), ``file``, ``kind`` (``stack``, ``kernel``,
    ``flight``, ``records``), ``top_frame`` (innermost frame of the main thread, or the kernel's word).
    Raises OSError when ``out_dir`` cannot be made.
    """
    end = time.monotonic() + timeout_s
    out_dir.mkdir(parents=True, exist_ok=True)
    found = _records(out_dir, records_dir, node)  # first: it costs nothing, and ages go on
    asked = _ask_flight_recorders(pids)
    found += _stacks(pids, out_dir, end)
    found += _flights(pids, asked, out_dir, end)
    return found


# -- step records ------------------------------------------------------------------------------


def _records(out_dir: Path, directory: Path | None, node: str) -> list[Found]:
    if directory is None:
        return []
    now = time.monotonic()
    data = {
        str(rank): {**asdict(seen), "age_s": round(now - seen.beat, 3)}
        for rank, seen in sorted(read_all(directory).items())
    }
    for item in data.values():
        loss = item["loss"]
        item["loss"] = repr(loss) if loss is not None and not math.isfinite(loss) else loss
    path = out_dir / (f"records.{node}.json" if node else "records.json")
    written = _write(path, json.dumps(data, indent=1).encode())
    return [_item(None, path, "records")] if written else []


# -- stacks ------------------------------------------------------------------------------------


def _stacks(pids: Mapping[int, int], out_dir: Path, end: float) -> list[Found]:
    program = py_spy()
    asked: dict[int, subprocess.Popen[bytes]] = {}
    paths = {rank: out_dir / f"rank-{rank}.stack.txt" for rank in pids}
    for rank, pid in pids.items():
        if program is None:
            break
        argv = [program, "dump", "--nonblocking", "--pid", str(pid)]
        with contextlib.suppress(OSError), paths[rank].open("wb") as file:
            asked[rank] = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.DEVNULL
            )
    while any(one.poll() is None for one in asked.values()) and time.monotonic() < end:
        time.sleep(_POLL_S)
    found = []
    for rank in sorted(pids):
        one = asked.get(rank)
        if one is not None and one.poll() is None:
            one.kill()
            one.wait()
        item = _stack(rank, paths[rank]) if one is not None and one.returncode == 0 else None
        item = item or _kernel(rank, pids[rank], paths[rank])
        if item is not None:
            found.append(item)
    return found


def _stack(rank: int, path: Path) -> Found | None:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = _FRAME.search(text) or _ANY_FRAME.search(text)
    if match is None:
        return None
    _write(path, redact(text).encode())  # the first line has the command line
    return _item(rank, path, "stack", match["frame"].strip())


def _kernel(rank: int, pid: int, path: Path) -> Found | None:
    """What /proc says of each thread: never waits for the process, needs nobody's leave for most of it."""
    lines: list[str] = []
    tasks = Path(f"/proc/{pid}/task")
    try:
        threads = sorted(tasks.iterdir(), key=lambda entry: int(entry.name))
    except (OSError, ValueError):
        threads = []
        lines.append(f"process {pid} is gone")
    top = ""
    for thread in threads[:256]:
        status = _proc(thread / "status")
        state = next((line for line in status.splitlines() if line.startswith("State:")), "State: unknown")
        name = _proc(thread / "comm").strip()
        where = _proc(thread / "wchan").strip().strip("0")
        lines.append(f"thread {thread.name} {name}: {state} wchan: {where or '-'}")
        call = _proc(thread / "syscall").strip()
        lines += [f"  syscall: {call}"] if call else []
        lines += [f"  {line}" for line in _proc(thread / "stack").splitlines()]
        if thread.name == str(pid):
            top = f"{state.removeprefix('State:').strip()}{f' in {where}' if where else ''}"
    if not _write(path, "".join(f"{line}\n" for line in lines).encode()):
        return None
    return _item(rank, path, "kernel", top or lines[0])


def _proc(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


# -- flight recorder ---------------------------------------------------------------------------


def _environ(pid: int) -> dict[str, str]:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition("=") for entry in os.fsdecode(raw).split("\0"))
    return {name: value for name, _, value in pairs}


def _ask_flight_recorders(pids: Mapping[int, int]) -> dict[int, float]:
    """Ask each rank's NCCL for a dump, where it listens for that: rank → Unix time of asking."""
    asked = {}
    for rank, pid in pids.items():
        stem = _environ(pid).get(_PIPE)
        if not stem:
            continue
        with contextlib.suppress(OSError):  # nobody listens: ENXIO
            fd = os.open(f"{stem}{rank}.pipe", os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                if stat.S_ISFIFO(os.fstat(fd).st_mode):
                    asked[rank] = time.time()
                    os.write(fd, b"1\n")
            finally:
                os.close(fd)
    return asked


def _flights(pids: Mapping[int, int], asked: Mapping[int, float], out_dir: Path, end: float) -> list[Found]:
    """Copies of the dumps. Those that were asked for are waited for while there is time."""
    sources = {rank: _dump_paths(rank, _environ(pid)) for rank, pid in pids.items()}
    since = {rank: asked.get(rank, time.time() - _FRESH_S) for rank in pids}
    waiting = set(asked)
    while waiting and time.monotonic() < end:
        waiting = {rank for rank in waiting if _fresh(sources[rank], since[rank]) is None}
        time.sleep(_POLL_S)
    found = []
    for rank in sorted(pids):
        # One that did not come in time: an earlier one, of NCCL's own time-out, is better than none.
        source = _fresh(sources[rank], since[rank]) or _fresh(sources[rank], time.time() - _FRESH_S)
        if source is None:
            continue
        target = out_dir / f"rank-{rank}.flight"
        with contextlib.suppress(OSError):
            shutil.copyfile(source, target)
            found.append(_item(rank, target, "flight"))
    return found


def _dump_paths(rank: int, env: Mapping[str, str]) -> list[Path]:
    named = [env[name] for name in _DUMP if env.get(name)]
    stems = named or [default.format(home=env.get("HOME", "")) for default in _DUMP_DEFAULTS]
    return [Path(f"{stem}{rank}") for stem in stems]


def _fresh(paths: list[Path], since: float) -> Path | None:
    for path in paths:
        with contextlib.suppress(OSError):
            seen = path.stat()
            # A second of slack: file systems keep time more coarsely than clocks tell it.
            if stat.S_ISREG(seen.st_mode) and 0 < seen.st_size <= _LARGEST and seen.st_mtime >= since - 1:
                return path
    return None


# -- files -------------------------------------------------------------------------------------


def _write(path: Path, data: bytes) -> bool:
    try:
        path.write_bytes(data)
    except OSError:
        return False
    return True


def _item(rank: int | None, path: Path, kind: str, top_frame: str = "") -> Found:
    return {"rank": rank, "file": str(path), "kind": kind, "top_frame": top_frame}
