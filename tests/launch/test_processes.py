"""Nothing outlives its agent."""

from __future__ import annotations

import json
import subprocess
import sys

KILL = """
import json, os, subprocess, time
from launch import processes
processes.become_subreaper()
script = "trap '' TERM; setsid sh -c 'sleep 600 & sleep 600' & (sleep 600 &) ; echo up; sleep 600"
child = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, preexec_fn=processes.child_hook())
child.stdout.readline()
deadline = time.monotonic() + 20
while len(processes.descendants(os.getpid())) < 5 and time.monotonic() < deadline:
    time.sleep(0.02)
before = len(processes.descendants(os.getpid()))
stuck = processes.kill_descendants(known=[child.pid])
print(json.dumps([before >= 5, stuck, child.wait(), len(processes.descendants(os.getpid()))]))
"""


def test_a_whole_tree_is_killed_and_the_childs_status_is_kept() -> None:
    done = subprocess.run([sys.executable, "-c", KILL], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [True, [], -9, 0]


def test_a_child_dies_with_its_parent() -> None:
    code = """
import os, subprocess, sys
from launch.processes import child_hook
child = subprocess.Popen(["sleep", "600"], preexec_fn=child_hook())
print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    from launch.processes import alive

    from .conftest import until

    until(lambda: not alive(int(done.stdout)), patience_s=20)
