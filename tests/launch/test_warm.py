"""Warm starts: a fork of the server is what a cold start would have been, and nothing is left of any end.

Real servers, shims and programs; the modules imported ahead are small ones, except in the last tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launch import rank, warm
from launch.processes import alive

from .conftest import ROOT, until

SHIM = str(ROOT / "launch" / "rank.py")


class Node:
    """A warm server and what runs by it. Everything carries one environment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "warm.sock"
        self.records = directory / "ranks"
        self.records.mkdir()
        dropped = ("TRAINMASTER_", "TORCHELASTIC_", "PYTEST_", "COV_", "RANK", "WORLD_SIZE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        self.env = {
            **kept,
            "PYTHONPATH": str(directory),
            "PYTHONDONTWRITEBYTECODE": "1",
            rank.ENV_DIR: str(self.records),
            "RANK": "3",
            "TRAINMASTER_CYCLE": "2",
        }
        self.server: subprocess.Popen[bytes] | None = None
        self.shims: list[subprocess.Popen[str]] = []
        self.said = directory / "server.log"

    def open(self, *modules: str, wait: bool = True) -> subprocess.Popen[bytes]:
        keep = os.dup(2)
        with self.said.open("wb") as said:
            os.dup2(said.fileno(), 2)  # it inherits the agent's
            try:
                self.server = warm.start(sys.executable, self.socket, modules, self.env)
            finally:
                os.dup2(keep, 2)
                os.close(keep)
        if wait:
            assert warm.wait_ready(self.socket, 60, self.server), self.said.read_text()
        return self.server

    def start(
        self, *target: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """A shim as roles.build makes it; ``env`` is its own."""
        shim = subprocess.Popen(
            [sys.executable, "-I", "-S", SHIM, *options, "--warm", "--", *target],
            env={**self.env, "TRAINMASTER_WARM": str(self.socket), **(env or {})},
            cwd=self.directory, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.shims.append(shim)
        return shim

    def run(
        self, *target: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        shim = self.start(*target, options=options, env=env)
        out, err = shim.communicate(timeout=60)
        return subprocess.CompletedProcess(target, shim.returncode, out, err)

    def program(self, body: str, name: str = "program.py") -> str:
        path = self.directory / name
        path.write_text(body)
        return str(path)

    def record(self, word: str) -> dict[str, Any]:
        path = self.records / f"3.2.{word}"
        return json.loads(path.read_text()) if path.exists() else {}

    def pid(self) -> int:
        """The program's, once it has begun."""
        return int(until(lambda: self.record("start"))["pid"])

    def close(self) -> None:
        for shim in self.shims:
            shim.kill()
            shim.wait()
            for pipe in (shim.stdout, shim.stderr):  # what a test left behind may hold the other end
                assert pipe is not None
                pipe.close()
        if self.server is not None:
            self.server.kill()
            self.server.wait()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    it = Node(tmp_path)
    yield it
    it.close()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def gone(pid: int) -> Callable[[], bool]:
    return lambda: not alive(pid)


# -- as if started cold ------------------------------------------------------------------------

LOOK = """
import json, os, signal, sys, threading
def shown(number):
    found = signal.getsignal(number)
    return found.name if isinstance(found, signal.Handlers) else getattr(found, "__name__", str(found))
os.umask(umask := os.umask(0))
inherited = {"TRAINMASTER_WARM", "_"}
print(json.dumps({
    "argv": sys.argv, "name": __name__, "file": __file__, "path": sys.path, "cwd": os.getcwd(),
    "umask": umask, "env": {k: v for k, v in os.environ.items() if k not in inherited},
    "environb": len(os.environb), "signals": {int(n): shown(n) for n in signal.valid_signals()},
    "mask": [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    "threads": threading.active_count(), "main": sys.modules["__main__"].__file__,
    "fds": sorted(os.readlink(f"/proc/self/fd/{n}").split(":")[0] for n in (0, 1, 2)),
    "open": len(os.listdir("/proc/self/fd")), "cpus": sorted(os.sched_getaffinity(0)),
    "flags": list(sys.flags), "buffered": sys.stdout.line_buffering, "group": os.getpgrp() == os.getpid(),
}))
"""


@pytest.mark.parametrize("how", ["script", "module", "command", "command module"])
def test_the_program_sees_what_it_would_see_cold(node: Node, how: str) -> None:
    script = node.program(LOOK, "looks.py")
    target = {
        "script": [script, "a b", "--", "c"],
        "module": ["-m", "looks", "x"],
        "command": [sys.executable, "looks.py", "y"],
        "command module": [sys.executable, "-m", "looks", "", "z"],
    }[how]
    options = ("--exec",) if how.startswith("command") else ()
    env = {"GREETING": "höflich\udcff", "EMPTY": ""}
    cold = json.loads(node.run(*target, options=options, env=env).stdout)
    assert node.record("start")["pid"]
    server = node.open("json", "decimal")
    warm_ = node.run(*target, options=options, env=env)
    seen = json.loads(warm_.stdout)
    assert node.record("start")["shim"] == node.shims[-1].pid, warm_.stderr
    if options:  # a cold command is a child of the shim, in its group; a warm one has its own
        cold.pop("group"), seen.pop("group")
    assert seen == cold
    assert server.poll() is None


def test_the_forks_parent_is_the_server_and_the_record_names_it(node: Node) -> None:
    server = node.open("json")
    shim = node.start(node.program("import time; time.sleep(600)"))
    pid = node.pid()
    assert parent(pid) == server.pid and pid != shim.pid
    # For whoever looks with ps: it is named after what it runs.
    assert b"program.py" in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.parametrize(
    ("body", "code", "recorded", "summary"),
    [
        ("pass", 0, 0, ""),
        ("import sys; sys.exit(75)", 75, 75, ""),
        ("import sys; sys.exit('words')", 1, 1, ""),
        ("raise ValueError('bad\\nworse')", 1, 1, "ValueError: bad"),
        ("raise OSError(28, 'full')", 1, 1, "OSError: [Errno 28] full"),
        ("raise KeyboardInterrupt", 130, 130, "KeyboardInterrupt"),
        ("import os; os._exit(9)", 9, 9, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, 137, ""),
        ("import os; os.abort()", -6, 134, ""),
    ],
)
def test_ends_are_passed_on_and_recorded(
    node: Node, body: str, code: int, recorded: int, summary: str
) -> None:
    node.open("json")
    done = node.run(node.program(body))
    end = node.record("end")
    assert (done.returncode, end["code"], end["summary"]) == (code, recorded, summary)
    assert end["pid"] == node.record("start")["pid"] != node.shims[-1].pid
    assert ("Traceback" in done.stderr) == bool(summary and "Keyboard" not in summary)
    assert ("words" in done.stderr) == ("words" in body)


def test_75_looks_like_success_to_a_launcher(node: Node) -> None:
    node.open("json")
    done = node.run(node.program("import sys; sys.exit(75)"), options=("--launched",))
    assert (done.returncode, node.record("end")["code"]) == (0, 75)


def test_siblings_share_no_chance(node: Node) -> None:
    node.open("random", "numpy.random", "multiprocessing", "uuid", "tempfile")
    script = node.program(
        "import random, numpy, multiprocessing, uuid\n"
        "key = multiprocessing.current_process().authkey.hex()\n"
        "print(random.random(), numpy.random.rand(), uuid.uuid4(), key)"
    )
    first, second = (node.run(script).stdout.split() for _ in range(2))
    assert len(first) == 4 and not set(first) & set(second)


def test_a_fork_keeps_nothing_of_what_imports_did_to_the_process(node: Node) -> None:
    (node.directory / "meddles.py").write_text(
        "import logging, os, signal\n"
        "logging.basicConfig(level=logging.DEBUG)\n"
        "os.environ['SET_BY_IMPORT'] = 'yes'\n"
        "signal.signal(signal.SIGUSR1, signal.SIG_IGN)\n"
    )
    node.open("meddles")
    script = node.program(
        "import logging, os, tempfile\n"
        "print(len(logging.root.handlers), os.environ.get('SET_BY_IMPORT'), tempfile.gettempdir())"
    )
    temporary = node.directory / "elsewhere"
    temporary.mkdir()
    # A variable set by an import is there cold too, once it is imported.
    assert node.run(script, env={"TMPDIR": str(temporary)}).stdout.split() == ["0", "yes", str(temporary)]
    assert node.run(script, env={"SET_BY_IMPORT": "no"}).stdout.split()[1] == "no"


# -- when to start cold ------------------------------------------------------------------------


def assert_cold(node: Node, **env: str) -> subprocess.CompletedProcess[str]:
    done = node.run(node.program("print('ran')"), env=env)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert "shim" not in node.record("start")
    return done


def test_without_a_server_it_starts_cold(node: Node) -> None:
    assert_cold(node)
    node.open("json")
    assert node.server is not None
    node.server.kill()
    node.server.wait()
    assert_cold(node)  # its socket is still there
    assert_cold(node, TRAINMASTER_WARM="")


@pytest.mark.parametrize(
    "reply", [b"", b"hello\n", b"HTTP/1.1 200 OK\n", b"hello\nend 0\n", b"hello\npid x\n"]
)
def test_what_is_no_server_of_ours_does_not_stop_a_start(node: Node, reply: bytes) -> None:
    fake = socket.socket(socket.AF_UNIX)
    fake.bind(str(node.socket))
    fake.listen()
    pid = os.fork()
    if pid == 0:  # a process that answers this and hangs up, again and again
        with contextlib.suppress(BaseException):
            while True:
                connection, _ = fake.accept()
                connection.sendall(reply)
                connection.close()
        os._exit(0)
    fake.close()
    try:
        assert_cold(node)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_server_that_says_nothing_is_not_waited_for(node: Node) -> None:
    with socket.socket(socket.AF_UNIX) as fake:
        fake.bind(str(node.socket))
        fake.listen()
        assert_cold(node)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_another_users_socket_is_not_used(node: Node) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as shared, socket.socket(socket.AF_UNIX) as fake:
        os.chmod(shared, 0o777)
        path = os.path.join(shared, "s")
        os.seteuid(65534)
        try:
            fake.bind(path)
            fake.listen()  # the credentials are those of this moment
        finally:
            os.seteuid(0)
        pid = os.fork()
        if pid == 0:  # it even greets
            with contextlib.suppress(BaseException):
                while True:
                    fake.accept()[0].sendall(b"hello\npid 1\nend 0\n")
            os._exit(0)
        try:
            assert_cold(node, TRAINMASTER_WARM=path)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_nobody_else_may_ask(node: Node) -> None:
    node.open("json")
    mode = node.socket.stat().st_mode
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600


def test_what_is_read_at_import_must_be_the_same(node: Node) -> None:
    node.open("json")
    said = assert_cold(node, OMP_NUM_THREADS="7").stderr
    assert "cold start: OMP_NUM_THREADS" in said
    cpus = os.sched_getaffinity(0)
    if len(cpus) > 1:
        script = node.program("print('ran')")
        command = [sys.executable, "-I", "-S", SHIM, "--warm", "--", script]
        done = subprocess.run(
            ["taskset", "-c", str(min(cpus)), *command], capture_output=True, text=True,
            env={**node.env, "TRAINMASTER_WARM": str(node.socket)},
        )  # fmt: skip
        assert (done.stdout, "other CPUs" in done.stderr) == ("ran\n", True)


@pytest.mark.parametrize("name", ["TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_ELASTIC_WORKER_IDENTICAL"])
def test_what_a_launcher_sets_for_its_ranks_is_read_late(node: Node, name: str) -> None:
    node.open("json")
    done = node.run(node.program(f"import os; print(os.environ[{name!r}])"), env={name: "1"})
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert "shim" in node.record("start")


@pytest.mark.parametrize(
    "command",
    [["sh", "-c", "echo $0"], ["python", "-X", "dev", "p.py"], ["python", "-c", "0"], ["python", "no.py"]],
)
def test_commands_that_are_no_plain_python_start_cold(node: Node, command: list[str]) -> None:
    assert rank.as_program(command) is None
    node.open("json")
    node.run(*command, options=("--exec",))
    assert "shim" not in node.record("start")


# -- imports -----------------------------------------------------------------------------------


def test_what_cannot_be_imported_is_said_once(node: Node) -> None:
    (node.directory / "broken.py").write_text("raise RuntimeError('no GPU here')")
    node.open("broken", "json", "not_there")
    said = node.said.read_text()
    assert said.count("broken cannot be imported: RuntimeError: no GPU here") == 1
    assert said.count("not_there cannot be imported") == 1
    assert node.run(node.program("print('ran')")).stdout == "ran\n"
    assert "shim" in node.record("start")


def test_a_module_that_starts_a_thread_is_left_out(node: Node) -> None:
    (node.directory / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
    )
    server = node.open("decimal", "threaded")
    assert "without threaded: importing it starts a thread" in node.said.read_text()
    assert len(os.listdir(f"/proc/{server.pid}/task")) == 1
    done = node.run(node.program("import sys; print('decimal' in sys.modules, 'threaded' in sys.modules)"))
    assert done.stdout == "True False\n" and "shim" in node.record("start")


def test_waiting_for_a_server_that_died_ends(node: Node) -> None:
    (node.directory / "dies.py").write_text("import os; os._exit(3)")
    server = node.open("dies", wait=False)
    assert not warm.wait_ready(node.socket, 600, server)


def test_a_socket_may_lie_deep(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 90) / ("e" * 90)
    deep.mkdir(parents=True)
    node = Node(deep)
    try:
        node.open("json")
        assert node.run(node.program("print('ran')")).stdout == "ran\n"
        assert "shim" in node.record("start")
    finally:
        node.close()


# -- nothing is left ---------------------------------------------------------------------------

SLEEPS = """
import subprocess, sys, time
child = subprocess.Popen(["sleep", "600"])
open("child.tmp", "w").write(str(child.pid))
import os
os.replace("child.tmp", "child")
time.sleep(600)
"""


def started(node: Node) -> tuple[subprocess.Popen[str], int, int]:
    """(shim, program, its own child)."""
    shim = node.start(node.program(SLEEPS))
    child = int(until(lambda: (node.directory / "child").exists() and (node.directory / "child").read_text()))
    return shim, node.pid(), child


def test_a_killed_shim_takes_its_program_along(node: Node) -> None:
    server = node.open("json")
    shim, program, child = started(node)
    shim.kill()
    until(gone(program))
    until(gone(child))
    assert server.poll() is None and warm.ready(node.socket)


def test_a_stopped_program_dies_with_its_shim(node: Node) -> None:
    node.open("json")
    shim, program, _ = started(node)
    os.kill(program, signal.SIGSTOP)
    shim.kill()
    until(gone(program))


def test_a_killed_server_takes_programs_along_and_shims_say_so(node: Node) -> None:
    server = node.open("json")
    shim, program, child = started(node)
    server.kill()
    until(gone(program))
    os.kill(child, signal.SIGKILL)  # a grandchild is the agent's to find
    _, said = shim.communicate(timeout=60)
    assert shim.returncode == 137 and "the warm server ended" in said
    assert (node.record("end")["code"], node.record("end")["pid"]) == (137, program)


def test_a_killed_agent_takes_all_along(node: Node) -> None:
    body = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from launch import warm
import os
server = warm.start(sys.executable, Path({str(node.socket)!r}), ["json"], dict(os.environ))
print(server.pid, flush=True)
time.sleep(600)
"""
    agent = subprocess.Popen(
        [sys.executable, "-c", body],
        env=node.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert agent.stdout is not None
    server = int(agent.stdout.readline())
    assert warm.wait_ready(node.socket, 60)
    shim, program, child = started(node)
    agent.kill()
    agent.communicate()
    until(gone(server))
    until(gone(program))
    assert shim.wait(60) == 137
    os.kill(child, signal.SIGKILL)


def test_fifty_starts_leave_nothing_in_the_server(node: Node) -> None:
    server = node.open("json")
    script = node.program("import os; print(len(os.listdir('/proc/self/fd')))")
    counts = {node.run(script).stdout for _ in range(2)}
    before = len(os.listdir(f"/proc/{server.pid}/fd"))
    for _ in range(12):
        shims = [node.start(script) for _ in range(4)]
        counts |= {shim.communicate(timeout=60)[0] for shim in shims}
    assert len(counts) == 1, counts  # nor do the programs inherit more and more
    assert len(os.listdir(f"/proc/{server.pid}/fd")) == before
    assert not Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()


def test_an_impatient_asker_costs_nothing(node: Node) -> None:
    """One that connects and says nothing, or half of it, does not keep others waiting."""
    node.open("json")
    with contextlib.ExitStack() as stack:
        for words in (b"", b"1", b"70\nprogram", b"x\n", b"3\na\0b", b"9999999999\n"):
            one = stack.enter_context(socket.socket(socket.AF_UNIX))
            one.connect(str(node.socket))
            one.sendall(words)
        assert node.run(node.program("print('ran')")).stdout == "ran\n"
    assert "shim" in node.record("start")


# -- signals -----------------------------------------------------------------------------------

WAITS = """
import os, signal, sys, time
got = []
if "handle" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: got.append("TERM"))
open("ready", "w").close()
while not os.path.exists("go") and not got:
    time.sleep(0.02)
time.sleep(0.3)
print(*got, "done")
sys.exit(75)
"""


def test_a_step_wide_signal_ends_neither_shim_nor_program(node: Node) -> None:
    node.open("json")
    shim = node.start(node.program(WAITS))
    until(lambda: (node.directory / "ready").exists())
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        shim.send_signal(number)
        os.kill(node.pid(), number)
    (node.directory / "go").touch()
    out, _ = shim.communicate(timeout=60)
    assert (shim.returncode, out) == (75, "done\n")


def test_a_command_gets_the_signal_its_launcher_sends_the_shim_once(node: Node) -> None:
    node.open("json")
    node.program(WAITS)
    shim = node.start(sys.executable, "program.py", "handle", options=("--exec",))
    until(lambda: (node.directory / "ready").exists())
    os.killpg(shim.pid, signal.SIGTERM)  # from its parent, to its group, as launchers do
    out, _ = shim.communicate(timeout=60)
    assert (shim.returncode, out) == (75, "TERM done\n")


def test_a_step_wide_signal_reaches_a_command_only_once(node: Node) -> None:
    node.open("json")
    node.program(WAITS)
    shim = node.start(sys.executable, "program.py", "handle", options=("--exec",))
    until(lambda: (node.directory / "ready").exists())
    slurm = f"import os, signal; os.kill({shim.pid}, signal.SIGTERM)"
    subprocess.run([sys.executable, "-c", slurm], check=True)  # not the shim's parent
    time.sleep(0.5)
    (node.directory / "go").touch()
    out, _ = shim.communicate(timeout=60)
    assert (shim.returncode, out) == (75, "done\n")


# -- launchers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_warm", [False, True])
def test_a_launcher_leaves_no_record_and_its_own_code(node: Node, is_warm: bool) -> None:
    (node.directory / "launches.py").write_text("import os, sys; print(sys.argv[1:]); sys.exit(4)")
    if is_warm:
        node.open("launches")  # fails to import: it leaves at once
    done = node.run("-m", "launches", "--nnodes", "1", options=("--launcher",))
    assert (done.returncode, done.stdout) == (4, "['--nnodes', '1']\n")
    assert not list(node.records.iterdir())
