"""The command line of `scripts/dev-cluster`: options, help with an example for every verb, exit
codes.

The rim: the only module that prints, locks and turns errors into exit codes.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from . import verbs
from .errors import EXIT_CODES, EXIT_FAILED, EXIT_NEEDS_ROOT, DevClusterError
from .lock import exclusive
from .nodes import HOOKS
from .settings import Layout, Settings, default_state_dir

ABOUT = """A real Slurm on this machine, to rehearse and test on: N emulated nodes with fake
GPUs, two clusters (alpha, beta) under one slurmdbd, everything on the loopback interface and
below one directory."""
STATE_HELP = """TRAINMASTER_DEV_CLUSTER_DIR names that directory
(default: ${TMPDIR:-/tmp}/trainmaster-slurm)"""
# Verbs that only look, or do their own checking, and so need neither root nor the lock
UNLOCKED = ("status", "env", "install")


def main(argv: Sequence[str] | None = None) -> int:
    options = build_parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupted)  # so that an `up` cut short still cleans up
    say = _reporter(to_stderr=options.json)
    try:
        layout = Layout(Path(options.dir).absolute() if options.dir else default_state_dir())
        locked = options.verb not in UNLOCKED
        if locked:
            _require_root(options.verb)
        with exclusive(layout.root, say) if locked else nullcontext():
            result = options.run(options, layout, say)
    except DevClusterError as error:
        print(f"dev-cluster: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  next: {error.hint}", file=sys.stderr)
        return error.code
    except OSError as error:  # a full disk, a read-only file system, a file where a folder belongs
        print(f"dev-cluster: {error}", file=sys.stderr)
        print("  next: put that right, or start over with `down --wipe`", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("dev-cluster: interrupted", file=sys.stderr)
        return 130
    try:
        print(json.dumps(result.record, indent=1) if options.json else result.text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader has left; nothing is lost but the words
    return int(result.code)


def _interrupted(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def _reporter(to_stderr: bool) -> Callable[[str], None]:
    begin = time.monotonic()

    def say(message: str) -> None:
        try:
            stream = sys.stderr if to_stderr else sys.stdout
            print(f"{time.monotonic() - begin:6.1f} s  {message}", file=stream, flush=True)
        except BrokenPipeError:
            return  # progress nobody reads is no reason to stop half way

    return say


def _require_root(verb: str) -> None:
    if os.geteuid() != 0:
        raise DevClusterError(
            f"`{verb}` needs root: the daemons run jobs as other users",
            hint=f"sudo scripts/dev-cluster {verb} ...   (status and env work without)",
            code=EXIT_NEEDS_ROOT,
        )


def build_parser() -> argparse.ArgumentParser:
    codes = "\n".join(f"  {code}  {meaning}" for code, meaning in EXIT_CODES.items())
    top = argparse.ArgumentParser(
        prog="dev-cluster",
        description=ABOUT,
        epilog=f"exit codes:\n{codes}\n\n{STATE_HELP}\n\nexample:\n  sudo scripts/dev-cluster up --nodes 16",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parsers = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--dir", help="the state directory, instead of TRAINMASTER_DEV_CLUSTER_DIR")
    common.add_argument(
        "--json", action="store_true", help="print a JSON record; progress goes to standard error"
    )

    def verb(name: str, run: Callable[..., verbs.Result], what: str, example: str) -> argparse.ArgumentParser:
        parser = parsers.add_parser(
            name,
            help=what,
            parents=[common],
            description=what[0].upper() + what[1:] + ".",
            epilog=f"example:\n  {example}\n\nexit codes:\n{codes}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.set_defaults(run=run)
        return parser

    _add_up(
        verb(
            "up",
            verbs.up,
            "bring everything up, or heal what is dead",
            "sudo dev-cluster up --nodes 16",
        )
    )
    down = verb(
        "down",
        verbs.down,
        "cancel the jobs and stop what `up` started",
        "sudo dev-cluster down --wipe",
    )
    down.add_argument(
        "--wipe", action="store_true", help="remove the state directory and the users made for it"
    )
    verb(
        "status",
        verbs.status,
        "show daemons, nodes and jobs; exit code 3 unless all is up",
        "dev-cluster status",
    )
    verb(
        "heal",
        verbs.heal,
        "cancel all jobs, undo all faults, wait until all is idle",
        "sudo dev-cluster heal",
    )
    kill = verb(
        "kill-node",
        verbs.kill_node,
        "crash nodes: slurmd, steps and tasks",
        "sudo dev-cluster kill-node a3",
    )
    kill.add_argument("--daemon-only", action="store_true", help="kill slurmd alone; the tasks run on")
    start = verb(
        "start-node",
        verbs.start_node,
        "boot nodes again and resume them",
        "sudo dev-cluster start-node a3",
    )
    for parser in (kill, start):
        parser.add_argument("nodes", nargs="+", metavar="NODE", help="as in a3, b1")
    for name, run, what in (
        ("kill-controller", verbs.kill_controller, "kill -9 a slurmctld"),
        ("start-controller", verbs.start_controller, "start a slurmctld again"),
        (
            "freeze-controller",
            verbs.freeze_controller,
            "SIGSTOP a slurmctld: clients hang, then time out",
        ),
        ("thaw-controller", verbs.thaw_controller, "let a frozen slurmctld go on"),
    ):
        _add_cluster(verb(name, run, what, f"sudo dev-cluster {name} beta"))
    verb(
        "stop-accounting",
        verbs.stop_accounting,
        "kill slurmdbd; sacct and -M fail",
        "sudo dev-cluster stop-accounting",
    )
    verb(
        "start-accounting",
        verbs.start_accounting,
        "start slurmdbd again",
        "sudo dev-cluster start-accounting",
    )
    for hook in HOOKS:
        for prefix, run, what in (
            ("fail", verbs.fail_hook, f"make the {hook} of nodes fail"),
            ("clear", verbs.clear_hook, f"let the {hook} of nodes work again, and resume them"),
        ):
            parser = verb(f"{prefix}-{hook}", run, what, f"sudo dev-cluster {prefix}-{hook} a2")
            parser.add_argument("nodes", nargs="+", metavar="NODE", help="as in a3, b1")
            parser.set_defaults(hook=hook)
    _add_cluster(
        verb(
            "env",
            verbs.env,
            "print export lines for a shell",
            'eval "$(scripts/dev-cluster env alpha)"',
        )
    )
    verb(
        "install",
        verbs.install_packages,
        "apt-get install Slurm, munge, MariaDB",
        "sudo dev-cluster install",
    )
    return top


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "cluster", nargs="?", default="alpha", metavar="CLUSTER", help="alpha (default) or beta"
    )


def _add_up(parser: argparse.ArgumentParser) -> None:
    default = Settings()
    kept = "what the state directory has, else"
    parser.add_argument(
        "--nodes", type=int, metavar="N", help=f"nodes of alpha (default: {kept} {default.nodes})"
    )
    parser.add_argument(
        "--nodes-b", type=int, metavar="M", help=f"nodes of beta, 0 for none ({default.nodes_b})"
    )
    parser.add_argument("--gpus", type=int, metavar="G", help=f"fake GPUs per node ({default.gpus})")
    parser.add_argument("--cpus", type=int, help=f"CPUs declared per node ({default.cpus})")
    parser.add_argument("--memory-mb", type=int, help=f"memory declared per node ({default.memory_mb})")
    parser.add_argument(
        "--users", type=_names, metavar="U1,U2", help=f"login users ({','.join(default.users)})"
    )
    parser.add_argument(
        "--port-base", type=int, metavar="PORT", help=f"first of 620 ports ({default.port_base})"
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in text.split(",") if name))
