# ruff: noqa: E501
"""Small made-up jobs for the rules of triage: a training that goes on for a while, then one thing happens.

Lines have the form that the real tools print; hosts, times and paths are invented. ``test_variants.py`` says
what each has to be taken for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

START = 1790000000.0  # 2026-09-21T13:33:20


def iso(t: float, sep: str = "T") -> str:
    return time.strftime(f"%Y-%m-%d{sep}%H:%M:%S", time.gmtime(t))


def glog(t: float) -> str:
    return time.strftime("%m%d %H:%M:%S", time.gmtime(t)) + ".123456"


def dmesg_t(t: float) -> str:
    return time.strftime("[%a %b %d %H:%M:%S %Y]", time.gmtime(t))


def syslog(t: float, node: str) -> str:
    return time.strftime("%b %d %H:%M:%S", time.gmtime(t)) + f" {node} kernel:"


def boot(t: float) -> str:
    return f"[{t - START + 3000000:.6f}]"


@dataclass
class Job:
    """Writes itself into a directory: ``log`` lines as they come, kernel logs per node, Slurm's rows."""

    nodes: Sequence[str] = ("gpu-011", "gpu-012", "gpu-013", "gpu-014")
    job: str = "71001"
    per_node: int = 8
    t: float = START
    step: int = 0
    log: list[str] = field(default_factory=list)
    kernel: dict[str, list[str]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    state: str = "FAILED"
    exit: str = "1:0"
    reason: str = "None"
    rows: list[str] = field(default_factory=list)
    step_state: str | None = None
    begun: float = START
    no_sacct: bool = False
    places: bool = False

    @property
    def nodelist(self) -> str:
        return ",".join(self.nodes)

    def start(self, prefix: str = "", restart: int = 0, steps: int = 0) -> Job:
        self.begun = self.t
        self.log += [
            f"[{iso(self.t)}] job {self.job} (train) restart_count={restart} nodes={self.nodelist} ntasks={len(self.nodes)}",
            f"{prefix}  check_for_nan_in_loss_and_grad .................. True",
            f"{prefix}  distributed_timeout_minutes ..................... 10",
            f"{prefix}> initializing torch distributed ...",
            f"{prefix}training ...",
        ]
        self.t += 60
        return self.steps(steps, prefix)

    def steps(self, count: int, prefix: str = "", loss: str = "2.41") -> Job:
        for _ in range(count):
            self.step += 1
            self.t += 4
            self.log.append(
                f"{prefix} [{iso(self.t, ' ')}] iteration {self.step:8d}/   50000 | consumed samples: {self.step * 512} "
                f"| lm loss: {loss} | number of skipped iterations:   0 | number of nan iterations:   0 |"
            )
        return self

    def wait(self, seconds: float) -> Job:
        self.t += seconds
        return self

    def say(self, *texts: str) -> Job:
        self.log += texts
        return self

    def trace(
        self,
        error: str,
        rank: int | None = None,
        where: str = "/workspace/train.py",
        inner: str = "train_step",
    ) -> Job:
        p = f"[rank{rank}]: " if rank is not None else ""
        self.log += [
            f"{p}Traceback (most recent call last):",
            f'{p}  File "/workspace/train.py", line 31, in <module>',
            f"{p}    main()",
            f'{p}  File "{where}", line 77, in {inner}',
            f"{p}    raise RuntimeError('CUDA out of memory, No space left on device')",
            *(p + e for e in error.split("\n")),
        ]
        return self

    def nccl_remote(self, ranks: Sequence[int], peer: str) -> Job:
        self.t += 2
        for r in ranks:
            self.log += [
                f"[rank{r}]:[E{glog(self.t)} ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0(default_pg) Rank {r}] Process group "
                "watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error",
                "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
                "Last error:",
                f"socketProgress: Connection closed by remote peer {peer}<41022>",
            ]
        return self

    def timeouts(
        self, ranks: Sequence[int], op: str = "ALLREDUCE", seq: int = 991, odd: dict[int, str] | None = None
    ) -> Job:
        self.t += 600
        for r in ranks:
            kind = (odd or {}).get(r, op)
            self.log.append(
                f"[rank{r}]:[E{glog(self.t)} ProcessGroupNCCL.cpp:607] [Rank {r}] Watchdog caught collective operation timeout: "
                f"WorkNCCL(SeqNum={seq}, OpType={kind}, NumelIn=2048, NumelOut=2048, Timeout(ms)=600000) ran for 600084 "
                "milliseconds before timing out."
            )
        return self

    def summary(self, rank: int, code: int = 1, node: str | None = None, pid: int = 4242) -> Job:
        self.t += 2
        host = node or self.nodes[rank // self.per_node]
        local = rank % self.per_node
        self.log += [
            f"E{glog(self.t)} 4000 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: {code}) "
            f"local_rank: {local} (pid: {pid}) of binary: /usr/bin/python",
            "Traceback (most recent call last):",
            '  File "/usr/local/bin/torchrun", line 8, in <module>',
            "    sys.exit(main())",
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
            "============================================================",
            "Root Cause (first observed failure):",
            "[0]:",
            f"  time      : {iso(self.t, '_')}",
            f"  host      : {host}",
            f"  rank      : {rank} (local_rank: {local})",
            f"  exitcode  : {code} (pid: {pid})",
            "  error_file: <N/A>",
            "============================================================",
        ]
        return self

    def srun_end(self, node: str | None = None, code: int = 1) -> Job:
        node = node or self.nodes[0]
        self.t += 1
        self.log += [
            f"srun: error: {node}: task {list(self.nodes).index(node)}: Exited with exit code {code}",
            f"srun: Terminating StepId={self.job}.0",
            f"slurmstepd: error: *** STEP {self.job}.0 ON {self.nodes[0]} CANCELLED AT {iso(self.t)} ***",
            *(f"srun: error: {n}: task {i}: Terminated" for i, n in enumerate(self.nodes) if n != node),
        ]
        return self

    def dmesg(
        self, node: str, *texts: str, style: str = "T", at: float | None = None, gap: float = 1.0
    ) -> Job:
        t = self.t if at is None else at
        lines = self.kernel.setdefault(node, [])
        if not lines:
            for k, noise in enumerate(
                (
                    "mce: CPU0: Thermal monitoring enabled (TM1)",
                    "pcieport 0000:15:01.0: AER: Corrected error message received from 0000:18:00.0",
                    "Lustre: scratch-OST0011-osc-ffff9c1: Connection restored to 10.33.0.41@o2ib (at 10.33.0.41@o2ib)",
                )
            ):
                lines.append(f"{self._stamp(START - 90000 + 5000 * k, node, style)} {noise}")
        for k, text in enumerate(texts):
            lines.append(f"{self._stamp(t + k * gap, node, style)} {text}")
        return self

    def _stamp(self, t: float, node: str, style: str) -> str:
        return {
            "T": dmesg_t(t),
            "boot": boot(t),
            "syslog": syslog(t, node),
            "iso": f"{iso(t)}.000000+0000 {node} kernel:",
        }[style]

    def write(self, to: Path) -> Path:
        to.mkdir(parents=True, exist_ok=True)
        if self.log:
            (to / "job.log").write_text("\n".join(self.log) + "\n")
        for node, lines in self.kernel.items():
            (to / f"dmesg-{node}.log").write_text("\n".join(lines) + "\n")
        for name, text in self.files.items():
            (to / name).write_text(text)
        if self.places:
            rows = {
                str(r): {
                    "node": self.nodes[r // self.per_node],
                    "gpu": r % self.per_node,
                    "ip": f"10.0.0.{r // self.per_node}",
                }
                for r in range(len(self.nodes) * self.per_node)
            }
            (to / "nodes.json").write_text(json.dumps(rows))
        if not self.no_sacct:
            head = "JobID|JobName|State|ExitCode|DerivedExitCode|Submit|Start|End|NodeList|Reason"
            end = iso(self.t + 1)
            rows2 = self.rows or [
                f"{self.job}|train|{self.state}|{self.exit}|0:0|{iso(self.begun - 900)}|{iso(self.begun)}|{end}|{self.nodelist}|{self.reason}",
                f"{self.job}.batch|batch|{self.step_state or self.state.split()[0]}|{self.exit}||{iso(self.begun)}|{iso(self.begun)}|{end}|{self.nodes[0]}|",
                f"{self.job}.0|python|{self.step_state or self.state.split()[0]}|{self.exit}||{iso(self.begun)}|{iso(self.begun)}|{end}|{self.nodelist}|",
            ]
            (to / "sacct.txt").write_text("\n".join([head, *rows2]) + "\n")
        return to
