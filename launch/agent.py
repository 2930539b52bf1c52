"""The agent of one node: starts the node's ranks, relays the order to stop, reports how each ended.

One per node, started by the supervisor (an ``srun`` task, or a process per emulated node). Its own
TERM, which Slurm sends to every process of a step, means "drain": it does not end before its ranks have.
Nothing it started outlives it. ``tests/launch/test_segment.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from resiliency import contract, exitcodes
from resiliency.errors import StorageError, TrainmasterError

from . import control, processes, rank
from .children import Started, ends_so_far, final_ends
from .config import StageConfig, read_stage_config
from .journaling import SafeJournal, writer_id
from .localdir import local_directory
from .outcome import RankEnd, speaker
from .output import Relay
from .placeholders import fill
from .progress import Watcher
from .records import Records
from .roles import Place, Process, build, role_environment
from .signals import Bell

#: After the first failed rank: time for the others to show their own error, before they are ended.
SETTLE_S = 3.0
#: Orders come on standard input; the file is looked at this often, in case they do not.
LOOK_S = 5.0
_TICK_S = 0.25


class Agent:
    """One node's part of one attempt."""

    def __init__(
        self,
        config: StageConfig,
        place: Place,
        *,
        run_dir: Path,
        link: int,
        attempt: str,
        local_dir: Path,
        bell: Bell,
    ) -> None:
        self.config, self.place, self.bell = config, place, bell
        self.run_dir, self.link, self.attempt, self.local = run_dir, link, attempt, local_dir
        paths = contract.RunPaths(run_dir)
        parsed = contract.parse_attempt_id(attempt)
        restart = parsed[2] if parsed else 0
        self.control = paths.control(config.name, link, restart)
        self.log = paths.node_log(config.name, link, restart, place.node)
        self.stop_file = local_dir / "stop"
        self.records = Records(local_dir, place.node, watch_pids=config.launch.container is None)
        self.watcher = Watcher(config.launch.progress if place.index == 0 else None, resolve=self._resolve)
        self.journal = SafeJournal(
            paths.journal,
            run=config.run,
            writer=writer_id(attempt, f"agent-{place.node}"),
            defaults={
                "stage": config.name,
                "attempt": attempt,
                "cycle": 0,
                "node": place.node,
            },
        )
        self.started: list[Started] = []
        self.terminated = False
        self.order = 0
        self.kill_at: float | None = None
        self.failed_at: float | None = None
        self.idle_at: float | None = None
        self.looked_at = 0.0
        self.orders_in: tuple[int, ...] = (0,)
        self._half_line = b""

    def _resolve(self, text: str) -> Path:
        path = Path(fill([text], self.config, self.run_dir, self.link)[0])
        return path if path.is_absolute() else self.config.stage_dir / path

    # -- life ----------------------------------------------------------------------------------

    def run(self) -> int:
        """The node's part of the attempt; the code of the rank that speaks for the node."""
        self._look()
        if self.kill_at is not None:  # told to stop before it began
            return self._end([RankEnd(None, exitcodes.PROGRESS_MADE, time.time())])
        try:
            todo = build(
                self.config,
                self.place,
                self._environment(),
                run_dir=self.run_dir,
                link=self.link,
                local_dir=self.local,
            )
        except (TrainmasterError, OSError) as error:
            return self._end([self._cannot(error)])
        relay = Relay(self.log, self._line)
        failure = self._start(todo, relay.writer)
        relay.started()
        if failure is None:
            while not self._over():
                self._act(self.bell.wait(_TICK_S, *self.orders_in))
                self._read_orders()
        else:
            self._kill_all()
        # What the ranks left behind (servers, loaders) goes with them; only then does the pipe close.
        stuck = processes.kill_descendants(known=[s.popen.pid for s in self.started])
        if stuck:
            print(f"trainmaster: {self.place.node}: processes {stuck} cannot be killed", file=sys.stderr)
        relay.finish()
        ends = (
            [failure]
            if failure
            else final_ends(self.started, self.records, self.config.launch.ranks_per_node)
        )
        return self._end(ends)

    def _environment(self) -> dict[str, str]:
        own = {
            contract.ENV_RUN: self.config.run,
            contract.ENV_RUN_DIR: str(self.run_dir),
            contract.ENV_STAGE: self.config.name,
            contract.ENV_LINK: str(self.link),
            contract.ENV_TOKEN: contract.token(self.config.run, self.config.name, self.link),
            contract.ENV_CLUSTER: self.config.cluster,
            contract.ENV_ATTEMPT: self.attempt,
            contract.ENV_CYCLE: "0",
            contract.ENV_NODE: self.place.node,
            contract.ENV_STOP_FILE: str(self.stop_file),
            contract.ENV_STAGE_CONFIG: str(self.config.path),
            rank.ENV_DIR: str(self.local),
        }
        return role_environment(self.config, os.environ, own)

    def _cannot(self, error: Exception) -> RankEnd:
        print(f"trainmaster: {self.place.node}: {error}", file=sys.stderr, flush=True)
        message = error.message if isinstance(error, TrainmasterError) else str(error)
        return RankEnd(None, exitcodes.NEEDS_HUMAN, time.time(), message, "config_error")

    def _start(self, todo: Sequence[Process], output: int) -> RankEnd | None:
        """Start every process; what prevented one, or None."""
        for process in todo:
            try:
                popen = subprocess.Popen(
                    list(process.argv),
                    cwd=self.config.launch.workdir,
                    env=dict(process.env),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    preexec_fn=processes.child_hook(ignore=process.ignore),
                )
            except OSError as error:
                name = str(error.filename or process.argv[0])  # its directory may be what is gone
                print(f"trainmaster: cannot start {name}: {error.strerror}", file=sys.stderr, flush=True)
                missing = isinstance(error, FileNotFoundError)
                code = exitcodes.NOT_FOUND if missing else exitcodes.NOT_EXECUTABLE
                return RankEnd(process.rank, code, time.time(), f"{name}: {error.strerror}")
            except ValueError as error:  # a NUL byte in an argument or a variable
                return self._cannot(error)
            self.started.append(Started(process, popen))
            self.journal.append("role.started", {"role": self.config.role, "pid": popen.pid})
        return None

    def _over(self) -> bool:
        now = time.time()
        for one in self.started:
            if one.ended_at is None and one.popen.poll() is not None:
                one.ended_at = now
        return all(one.ended_at is not None for one in self.started)

    # -- while it runs -------------------------------------------------------------------------

    def _line(self, line: bytes) -> None:
        self.records.line(line)
        self.watcher.line(line)

    def _act(self, rung: Sequence[signal.Signals]) -> None:
        now = time.monotonic()
        if rung:  # whatever it was: the step, or this node, is asked to stop
            self.terminated = True
            wanted = self.config.launch.stop_signal
            self._drain(self.config.launch.grace_s, signalled=wanted in rung)
        if now - self.looked_at >= LOOK_S:
            self._look()
        if self.watcher.active and (word := self.watcher.due()) is not None:
            self.journal.append("progress", word)
        self._end_survivors(now)
        self._end_launcher(now)
        if self.kill_at is not None and now >= self.kill_at:
            self._kill_all()

    def _look(self) -> None:
        self.looked_at = time.monotonic()
        self._obey(control.orders(self.control))

    def _read_orders(self) -> None:
        """What the supervisor wrote to our standard input."""
        if not self.orders_in:
            return
        try:
            raw = os.read(0, 4096)
        except BlockingIOError:
            return
        except OSError:
            raw = b""
        if not raw:
            self.orders_in = ()  # closed: whatever becomes of the supervisor, the file remains
            return
        *lines, self._half_line = (self._half_line + raw).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                self._obey(control.parse(json.loads(line)))

    def _obey(self, order: control.Order | None) -> None:
        if order is not None and order.number > self.order:
            self.order = order.number
            self._drain(order.grace_s)

    def _drain(self, grace_s: float, *, signalled: bool = False) -> None:
        """Stop file, then a command's own signal; later calls can only shorten the grace.

        ``signalled``: the signal went to the whole step, so a command that stops on it has had its own.
        """
        at = time.monotonic() + grace_s
        if self.kill_at is not None:
            self.kill_at = min(self.kill_at, at)
            return
        self.kill_at = at
        with contextlib.suppress(OSError):
            self.stop_file.touch()
        wanted = self.config.launch.stop_signal
        if not self.config.is_command or wanted is None:
            return
        if signalled:
            return
        for one in self.started:
            if one.ended_at is None:
                # The whole process group: `bash script` alone would not pass it on.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(one.popen.pid, wanted)

    def _end_survivors(self, now: float) -> None:
        """A failed rank leaves the others waiting in a collective for ever: end them soon after it."""
        if self.config.launch.restarts_in_job and any(s.process.rank is None for s in self.started):
            return  # the launcher decides
        if self.failed_at is None:
            if any(end.failed for end in ends_so_far(self.started, self.records)):
                self.failed_at = now
        elif now - self.failed_at >= SETTLE_S:
            self._kill_all()

    def _end_launcher(self, now: float) -> None:
        """While draining, a launcher without ranks gets SETTLE_S to leave: some take much longer."""
        if self.kill_at is None or all(s.process.rank is not None for s in self.started):
            return
        if len(ends_so_far(self.started, self.records)) < self.config.launch.ranks_per_node:
            return
        self.idle_at = self.idle_at or now
        if now - self.idle_at >= SETTLE_S:
            self._kill_all()

    def _kill_all(self) -> None:
        for one in self.started:
            one.killed = one.killed or one.popen.poll() is None
        processes.kill_descendants(known=[s.popen.pid for s in self.started])

    # -- its last word -------------------------------------------------------------------------

    def _end(self, ends: Sequence[RankEnd]) -> int:
        if self.watcher.active and (word := self.watcher.due(final=True)) is not None:
            self.journal.append("progress", word)
        said = speaker(ends)
        code = said.code if said is not None else 1
        if said is not None and said.failed:
            who = f"rank {said.rank}" if said.rank is not None else self.config.role
            why = f": {said.summary}" if said.summary else ""
            print(
                f"trainmaster: {self.place.node}: {who} ended with {code} "
                f"({exitcodes.describe(code)}){why}; log: {self.log}",
                file=sys.stderr, flush=True,
            )  # fmt: skip
        self.journal.append("role.exited", {"role": self.config.role, "exit_code": code}, sync=True)
        self.journal.close()
        it = control.NodeReport(self.place.node, ends, self.terminated, self.watcher.step)
        try:
            control.report(self.control, it)
        except (StorageError, OSError) as error:
            print(f"trainmaster: {error}", file=sys.stderr, flush=True)
        return code


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="One node's part of an attempt; started by the supervisor.")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--stage", required=True)
    parser.add_argument("--link", type=int, required=True)
    parser.add_argument("--attempt", required=True)
    parser.add_argument("--master", required=True, help="HOST:PORT of the first node")
    parser.add_argument("--node", help="default: SLURMD_NODENAME")
    parser.add_argument("--index", type=int, help="default: SLURM_NODEID")
    given = parser.parse_args(argv)
    # Before anything slow: a signal that comes now must not end the agent.
    bell = Bell((signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2))
    processes.become_subreaper()
    os.set_blocking(0, False)
    node = given.node or os.environ["SLURMD_NODENAME"]
    index = given.index if given.index is not None else int(os.environ.get("SLURM_NODEID", "0"))
    host, _, port = given.master.rpartition(":")
    # srun's own address, on the batch host; only steps are told, and names of nodes need not resolve.
    host = os.environ.get("SLURM_LAUNCH_NODE_IPADDR") or host if given.node is None else host
    try:
        config = read_stage_config(contract.RunPaths(given.run_dir).stage_config(given.stage))
        place = Place(node, index, config.launch.nodes, host, int(port))
        with local_directory(given.attempt, node) as local:
            agent = Agent(
                config,
                place,
                run_dir=given.run_dir,
                link=given.link,
                attempt=given.attempt,
                local_dir=local,
                bell=bell,
            )
            return agent.run()
    except TrainmasterError as error:
        print(f"trainmaster: {node}: {error}", file=sys.stderr, flush=True)
        return exitcodes.NEEDS_HUMAN if not isinstance(error, StorageError) else error.exit_code


if __name__ == "__main__":
    sys.exit(main())
