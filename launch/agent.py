"""The agent of one node, as a program: who it is, where its supervisor is, a directory of its own.

One per node, spares included, started by the supervisor (an ``srun`` task, or a process per emulated
node). What it does is in :mod:`launch.nodework`. ``tests/launch/test_segment.py``.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from resiliency import contract, exitcodes
from resiliency.errors import StorageError, TrainmasterError

from . import processes
from .channel import Wire, take_address
from .config import read_stage_config
from .localdir import local_directory
from .nodework import Agent
from .rendezvous import own_address
from .signals import Bell

_CONNECT_S = 15.0


def _address(environ: Mapping[str, str], given: str, *, local: bool) -> str:
    """The supervisor's address. srun's own idea of it is the one that can be reached from a step."""
    host, _, rest = given.partition(":")
    better = None if local else environ.get("SLURM_LAUNCH_NODE_IPADDR")
    return f"{better or host}:{rest}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="One node's part of an attempt; started by the supervisor.")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--stage", required=True)
    parser.add_argument("--link", type=int, required=True)
    parser.add_argument("--attempt", required=True)
    parser.add_argument("--node", help="default: SLURMD_NODENAME")
    given = parser.parse_args(argv)
    # Before anything slow: a signal that comes now must not end the agent.
    bell = Bell((signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2))
    processes.become_subreaper()
    node = given.node or os.environ["SLURMD_NODENAME"]
    address = take_address(os.environ)
    if address is None:
        print(f"trainmaster: {node}: an agent is started by its supervisor only", file=sys.stderr, flush=True)
        return exitcodes.NEEDS_HUMAN
    address = _address(os.environ, address, local=given.node is not None)
    host, port = address.rsplit(":", 2)[:2]
    wire = Wire(address, {"node": node, "pid": os.getpid(), "address": own_address(host, int(port))})
    until = time.monotonic() + _CONNECT_S
    while not wire.connect(5.0):
        if time.monotonic() > until:
            print(f"trainmaster: {node}: cannot reach {host}:{port}", file=sys.stderr, flush=True)
            return 1
        time.sleep(0.2)
    try:
        config = read_stage_config(contract.RunPaths(given.run_dir).stage_config(given.stage))
        with local_directory(given.attempt, node) as local:
            agent = Agent(
                config, node, run_dir=given.run_dir, link=given.link, attempt=given.attempt,
                local_dir=local, wire=wire, bell=bell,
            )  # fmt: skip
            return agent.run()
    except TrainmasterError as error:
        print(f"trainmaster: {node}: {error}", file=sys.stderr, flush=True)
        return exitcodes.NEEDS_HUMAN if not isinstance(error, StorageError) else error.exit_code


if __name__ == "__main__":
    sys.exit(main())
