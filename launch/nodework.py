"""One node's part of an attempt: runs the cycles the supervisor orders, reports what happens in them.

One per node, spares included, started by the supervisor (an ``srun`` task, or a process per emulated
node). Its own TERM, which Slurm sends to every process of a step, means "drain": it does not end before
its ranks have. Nothing it started outlives it. ``tests/launch/test_segment.py``, ``test_cycles.py``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resiliency import contract, exitcodes

from .channel import Message, Wire
from .config import StageConfig
from .generation import Generation
from .journaling import SafeJournal, writer_id
from .outcome import RankEnd, speaker
from .placeholders import fill
from .progress import Watcher
from .roles import Place, role_environment
from .sidecars import Sidecars
from .signals import Bell
from .watching import Heart
from .workbench import Workbench

#: After the first failed rank: time for the supervisor to end the cycle, before its ranks are ended here.
SETTLE_S = 3.0
#: Without the supervisor for this long, an agent has nobody to work for: another attempt may have begun.
ORPHAN_S = 20.0
_TICK_S = 0.25


class Agent:
    """One node's part of one attempt."""

    def __init__(
        self,
        config: StageConfig,
        node: str,
        *,
        run_dir: Path,
        link: int,
        attempt: str,
        local_dir: Path,
        wire: Wire,
        bell: Bell,
    ) -> None:
        self.config, self.node, self.bell, self.wire = config, node, bell, wire
        self.run_dir, self.link, self.attempt, self.local = run_dir, link, attempt, local_dir
        paths = contract.RunPaths(run_dir)
        parsed = contract.parse_attempt_id(attempt)
        self.log = paths.node_log(config.name, link, parsed[2] if parsed else 0, node)
        self.stop_file = local_dir / "stop"
        self.watcher: Watcher | None = None
        self.journal = SafeJournal(
            paths.journal,
            run=config.run,
            writer=writer_id(attempt, f"agent-{node}"),
            defaults={"stage": config.name, "attempt": attempt, "cycle": 0, "node": node},
        )
        self.bench = Workbench(config, node, run_dir=run_dir, local_dir=local_dir)
        self.sidecars = Sidecars(
            config.launch.roles, node, config.launch.workdir,
            log_of=lambda role: self.log.with_name(f"{self.log.stem}.{role}.log"),
            tell=self.journal.append,
            fill=self._role_argv,
        )  # fmt: skip
        self.generation: Generation | None = None
        self.heart: Heart | None = None
        self.leaving = False
        self.code = exitcodes.PROGRESS_MADE
        self.kill_at: float | None = None
        self.idle_at: float | None = None
        self.alone_since: float | None = None
        # Of the last cycle, for whoever missed it: its ends, the end of its log, its furthest step.
        self.last_ends: Sequence[RankEnd] = ()
        self.last_cycle = 0
        self.last_words = ""
        self.step: int | None = None

    @property
    def draining(self) -> bool:
        return self.kill_at is not None

    # -- life ----------------------------------------------------------------------------------

    def run(self) -> int:
        """The node's part of the attempt; the code of the rank that speaks for the node's last cycle."""
        self.bench.open()
        try:
            while not self.leaving:
                also = [*self.wire.filenos(), *self.bench.filenos()]
                if self.generation is not None:
                    also += self.generation.filenos()
                self._signals(self.bell.wait(_TICK_S, *also))
                for message in self.wire.poll():
                    self._obey(message)
                self._keep_company()
                for word in self.bench.poll():
                    self.wire.send(word)
                self._look_after()
            return self._leave()
        finally:
            self.sidecars.close()
            self.bench.close()

    def _keep_company(self) -> None:
        """Reconnect; without a supervisor for long, drain and go."""
        if self.wire.up:
            self.alone_since = None
            return
        now = time.monotonic()
        if self.alone_since is None:
            self.alone_since = now
            print(f"trainmaster: {self.node}: lost the supervisor", file=sys.stderr, flush=True)
        if self.wire.connect(1.0):
            self._say_state()
        elif now - self.alone_since > ORPHAN_S:
            self.leaving = True  # ends what runs, without a word to save: it would not be ours to write

    def _say_state(self) -> None:
        """After a connection was lost: what the supervisor may have missed."""
        if self.generation is None and self.last_ends:
            self._say_ended(self.last_ends)

    def _signals(self, rung: Sequence[signal.Signals]) -> None:
        if not rung:
            return
        # Whatever it was: the step, or this node, is asked to stop.
        self.wire.send({"kind": "terminated", "signal": rung[0].name})
        self._drain(self.config.launch.grace_s, signalled=self.config.launch.stop_signal in rung)

    # -- orders --------------------------------------------------------------------------------

    def _obey(self, order: Message) -> None:
        do = order.get("do")
        try:
            if do == "prepare":
                self.bench.prepare(int(order["cycle"]), order)
            elif do == "start":
                self._start(order)
            elif do == "stop" and self._current(order):
                self._stop(float(order.get("grace_s") or 0.0))
            elif do == "drain":
                self._drain(float(order["grace_s"]))
            elif do == "records":
                self.wire.send(self._heart_word("records"))
            elif do == "dump" and self._current(order):
                self._dump(order)
            elif do == "exchange":
                self.bench.exchange(order)
            elif do == "exit":
                self.leaving = True
        except (KeyError, TypeError, ValueError) as error:
            print(
                f"trainmaster: {self.node}: an order makes no sense: {error!r}", file=sys.stderr, flush=True
            )

    def _current(self, order: Message) -> bool:
        return self.generation is not None and self.generation.cycle == int(order["cycle"])

    def _start(self, order: Message) -> None:
        cycle = int(order["cycle"])
        if self.generation is not None:
            raise ValueError(f"cycle {cycle} was ordered while {self.generation.cycle} runs")
        place = Place(
            self.node, int(order["index"]), int(order["count"]), str(order["master"]), int(order["port"])
        )
        if self.draining:  # told to stop before it began
            self._say_ended([RankEnd(None, exitcodes.PROGRESS_MADE, time.time())], cycle)
            return
        if self.watcher is None:
            progress = self.config.launch.progress if place.index == 0 else None
            self.watcher = Watcher(progress, resolve=self._resolve)
        generation = Generation(
            self.config, place, cycle, self.local, self.log, self.run_dir, self.link,
            keep=self.bench.keep(), keep_trees=self.sidecars.pids,
        )  # fmt: skip
        if not self.draining:
            self.stop_file.unlink(missing_ok=True)  # an earlier cycle's
        self.generation = generation
        self.heart = Heart(self.config, generation, self.node)
        environment = self._environment(cycle)
        if not self.draining:
            self.sidecars.ensure(first=place.index == 0, environment=environment)
        generation.start(environment, self.watcher.line)
        for one in generation.started:
            data = {"role": self.config.role, "pid": one.popen.pid}
            self.journal.append("role.started", data, cycle=cycle)
        self.wire.send({"kind": "started", "cycle": cycle})

    def _role_argv(self, argv: Sequence[str]) -> list[str]:
        """A role's command, in the stage's container if it has one."""
        words = fill(argv, self.config, self.run_dir, self.link)
        launch = self.config.launch
        if not launch.container:
            return words
        from .container import container_wrap

        workdir = launch.workdir or os.getcwd()
        return list(container_wrap(launch.container, words, workdir=workdir, gpus=launch.gpus_per_node > 0))

    def _resolve(self, text: str) -> Path:
        path = Path(fill([text], self.config, self.run_dir, self.link)[0])
        return path if path.is_absolute() else self.config.stage_dir / path

    def _environment(self, cycle: int) -> dict[str, str]:
        own = {
            contract.ENV_RUN: self.config.run,
            contract.ENV_RUN_DIR: str(self.run_dir),
            contract.ENV_STAGE: self.config.name,
            contract.ENV_LINK: str(self.link),
            contract.ENV_TOKEN: contract.token(self.config.run, self.config.name, self.link),
            contract.ENV_CLUSTER: self.config.cluster,
            contract.ENV_ATTEMPT: self.attempt,
            contract.ENV_CYCLE: str(cycle),
            contract.ENV_NODE: self.node,
            contract.ENV_STOP_FILE: str(self.stop_file),
            contract.ENV_STAGE_CONFIG: str(self.config.path),
            contract.ENV_NODE_DIR: str(self.bench.node_dir),
            **self.bench.environment(),
        }
        if self.config.launch.faults:
            own[contract.ENV_FAULTS] = self.config.launch.faults
        return role_environment(self.config, os.environ, own)

    def _stop(self, grace_s: float) -> None:
        """End the cycle: at once, or with time for a command's processes to save."""
        assert self.generation is not None
        if grace_s <= 0:
            self.generation.kill()
        elif self.generation.kill_at is None:
            self.generation.ask(time.monotonic() + grace_s)
            self._ask_to_stop()

    def _drain(self, grace_s: float, *, signalled: bool = False) -> None:
        """Stop file, then a command's own signal; later calls can only shorten the grace.

        ``signalled``: the signal went to the whole step, so a command that stops on it has had its own.
        """
        at = time.monotonic() + grace_s
        if self.kill_at is not None:
            self.kill_at = min(self.kill_at, at)
            return
        self.kill_at = at
        self._ask_to_stop(signalled=signalled)

    def _ask_to_stop(self, *, signalled: bool = False) -> None:
        with contextlib.suppress(OSError):
            self.stop_file.touch()
        wanted = self.config.launch.stop_signal
        if self.generation is None or not self.config.is_command or wanted is None or signalled:
            return
        for one in self.generation.started:
            if one.ended_at is None:
                # The whole process group: `bash script` alone would not pass it on.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(one.popen.pid, wanted)

    def _dump(self, order: Message) -> None:
        assert self.generation is not None
        self.bench.dump(self.generation, Path(str(order["dir"])), float(order.get("timeout_s") or 2.0))

    # -- while a cycle runs --------------------------------------------------------------------

    def _look_after(self) -> None:
        if not self.draining:
            self.sidecars.look_after()
        generation = self.generation
        if generation is None:
            return
        if generation.over():
            self._finish(generation)
            return
        now = time.monotonic()
        self._tell_progress(generation.cycle)
        failed = generation.first_failure() or self._role_failure()
        if failed is not None:
            self.wire.send({"kind": "failed", "cycle": generation.cycle, "end": failed.as_data()})
        waiting = generation.failed_at is not None and generation.kill_at is None
        if waiting and now - (generation.failed_at or now) >= SETTLE_S:
            # The others wait in a collective for ever, and nobody told us to end them.
            generation.kill()
        self._end_launcher(generation, now)
        if any(at is not None and now >= at for at in (self.kill_at, generation.kill_at)):
            generation.kill()
        if self.heart is not None and self.kill_at is None:
            for kind in self.heart.due():
                self.wire.send(self._heart_word(kind))

    def _tell_progress(self, cycle: int, *, final: bool = False) -> None:
        """What a command that does not know us shows of its progress."""
        if self.watcher is None or not self.watcher.active:
            return
        if (word := self.watcher.due(final=final)) is not None:
            self.journal.append("progress", word, cycle=cycle)
        if (saved := self.watcher.saved()) is not None:
            self.journal.append("checkpoint.committed", saved, cycle=cycle)

    def _role_failure(self) -> RankEnd | None:
        """An essential role that is given up: the cycle cannot go on without it."""
        if not self.sidecars.failed:
            return None
        role, code = self.sidecars.failed.pop()
        why = f"role {role} ended with {code}, its restarts are used up"
        return RankEnd(None, code, time.time(), why, node=self.node)

    def _heart_word(self, kind: str) -> dict[str, Any]:
        rows: list[Any] = []
        cycle = -1
        if self.heart is not None and self.generation is not None:
            rows, cycle = self.heart.rows(), self.generation.cycle
        return {"kind": kind, "cycle": cycle, "node": self.node, "ranks": rows}

    def _end_launcher(self, generation: Generation, now: float) -> None:
        """While draining, a launcher without ranks gets SETTLE_S to leave: some take much longer."""
        if self.kill_at is None or not generation.launched or not generation.all_spoke():
            return
        self.idle_at = self.idle_at or now
        if now - self.idle_at >= SETTLE_S:
            generation.kill()

    def _finish(self, generation: Generation) -> None:
        ends = generation.close()
        self.last_words = generation.last_words() if any(end.failed for end in ends) else ""
        self.step = self.heart.step() if self.heart is not None else None
        self.generation, self.heart, self.idle_at = None, None, None
        self._tell_progress(generation.cycle, final=True)
        said = speaker(ends)
        self.code = said.code if said is not None else 1
        if said is not None and said.failed:
            who = f"rank {said.rank}" if said.rank is not None else self.config.role
            why = f": {said.summary}" if said.summary else ""
            print(
                f"trainmaster: {self.node}: {who} ended with {said.code} "
                f"({exitcodes.describe(said.code)}){why}; log: {self.log}",
                file=sys.stderr, flush=True,
            )  # fmt: skip
        data = {"role": self.config.role, "exit_code": self.code}
        self.journal.append("role.exited", data, sync=True, cycle=generation.cycle)
        self._say_ended(ends, generation.cycle)

    def _say_ended(self, ends: Sequence[RankEnd], cycle: int | None = None) -> None:
        self.last_ends = ends
        self.last_cycle = self.last_cycle if cycle is None else cycle
        self.wire.send(
            {
                "kind": "ended",
                "cycle": self.last_cycle,
                "ends": [end.as_data() for end in ends],
                "step": self._reached(),
                "log": self.last_words,
            }
        )

    def _reached(self) -> int | None:
        read = self.watcher.step if self.watcher is not None else None
        return max((step for step in (self.step, read) if step is not None), default=None)

    # -- its last word -------------------------------------------------------------------------

    def _leave(self) -> int:
        if self.generation is not None:
            self.generation.kill()
            self._finish(self.generation)
        self.journal.close()
        self.wire.send({"kind": "bye", "code": self.code})
        self.wire.drain(2.0)
        self.wire.close()
        return self.code
