"""Which log files a run has, by stage, link, attempt and node."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .runs import Run

_JOB = re.compile(r"link-(\d+)\.log")
_NODE = re.compile(r"link-(\d+)\.(\d+)\.(.+)\.log")


@dataclass(frozen=True)
class LogFile:
    """``restart_count`` and ``node`` are None for the supervisor's own log, which all restarts append to."""

    path: Path
    stage: str
    link: int
    restart_count: int | None
    node: str | None

    @property
    def title(self) -> str:
        where = f" on {self.node}" if self.node else ""
        restart = f".{self.restart_count}" if self.restart_count else ""
        return f"{self.stage} link {self.link}{restart}{where}  ({self.path})"


def find(
    run: Run,
    *,
    stage: str | None = None,
    link: int | None = None,
    attempt: str | None = None,
    node: str | None = None,
) -> list[LogFile]:
    """Log files in chain order. ``attempt``: ``LINK.RESTART`` or a job id."""
    links_of_job: set[tuple[str, int]] | None = None
    restart: int | None = None
    if attempt is not None:
        match = re.fullmatch(r"(\d+)\.(\d+)", attempt)
        if match:
            link, restart = int(match[1]), int(match[2])
        else:
            from .control import read_state

            links_of_job = {
                (s.name, sub.link)
                for s in read_state(run).stages.values()
                for sub in s.links()
                if attempt in sub.job_ids
            }
    files: list[LogFile] = []
    for planned in run.plan.stages:
        if stage is not None and planned.name != stage:
            continue
        directory = run.paths.logs(planned.name)
        for path in sorted(directory.glob("link-*.log")) if directory.is_dir() else []:
            job, per_node = _JOB.fullmatch(path.name), _NODE.fullmatch(path.name)
            if job:
                one = LogFile(path, planned.name, int(job[1]), None, None)
            elif per_node:
                one = LogFile(path, planned.name, int(per_node[1]), int(per_node[2]), per_node[3])
            else:
                continue
            if link is not None and one.link != link:
                continue
            if restart is not None and one.restart_count not in (None, restart):
                continue
            if links_of_job is not None and (one.stage, one.link) not in links_of_job:
                continue
            if node is not None and one.node != node:
                continue
            files.append(one)
    return files
