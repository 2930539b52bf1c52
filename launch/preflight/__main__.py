"""``python -m launch.preflight``: check this node by hand, from a prolog or a health-check program.

Exit code 2 for a node that failed, else 0. ``tests/launch/preflight/test_main.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from resiliency.health import NodeHealth

from . import CheckPlace, Settings, run_checks
from .settings import DEFAULT_TIMEOUT_S

_EXAMPLE = """\
example:
  srun -N4 --ntasks-per-node=1 python -m launch.preflight --gpus 8 --dir /scratch/$USER

exit codes: 0 nothing that proves a fault (OK, WARN or UNKNOWN); 2 the node failed a check (CRITICAL).
"""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    settings = Settings.read({"timeout": options.timeout, "skip": options.skip, "site": options.site})
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    place = CheckPlace(node, options.dir, Path(tempfile.gettempdir()), options.gpus)
    health = run_checks(settings, place, quick=options.quick)
    print(json.dumps(health.as_data(), indent=2) if options.json else table(health))
    sys.stdout.flush()
    return 2 if health.failed else 0


def table(health: NodeHealth) -> str:
    width = max((len(check.name) for check in health.checks), default=0)
    lines = [f"{health.node}: {health.worst.value}"]
    lines += [f"  {c.status.value:<8}  {c.name:<{width}}  {c.detail}".rstrip() for c in health.checks]
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m launch.preflight",
        description="Check this node as it is checked before ranks start on it.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="the whole result as JSON")
    parser.add_argument("--quick", action="store_true", help="only what is checked before restarts")
    parser.add_argument(
        "--gpus", type=int, default=0, metavar="N", help="GPUs the node must have (default: 0)"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=DEFAULT_TIMEOUT_S,
        metavar="S",
        help="seconds for all checks together",
    )
    parser.add_argument(
        "--dir",
        "--run-dir",
        type=Path,
        default=Path.cwd(),
        metavar="DIR",
        help="directory on the shared file system (default: this one)",
    )
    parser.add_argument("--skip", action="append", default=[], metavar="CHECK", help="leave a check out")
    parser.add_argument(
        "--site", action="append", default=[], metavar="PROG", help="a program that exits with 0, 1 or 2"
    )
    return parser


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # A check that hangs in the kernel must not keep this from ending.
    os._exit(code)
