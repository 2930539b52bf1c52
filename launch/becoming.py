"""How a fork of the warm server becomes what a cold start would have made of the same request.

The world that imports saw, what they changed in it, and how a child gets its own. May not decide what
runs. ``tests/launch/test_warm.py`` compares a program's view of its process warm and cold.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import logging
import os
import signal
import sys
import warnings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .handover import Request

#: Read while libraries load: a process that has others must not get what was loaded under these.
_AT_IMPORT = (
    b"PYTHON", b"LD_", b"GLIBC_", b"MALLOC_", b"LANG", b"LC_", b"TZ", b"OMP_", b"GOMP_", b"KMP_", b"MKL_",
    b"OPENBLAS_", b"BLIS_", b"NUMEXPR_", b"CUDA_", b"NVIDIA_", b"NVTE_", b"PYTORCH_", b"TORCH_",
)  # fmt: skip
#: Set by launchers for each rank (torchrun and NVRx from 0.6 on tell that all run one program), read when
#: process groups are made.
_LATE = (b"TORCH_NCCL_", b"TORCH_ELASTIC_")
_NVML_CHECK = b"PYTORCH_NVML_BASED_CUDA_CHECK"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None, use_errno=True)


class World:
    """The server's surroundings before and after its imports."""

    def __init__(self) -> None:
        self.own = dict(os.environb)
        # Ask NVML and not CUDA whether there are GPUs: a process that forks must not have asked CUDA.
        os.environb[_NVML_CHECK] = b"1"
        self._cpus = sorted(os.sched_getaffinity(0))
        self._after: dict[bytes, bytes] = {}

    def import_all(self, modules: Sequence[str]) -> tuple[str, str] | None:
        """Import what can be; (module, why) when one did what no fork survives."""
        root = logging.root
        handlers, level = list(root.handlers), root.level
        logging.disable(logging.CRITICAL)
        try:
            for name in modules:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        importlib.import_module(name)
                    except (Exception, SystemExit) as error:  # the program will say it itself
                        print(
                            f"trainmaster: warm: {name} cannot be imported: {type(error).__name__}: {error}",
                            file=sys.stderr, flush=True,
                        )  # fmt: skip
                why = _unforkable()
                if why:
                    return name, why
        finally:
            logging.disable(logging.NOTSET)
            # Launchers configure logging when imported; a program would get it without having asked.
            root.handlers[:] = handlers
            root.setLevel(level)
        self._after = dict(os.environb)
        return None

    def differs(self, request: Request) -> str:
        """Why a cold start would give the process something else; empty if it would not."""
        for name in sorted(self.own.keys() | request.env.keys()):
            if name.startswith(_AT_IMPORT) and not name.startswith(_LATE):
                mine, theirs = self.own.get(name), request.env.get(name)
                if mine != theirs:
                    return f"{os.fsdecode(name)} is not what it was when modules were imported ahead"
        if request.cpus != self._cpus:
            return "it may run on other CPUs than the server"
        return ""

    def restore(self, request: Request) -> None:
        """In a child: its own variables, with what the imports would have changed in them."""
        wanted = dict(request.env)
        for name in self.own.keys() | self._after.keys():
            before, after = self.own.get(name), self._after.get(name)
            if before != after and name != _NVML_CHECK and wanted.get(name) == before:
                if after is None:
                    wanted.pop(name, None)
                else:
                    wanted[name] = after
        for name in os.environb.keys() - wanted.keys():
            del os.environb[name]
        for name, value in wanted.items():
            if os.environb.get(name) != value:
                os.environb[name] = value
        _reseed(request)


def _unforkable() -> str:
    """What in this process a fork would break; empty when there is nothing."""
    if len(os.listdir("/proc/self/task")) > 1:
        # Some thread pools (OpenBLAS) end before a fork and come back when needed: see whether this is one.
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        if len(os.listdir("/proc/self/task")) > 1:
            return "importing it starts a thread"
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        return "importing it initialises CUDA"
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{fd}").startswith("/dev/nvidia-uvm"):
                return "importing it initialises CUDA"
    return ""


def settle(request: Request, fds: Sequence[int], server: int) -> None:
    """In a child, first: die with the server, have a session, signals and streams of one's own.

    A child that cannot ends here: it must never go on as a second server.
    """
    try:
        _settle(request, fds, server)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(2, f"trainmaster: {type(error).__name__}: {error}\n".encode())
        os._exit(1)


def _settle(request: Request, fds: Sequence[int], server: int) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != server:
        os._exit(128 + signal.SIGKILL)
    os.setsid()
    for number in signal.valid_signals():
        if number in (signal.SIGKILL, signal.SIGSTOP):
            continue
        ignore = number in request.ignored
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN if ignore else signal.SIG_DFL)
    if signal.SIGINT not in request.ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
    os.umask(request.umask)
    os.chdir(request.cwd)


def title(request: Request) -> None:
    """Be shown by ps as what it is: written over the server's own words, padded with blanks for this."""
    words = [os.fsencode(sys.executable), *map(os.fsencode, request.argv)]
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, proc(5)
    room = end - start
    if start and room > 1:
        # The last byte stays NUL: otherwise the kernel takes what follows for a part of it.
        text = (b"\0".join(words) + b"\0")[: room - 1].ljust(room, b"\0")
        ctypes.memmove(start, text, room)


def _reseed(request: Request) -> None:
    """What a fork would share with its siblings and a cold start draws from the system. Python's
    ``random`` does so by itself."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    if "multiprocessing.process" in sys.modules:
        from multiprocessing import process

        process.current_process().authkey = os.urandom(32)
        if hasattr(process, "ORIGINAL_DIR"):
            process.ORIGINAL_DIR = request.cwd
    if "tempfile" in sys.modules:
        import tempfile

        tempfile.tempdir = None  # from TMPDIR, when it is asked for
