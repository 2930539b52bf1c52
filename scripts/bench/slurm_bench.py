"""What the benches on a real Slurm share: the dev cluster, and experiments whose jobs stay pending."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from resiliency.edges import Completed, SystemRunner

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def dev_cluster() -> Iterator[Path]:
    """The dev cluster, up, with SLURM_CONF set for this process; its work directory. Cancels what is left.

    Exits with a sentence where there can be none.
    """
    verb = [sys.executable, str(ROOT / "scripts/dev-cluster")]
    before = subprocess.run([*verb, "status", "--json"], capture_output=True, text=True)
    up = subprocess.run([*verb, "up"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if up.returncode:
        sys.exit(f"no Slurm to measure on: {(up.stderr or up.stdout).strip()[-400:]}")
    line = subprocess.run([*verb, "env", "alpha"], capture_output=True, text=True, check=True).stdout
    conf = line.split("SLURM_CONF=", 1)[1].splitlines()[0].strip("'\"")
    os.environ["SLURM_CONF"] = conf
    try:
        with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as work:
            yield Path(work)
    finally:
        subprocess.run(["scancel", "--user", os.environ.get("USER", "root")], check=False)
        if '"running"' not in before.stdout:
            subprocess.run([*verb, "down"], capture_output=True, stdin=subprocess.DEVNULL, check=False)


def write_home(work: Path, runs: int, stages: int, links: int = 2) -> list[Path]:
    """A home with a profile whose jobs do not start for hours, and ``runs`` experiments of ``stages`` stages
    (at most 100), each of which queues ``links`` links."""
    home = work / "home"
    home.mkdir()
    os.environ["TRAINMASTER_HOME"] = str(home)
    (home / "clusters.yaml").write_text(
        "bench: {scheduler: slurm, partition: low, extra_directives: ['--begin=now+5hours']}\n"
    )
    paths = []
    for number in range(runs):
        lines = [f"name: bench{number}", "cluster: bench"]
        lines += [f"defaults: {{chain: {{lookahead: {links}}}}}", "stages:"]
        for stage in range(stages):
            lines.append(
                f'  s{stage}: {{kind: command, run: ["true"], resources: {{time: "00:10:00", mem: 10M}}}}'
            )
        path = work / f"bench{number}.yaml"
        path.write_text("\n".join(lines) + "\n")
        paths.append(path)
    return paths


class CountingRunner:
    """Counts the scheduler commands that pass through it."""

    def __init__(self) -> None:
        self._inner = SystemRunner()
        self.calls: list[str] = []

    def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        die_with_parent: bool = False,
    ) -> Completed:
        self.calls.append(argv[0])
        return self._inner(argv, timeout_s=timeout_s, env=env, stdin=stdin, die_with_parent=die_with_parent)
