"""The shim in each rank's process: runs the program and records how it really ended.

Launchers hide a rank's exit code and exception; this keeps both, in a node-local file, without a process
of its own. Run by path (``python …/launch/rank.py [--exec] [--launched] -- program …``) in whatever Python
trains, so it imports the standard library only and its directory leaves ``sys.path`` first.
``tests/launch/test_rank.py``.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and sys.path:
    # The interpreter put this directory first; modules here must not shadow anybody's.
    del sys.path[0]

import errno
import json
import os
import signal
import time
from typing import Any, NoReturn

#: Node-local directory of the records; set by the agent.
ENV_DIR = "TRAINMASTER_RANK_DIR"
_ENV_CYCLE = "TRAINMASTER_CYCLE"
_PROGRESS_MADE = 75
_SUMMARY = 300

#: Errors whose cause is plain whatever the program was doing.
_ERRNO_CATEGORY = {errno.ENOSPC: "storage_full", errno.EDQUOT: "storage_quota"}


def place() -> tuple[int, int]:
    """(rank, cycle) as the launcher says."""
    rank = int(os.environ.get("RANK", "0") or 0)
    return rank, int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") or 0)


def _record(word: str, data: dict[str, Any]) -> None:
    """Leave a record; without a directory, or with a full one, run on without."""
    directory = os.environ.get(ENV_DIR)
    if not directory:
        return
    rank, cycle = place()
    path = os.path.join(directory, f"{rank}.{cycle}.{word}")
    data |= {"rank": rank, "cycle": cycle, "pid": os.getpid(), "at": time.time()}
    try:
        with open(f"{path}.tmp", "w", encoding="utf-8") as file:
            json.dump(data, file)
        os.replace(f"{path}.tmp", path)
    except OSError as error:
        print(f"trainmaster: cannot record how this rank ended: {error}", file=sys.stderr)


def _ended(code: int, summary: str = "", category: str = "") -> None:
    _record("end", {"code": code, "summary": summary[:_SUMMARY], "category": category})


#: Signals that Slurm or a person sends to every process of a step, meant for the agent.
_FOR_THE_AGENT = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def _stay() -> None:
    """Survive what is the agent's to handle (it makes the stop file); a program may set its own handlers.

    Handlers rather than SIG_IGN: programs started from here get the default back at exec, and children
    made by fork (data loader workers, whose parent ends them by TERM) get it back below.
    """
    for number in _FOR_THE_AGENT:
        signal.signal(number, lambda *_: None)
    os.register_at_fork(after_in_child=_back_to_default)


def _back_to_default() -> None:
    for number in _FOR_THE_AGENT:
        signal.signal(number, signal.SIG_DFL)


def _exit_code(value: object) -> int:
    """What the interpreter makes of ``SystemExit(value)``."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF
    print(value, file=sys.stderr)
    return 1


def _run_python(target: list[str]) -> int:
    """``-m module args`` or ``script.py args`` as ``__main__``, in this process."""
    import runpy

    try:
        if target[0] == "-m":
            sys.argv = target[1:]
            runpy.run_module(target[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = target
            sys.path.insert(0, os.path.dirname(os.path.abspath(target[0])))
            runpy.run_path(target[0], run_name="__main__")
    except SystemExit as leaving:
        code = _exit_code(leaving.code)
        _ended(code)
        return code
    except KeyboardInterrupt:
        _ended(128 + signal.SIGINT, "KeyboardInterrupt")
        return 128 + signal.SIGINT
    except BaseException as error:
        category = _ERRNO_CATEGORY.get(getattr(error, "errno", None) or 0, "")
        if isinstance(error, MemoryError):
            category = "host_oom"
        text = str(error).strip()
        first = text.splitlines()[0] if text else ""
        _ended(1, f"{type(error).__name__}: {first}" if first else type(error).__name__, category)
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    _ended(0)
    return 0


def _run_command(argv: list[str]) -> int:
    """Any program, as a child; its code or ``128 + signal`` is passed on."""
    import subprocess

    try:
        done = subprocess.run(argv, check=False).returncode
    except FileNotFoundError:
        print(f"trainmaster: {argv[0]}: command not found", file=sys.stderr)
        done = 127
    except PermissionError:
        print(f"trainmaster: {argv[0]}: cannot be executed", file=sys.stderr)
        done = 126
    code = 128 - done if done < 0 else done
    _ended(code)
    return code


def main() -> NoReturn:
    cut = sys.argv.index("--")
    options, target = sys.argv[1:cut], sys.argv[cut + 1 :]
    os.environ[_ENV_CYCLE] = str(place()[1])
    _stay()
    _record("start", {})
    code = _run_command(target) if "--exec" in options else _run_python(target)
    if code == _PROGRESS_MADE and "--launched" in options:
        # To a launcher every code but 0 is a failure: it would end or restart the ranks still saving.
        code = 0
    sys.exit(code)


if __name__ == "__main__":
    main()
