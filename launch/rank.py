"""The shim in each rank's process: runs the program and records how it really ended.

Launchers hide a rank's exit code and exception; this keeps both, in a node-local file. Run by path
(``python …/launch/rank.py [options] -- program …``) in whatever Python trains, so it imports the standard
library only and its directory leaves ``sys.path`` first. Options: ``--launched`` (under a launcher),
``--exec`` (any command, as a child), ``--launcher`` (the program is a launcher: no records), ``--warm``
(ask the node's warm server first; started with ``-I -S``, so that asking costs little, it starts anew
when it must do without). ``tests/launch/test_rank.py``, ``test_warm.py``.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and sys.path and not sys.flags.isolated:
    # The interpreter put this directory first; modules here must not shadow anybody's.
    del sys.path[0]

import errno
import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all the rest
    from types import ModuleType
    from typing import Any, NoReturn

#: Node-local directory of the records; set by the agent.
ENV_DIR = "TRAINMASTER_RANK_DIR"
_ENV_CYCLE = "TRAINMASTER_CYCLE"
_ENV_WARM = "TRAINMASTER_WARM"
_PROGRESS_MADE = 75
_SUMMARY = 300

#: Errors whose cause is plain whatever the program was doing.
_ERRNO_CATEGORY = {errno.ENOSPC: "storage_full", errno.EDQUOT: "storage_quota"}


def _sibling(name: str) -> ModuleType:
    """Another file of this directory, from wherever this one runs; nothing becomes importable by it."""
    package = __package__ or "_trainmaster"
    full = f"{package}.{name}"
    if full in sys.modules:
        return sys.modules[full]
    from importlib.machinery import SourceFileLoader

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    module = type(sys)(full)
    module.__file__, module.__package__ = path, package
    sys.modules[full] = module
    SourceFileLoader(full, path).exec_module(module)
    return module


# -- records -----------------------------------------------------------------------------------


def place() -> tuple[int, int]:
    """(rank, cycle): the launcher's word and the agent's."""

    def number(name: str) -> int:
        try:
            return int(os.environ.get(name) or 0)
        except ValueError:
            return 0

    # A launcher that restarts ranks itself, outside our cycles, still must not mix up their records.
    return number("RANK"), number(_ENV_CYCLE) or number("TORCHELASTIC_RESTART_COUNT")


def _path(word: str) -> str | None:
    directory = os.environ.get(ENV_DIR)
    if not directory:
        return None
    rank, cycle = place()
    return os.path.join(directory, f"{rank}.{cycle}.{word}")


def record(word: str, data: dict[str, Any], pid: int | None = None) -> None:
    """Leave a record; without a directory, or with a full one, run on without."""
    path = _path(word)
    if path is None:
        return
    import json

    rank, cycle = place()
    data = {**data, "rank": rank, "cycle": cycle, "pid": pid or os.getpid(), "at": time.time()}
    try:
        with open(f"{path}.tmp", "w", encoding="utf-8") as file:
            json.dump(data, file)
        os.replace(f"{path}.tmp", path)
    except OSError as error:
        print(f"trainmaster: cannot record how this rank ended: {error}", file=sys.stderr)


def _ended(code: int, summary: str = "", category: str = "", pid: int | None = None) -> None:
    record("end", {"code": code, "summary": summary[:_SUMMARY], "category": category}, pid)


def _has_ended(pid: int) -> bool:
    """Whether that process recorded its end itself."""
    import json

    try:
        with open(_path("end") or os.devnull, encoding="utf-8") as file:
            return bool(json.load(file)["pid"] == pid)
    except (OSError, ValueError, KeyError, TypeError):
        return False


# -- running it --------------------------------------------------------------------------------

#: Signals that Slurm or a person sends to every process of a step, meant for the agent.
FOR_THE_AGENT = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def _stay() -> None:
    """Survive what is the agent's to handle (it makes the stop file); a program may set its own handlers.

    Handlers rather than SIG_IGN: programs started from here get the default back at exec, and children
    made by fork (data loader workers, whose parent ends them by TERM) get it back below.
    """
    for number in FOR_THE_AGENT:
        signal.signal(number, lambda *_: None)
    os.register_at_fork(after_in_child=_back_to_default)


def _back_to_default() -> None:
    for number in FOR_THE_AGENT:
        signal.signal(number, signal.SIG_DFL)


def _exit_code(value: object) -> int:
    """What the interpreter makes of ``SystemExit(value)``."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF
    print(value, file=sys.stderr)
    return 1


