"""Brings the whole cluster up, heals it, takes it down: the order of things lives here and
nowhere else.

`up` either ends with every node usable or raises, having stopped what it had started. The
caller holds the lock (`lock.exclusive`). Held to it by tests/slurm/test_dev_cluster.py.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from . import accounting, nodes, slurm
from .daemons import all_daemons, mariadbd, munged, slurmctld, slurmd, slurmdbd
from .errors import DevClusterError
from .install import require_installed
from .lock import lock_path
from .prepare import OURS, check_machine, check_ports, prepare
from .processes import MARKER, Daemon, all_gone, all_pids, read_environ, send, wait_until
from .settings import Cluster, Layout, Settings
from .users import remove_created_users

NODES_READY_S = 60.0


@dataclass
class DevCluster:
    layout: Layout
    settings: Settings
    say: Callable[[str], None]
    _started: list[Daemon] = field(default_factory=list)

    # --- up ---------------------------------------------------------------------------

    def up(self) -> list[str]:
        """Everything running and every node usable; the names of the daemons that had to be
        started."""
        require_installed()
        check_machine(self.layout)
        self._started = []
        try:
            self._up()
        except BaseException:  # Ctrl-C included: nothing may stay behind half started
            if self._started:
                self.say(f"failed: stopping what was started ({len(self._started)} daemons)")
            for daemon in reversed(self._started):
                daemon.stop(timeout_s=5)
            raise
        return [daemon.name for daemon in self._started]

    def _up(self) -> None:
        layout, settings = self.layout, self.settings
        check_ports([d for d in all_daemons(layout, settings) if d.pid() is None])
        changed = prepare(layout, settings)
        for cluster in settings.clusters:
            self.thaw(cluster)
        self._start_munge_and_database()
        self.start_accounting()
        accounting.ensure_accounts(layout, settings)
        for cluster in settings.clusters:
            conf = layout.slurm_conf(cluster.name)
            if not self.start_controller(cluster) and conf in changed:
                slurm.call(layout, cluster.name, "scontrol", "reconfigure")
        for cluster in settings.clusters:
            self.start_nodes(cluster, cluster.node_names)

    def is_running(self) -> bool:
        return any(daemon.pid() for daemon in all_daemons(self.layout, self.settings))

    def _start(self, daemon: Daemon) -> bool:
        """Launch unless it runs; True when it had to be launched."""
        if daemon.pid() is not None:
            return False
        self._started.append(daemon)
        daemon.launch()
        return True

    def _start_munge_and_database(self) -> None:
        layout, settings = self.layout, self.settings
        if self._start(munged(layout)):
            munged(layout).wait_for_pid()
        if not wait_until(lambda: accounting.munge_answers(layout), 10):
            raise munged(layout).failure("does not answer")
        database = mariadbd(layout, settings)
        if database.pid() is None:
            accounting.create_database_files(layout)
        if self._start(database):
            accounting.wait_for_database(layout, settings)
            accounting.ensure_database(layout, settings)
            self.say("munge and MariaDB up")

    def start_accounting(self) -> bool:
        daemon = slurmdbd(self.layout, self.settings)
        started = self._start(daemon)
        if started:
            daemon.wait_for_pid()
            accounting.wait_for_slurmdbd(self.layout, self.settings)
            self.say("slurmdbd up")
        return started

    def start_controller(self, cluster: Cluster) -> bool:
        daemon = slurmctld(self.layout, cluster)
        self.thaw(cluster)
        started = self._start(daemon)
        if started:
            daemon.wait_for_pid()
        if not wait_until(lambda: slurm.ping(self.layout, cluster), 30, poll_s=0.1):
            raise daemon.failure("does not answer")
        if started:
            self.say(f"{cluster.name}: slurmctld up")
        return started

    def start_nodes(self, cluster: Cluster, names: list[str]) -> list[str]:
        """Boot the nodes that are off, resume those that are down or drained, wait until all
        are usable."""
        for name in names:
            daemon = slurmd(self.layout, cluster, name)
            if daemon.pid() is None:
                self._started.append(daemon)
        started = nodes.ensure_running(self.layout, cluster, names)
        resumed = self.wait_for_nodes(cluster, names)
        if started or resumed:
            also = f", {len(resumed)} resumed" if resumed else ""
            self.say(f"{cluster.name}: {len(names)} nodes ready ({len(started)} started{also})")
        return started

    def wait_for_nodes(self, cluster: Cluster, names: list[str]) -> set[str]:
        """Until all are usable; the nodes that had to be resumed on the way."""
        resumed: set[str] = set()
        last_resume = 0.0
        states: dict[str, str] = {}

        def ready() -> bool:
            nonlocal states, last_resume
            states = slurm.node_states(self.layout, cluster)
            bad = [n for n in names if slurm.needs_resume(states.get(n, ""))]
            if bad and time.monotonic() - last_resume > 1:
                slurm.resume(self.layout, cluster, bad)
                last_resume = time.monotonic()
                resumed.update(bad)
            return all(slurm.is_usable(states.get(n, "")) for n in names)

        if not wait_until(ready, NODES_READY_S, poll_s=0.15):
            seen = ", ".join(
                f"{n} {states.get(n, 'unknown')}" for n in names if not slurm.is_usable(states.get(n, ""))
            )
            raise slurmctld(self.layout, cluster).failure(
                f"has nodes not ready after {NODES_READY_S:g} s: {seen}"
            )
        return resumed

    # --- faults -----------------------------------------------------------------------

    def freeze(self, cluster: Cluster) -> bool:
        """SIGSTOP: the port accepts connections, nobody answers. False when it was frozen
        already."""
        daemon = slurmctld(self.layout, cluster)
        pid = daemon.pid()
        if pid is None:
            raise DevClusterError(
                f"slurmctld of {cluster.name} is not running",
                hint=f"start it: dev-cluster start-controller {cluster.name}",
            )
        if daemon.state() == "frozen":
            return False
        send([pid], signal.SIGSTOP)
        wait_until(lambda: daemon.state() == "frozen", 5)
        return True

    def thaw(self, cluster: Cluster) -> bool:
        daemon = slurmctld(self.layout, cluster)
        pid = daemon.pid()
        if pid is None or daemon.state() != "frozen":
            return False
        send([pid], signal.SIGCONT)
        wait_until(lambda: daemon.state() != "frozen", 5)
        return True

    def heal(self) -> None:
        """Back to a clean slate: no job, no failing hook, every daemon running, every node idle."""
        nodes.clear_all_hook_failures(self.layout)
        self.up()
        for cluster in self.settings.clusters:
            self.cancel_all_jobs(cluster)
            self.wait_for_nodes(cluster, cluster.node_names)

    def cancel_all_jobs(self, cluster: Cluster, timeout_s: float = 40) -> None:
        begin = time.monotonic()
        forced = False

        def empty() -> bool:
            nonlocal forced
            out = slurm.try_call(self.layout, cluster.name, "squeue", "--noheader", "-o", "%u %t %N")
            if out is None:
                return False
            rows = [line.split() for line in out.splitlines()]
            for user in {row[0] for row in rows if row[1] != "CG"}:
                slurm.try_call(self.layout, cluster.name, "scancel", "--quiet", f"--user={user}")
            if rows and not forced and time.monotonic() - begin > timeout_s / 2:
                # A job stuck in COMPLETING ends when its node is declared down
                forced = True
                for nodelist in {row[2] for row in rows if row[1] == "CG" and len(row) > 2}:
                    slurm.try_call(
                        self.layout, cluster.name, "scontrol", "update",
                        f"nodename={nodelist}", "state=down", "reason=dev-cluster: stuck job",
                    )  # fmt: skip
            return not rows

        if not wait_until(empty, timeout_s, poll_s=0.2):
            raise slurmctld(self.layout, cluster).failure(f"still has jobs {timeout_s:g} s after scancel")

    # --- down -------------------------------------------------------------------------

    def down(self, *, wipe: bool) -> int:
        """Cancel the jobs, stop what `up` started; the number of daemons stopped. `wipe`
        removes the files too."""
        layout, settings = self.layout, self.settings
        for cluster in settings.clusters:
            self.thaw(cluster)
            if slurmctld(layout, cluster).pid() and slurm.ping(layout, cluster):
                try:
                    self.cancel_all_jobs(cluster, timeout_s=10)
                except DevClusterError as error:
                    reason = error.message.splitlines()[0]
                    self.say(f"{cluster.name}: going down with jobs left ({reason})")
        stopped = 0
        for cluster in settings.clusters:
            nodes.kill_all_job_processes(layout, cluster)
            daemons = [slurmd(layout, cluster, name) for name in cluster.node_names]
            pids = [pid for daemon in daemons if (pid := daemon.pid())]
            send(pids, signal.SIGTERM)  # all at once, then wait for each
            for daemon in daemons:
                daemon.stop()
            stopped += len(pids)
        for daemon in reversed(
            [d for d in all_daemons(layout, settings) if not d.name.startswith("slurmd ")]
        ):
            stopped += daemon.stop(timeout_s=20)
        stopped += self._sweep()
        if wipe:
            self._wipe()
        if not layout.root.exists():
            lock_path(layout.root).unlink(missing_ok=True)  # see lock.py: safe while it is held
        return stopped

    def _sweep(self) -> int:
        """Daemons of ours whose pid file is lost (started with a marker in their environment)."""
        root = str(self.layout.root)
        left = [pid for pid in all_pids() if read_environ(pid).get(MARKER) == root]
        send(left, signal.SIGTERM)
        send(left, signal.SIGCONT)
        if not wait_until(lambda: all_gone(left), 10):
            send(left, signal.SIGKILL)
        return len(left)

    def _wipe(self) -> None:
        root = self.layout.root
        if not root.exists():
            return
        if not (root / OURS).exists():
            raise DevClusterError(
                f"{root} does not look like a dev cluster's state (no {OURS} in it): not removed",
                hint="remove it yourself if you are sure",
            )
        removed = remove_created_users(self.layout)
        shutil.rmtree(root)
        self.say(f"removed {root}" + (f" and the users {', '.join(removed)}" if removed else ""))
