"""The segment with a scheduler that is two files: ``state`` (what it answers) and ``cancelled`` (ids)."""

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from launch.supervisor import run_segment
from resiliency.errors import SchedulerUnreachable
from resiliency.jobstate import JobRecord, Observation


class Files:
    def __init__(self, root: Path) -> None:
        self.root = root

    def observe(self, job_ids, *, tokens=(), since=None):
        state = (self.root / "state").read_text().strip()
        records = [JobRecord(job, 0, state) for job in job_ids] if state != "UNKNOWN" else []
        return Observation(records=records, queue_answered=True)

    def cancel(self, job_ids) -> None:
        if (self.root / "unreachable").exists():
            raise SchedulerUnreachable("no answer")
        with (self.root / "cancelled").open("a") as file:
            file.writelines(f"{job}\n" for job in job_ids)


parser = argparse.ArgumentParser()
for name in ("--run-dir", "--stage", "--link", "--home"):
    parser.add_argument(name)
given = parser.parse_args()
root = Path(given.run_dir)
sys.exit(
    run_segment(root, given.stage, int(given.link), open_control=lambda: Files(root), environ=os.environ)
)