def _main(target: list[str]) -> None:
    """``-m module args`` or ``script.py args`` as ``__main__``, in this process."""
    if target[0] == "-m":
        import runpy

        sys.argv = target[1:]
        sys.modules.pop(target[1], None)  # imported ahead: it must run as __main__ all the same
        runpy.run_module(target[1], run_name="__main__", alter_sys=True)
        return
    path = os.path.abspath(target[0])
    sys.argv = target
    sys.path.insert(0, os.path.dirname(path))
    if not os.path.isfile(path):
        import runpy

        runpy.run_path(target[0], run_name="__main__")
        return
    from importlib.machinery import SourceFileLoader

    # As the interpreter does: absolute in __file__, as it was given in sys.argv (runpy has one for both).
    loader = SourceFileLoader("__main__", path)
    module = type(sys)("__main__")
    module.__file__, module.__loader__ = path, loader
    with open(path, "rb") as file:
        code = loader.source_to_code(file.read(), path)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)  # noqa: S102


def _run_python(target: list[str]) -> int:
    """Run the program and record how it ended; its exit code."""
    try:
        _main(target)
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


def run_in_place(mode: str, target: list[str], started: dict[str, Any]) -> int:
    """Be the program: in a process that was started for it or, by the warm server, forked for it."""
    if mode == "launcher":
        _sibling("quicken").rendezvous(target)
        _main(target)
        return 0
    os.environ[_ENV_CYCLE] = str(place()[1])
    if mode == "program":
        _stay()
    elif target[0] == "-m":
        sys.path.insert(0, os.getcwd())  # as ``python -m`` does
    record("start", started)
    return _run_python(target)


# -- being warm --------------------------------------------------------------------------------


def as_program(command: list[str]) -> list[str] | None:
    """``python [-u] script.py …`` or ``python [-u] -m module …`` without its Python; else None."""
    words = command[1:]
    while words[:1] == ["-u"] and os.environ.get("PYTHONUNBUFFERED"):
        words = words[1:]
    if not words or (words[0] == "-m" and len(words) < 2):
        return None
    if words[0] != "-m" and (words[0].startswith("-") or not os.path.isfile(words[0])):
        return None
    return words


def _warm(mode: str, target: list[str]) -> int | None:
    """Have it run by the warm server and end as it ended; None: start cold."""
    socket = os.environ.get(_ENV_WARM)
    program = as_program(target) if mode == "command" else target
    if not socket or program is None:
        return None
    handover = _sibling("handover")
    ignored = [n for n in signal.valid_signals() if signal.getsignal(n) is signal.SIG_IGN]
    try:
        request = handover.Request.here(mode, program, ignored)
    except OSError:  # the working directory is gone
        return None
    child = handover.hand_over(socket, request)
    if child is None:
        return None
    for number in FOR_THE_AGENT:
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGINT, lambda *_: child.signal(signal.SIGINT))
    if mode != "program":
        handover.relay_from_parent(child, (*FOR_THE_AGENT, signal.SIGHUP, signal.SIGQUIT))
    done = child.wait()
    if done is None:
        print("trainmaster: the warm server ended, and this process with it", file=sys.stderr, flush=True)
    code = 137 if done is None else 128 - done if done < 0 else done
    if mode != "launcher" and not _has_ended(child.pid):
        _ended(code, "" if done is not None else "the warm server ended", pid=child.pid)
    if done is None:
        return code
    return int(handover.end_like(done)) if mode != "command" else code


def main() -> NoReturn:
    cut = sys.argv.index("--")
    options, target = sys.argv[1:cut], sys.argv[cut + 1 :]
    mode = "launcher" if "--launcher" in options else "command" if "--exec" in options else "program"
    code = _warm(mode, target) if "--warm" in options else None
    if code is None and sys.flags.isolated:
        words = [word for word in options if word != "--warm"]
        os.execv(sys.executable, [sys.executable, os.path.abspath(__file__), *words, "--", *target])
    if code is None and mode == "command":
        os.environ[_ENV_CYCLE] = str(place()[1])
        _stay()
        record("start", {})
        code = _run_command(target)
    elif code is None:
        code = run_in_place(mode, target, {})
    if code == _PROGRESS_MADE and "--launched" in options:
        # To a launcher every code but 0 is a failure: it would end or restart the ranks still saving.
        code = 0
    sys.exit(code)


if __name__ == "__main__":
    main()
