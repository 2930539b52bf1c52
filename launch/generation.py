"""The ranks of one cycle on one node: started, watched, ended. Decides nothing.

Each cycle has a node-local directory of its own, so that nothing of an earlier one can be taken for its.
``tests/launch/test_generation.py``.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from resiliency import contract, exitcodes
from resiliency.errors import TrainmasterError

from . import processes, rank
from .children import Started, ends_so_far, final_ends
from .config import StageConfig
from .outcome import RankEnd
from .output import Relay
from .records import Records
from .roles import Place, Process, build


@dataclass
class Generation:
    """One cycle's processes. ``keep``: children of the agent that are not the cycle's (the warm server)."""

    config: StageConfig
    place: Place
    cycle: int
    directory: Path
    log: Path
    run_dir: Path
    link: int
    keep: Sequence[int] = ()
    keep_trees: Callable[[], Sequence[int]] = tuple
    started: list[Started] = field(default_factory=list)
    failure: RankEnd | None = None
    failed_at: float | None = None  # monotonic, as kill_at: when what is left is ended
    kill_at: float | None = None

    def __post_init__(self) -> None:
        self.ranks_dir = self.directory / "ranks" / str(self.cycle)
        self.records_dir = self.directory / "records" / str(self.cycle)
        for path in (self.ranks_dir, self.records_dir):
            path.mkdir(parents=True, exist_ok=True)
        watch = self.config.launch.container is None
        self.records = Records(self.ranks_dir, self.place.node, watch_pids=watch)
        self._relay: Relay | None = None
        self._pidfds: dict[int, int] = {}
        self._seen: set[int] = set()
        self._log_from = self.log.stat().st_size if self.log.exists() else 0

    # -- start ---------------------------------------------------------------------------------

    def start(self, environment: Mapping[str, str], on_line: Callable[[bytes], None]) -> None:
        """Start every process; what prevented it becomes :attr:`failure`. Main thread only."""
        env = {
            **environment,
            contract.ENV_CYCLE: str(self.cycle),
            contract.ENV_RECORDS: str(self.records_dir),
            rank.ENV_DIR: str(self.ranks_dir),
        }
        try:
            todo = build(
                self.config, self.place, env,
                run_dir=self.run_dir, link=self.link, local_dir=self.ranks_dir,
            )  # fmt: skip
        except (TrainmasterError, OSError) as error:
            self.failure = cannot(self.place.node, error)
            return

        def line(text: bytes) -> None:
            self.records.line(text)
            on_line(text)

        self._relay = Relay(self.log, line)
        # For whoever reads the log of several cycles: only the last one's words count.
        os.write(
            self._relay.writer, f"trainmaster: cycle {self.cycle} starts on {self.place.node}\n".encode()
        )
        for process in todo:
            self.failure = self.failure or self._start(process, self._relay.writer)
        self._relay.started()
        if self.failure is not None:
            self.kill()

    def _start(self, process: Process, output: int) -> RankEnd | None:
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
            return cannot(self.place.node, error)
        self.started.append(Started(process, popen))
        return None

    # -- watch ---------------------------------------------------------------------------------

    def over(self) -> bool:
        """Whether every process has ended."""
        now = time.time()
        for one in self.started:
            if one.ended_at is None and one.popen.poll() is not None:
                one.ended_at = now
        return all(one.ended_at is not None for one in self.started)

    def first_failure(self) -> RankEnd | None:
        """The first failed rank, once: when it is new."""
        if self.failed_at is not None:
            return None
        failed = [end for end in ends_so_far(self.started, self.records) if end.failed]
        if not failed:
            return None
        self.failed_at = time.monotonic()
        return min(failed, key=lambda end: end.at)

    def filenos(self) -> tuple[int, ...]:
        """Descriptors that become readable when a rank dies: a launcher tells of it much later, or never."""
        waiting = self.records.watch_pids and len(self._seen) < self.config.launch.ranks_per_node
        # Each look reads a file a rank: once all have started there is nothing new in them.
        for rank_, pids in self.records.watched().items() if waiting else ():
            if rank_ not in self._seen:
                self._seen.add(rank_)
                for pid in pids:
                    with contextlib.suppress(OSError):  # it is gone already; or a kernel before 5.3
                        self._pidfds[pid] = os.pidfd_open(pid)
        for pid in [pid for pid in self._pidfds if not processes.alive(pid)]:
            os.close(self._pidfds.pop(pid))
        return tuple(self._pidfds.values())

    def all_spoke(self) -> bool:
        """Whether every rank has told how it ended, though a launcher may still be there."""
        spoken = ends_so_far(self.started, self.records)
        return len(spoken) >= self.config.launch.ranks_per_node

    def last_words(self, most: int = 64 << 10) -> str:
        """The end of what this cycle wrote to the node's log."""
        try:
            with self.log.open("rb") as stream:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(self._log_from, size - most))
                return stream.read(most).decode("utf-8", "replace")
        except OSError:
            return ""

    def pids(self) -> dict[int, int]:
        """Rank → process id, of those that run."""
        found = {one.process.rank: one.popen.pid for one in self.started if one.process.rank is not None}
        return {rank: pid for rank, pid in (found | self.records.pids()).items() if processes.alive(pid)}

    @property
    def launched(self) -> bool:
        """Whether a launcher stands between us and the ranks."""
        return any(one.process.rank is None for one in self.started)

    # -- end -----------------------------------------------------------------------------------

    def ask(self, kill_at: float) -> None:
        """Its processes are being asked to end by then: how they end is not of their own making."""
        self.kill_at = kill_at
        for one in self.started:
            one.kill_now()

    def kill(self) -> None:
        """SIGKILL all of it, at once."""
        for one in self.started:
            one.kill_now()
        self._sweep()

    def _sweep(self) -> list[int]:
        known = [one.popen.pid for one in self.started]
        return processes.kill_descendants(known=known, keep=self.keep, keep_trees=self.keep_trees())

    def close(self) -> list[RankEnd]:
        """After :meth:`over`: what the ranks left behind goes with them; how each of them ended."""
        stuck = self._sweep()
        while self._pidfds:
            os.close(self._pidfds.popitem()[1])
        if stuck:
            print(f"trainmaster: {self.place.node}: processes {stuck} cannot be killed", file=sys.stderr)
        self.over()
        if self._relay is not None:
            self._relay.finish()
        if self.failure is not None:
            return [self.failure]
        return final_ends(self.started, self.records, self.config.launch.ranks_per_node)


def cannot(node: str, error: Exception) -> RankEnd:
    """The end of ranks that could not be started as they are configured."""
    print(f"trainmaster: {node}: {error}", file=sys.stderr, flush=True)
    message = error.message if isinstance(error, TrainmasterError) else str(error)
    return RankEnd(None, exitcodes.NEEDS_HUMAN, time.time(), message, "config_error")
