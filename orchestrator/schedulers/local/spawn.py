"""How a shepherd is started, and the environment its job gets.

The shepherd inherits the whole environment of the process that starts it, in memory only: that
is where values named by ``env_from`` travel. The job gets a short list of it. Nothing here is
written to disk. ``tests/orchestrator/test_local_environment.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

ENV_JOB_ID: Final = "TRAINMASTER_LOCAL_JOB_ID"
ENV_RESTART_COUNT: Final = "TRAINMASTER_LOCAL_RESTART_COUNT"
ENV_NODELIST: Final = "TRAINMASTER_LOCAL_NODELIST"
#: Marks every process of one attempt, so that strays are found after their shepherd was killed.
ENV_TAG: Final = "TRAINMASTER_LOCAL_TAG"
#: Becomes the shepherd's TRAINMASTER_CRASH_AT; the submitter's own is not passed on.
ENV_SHEPHERD_CRASH_AT: Final = "TRAINMASTER_LOCAL_SHEPHERD_CRASH_AT"
_CRASH_AT = "TRAINMASTER_CRASH_AT"

#: What a job sees of its submitter's environment without asking.
BASE: Final = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
)  # fmt: skip

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
# Isolated (-I -S): no current directory, PYTHONPATH or site-packages can change what a shepherd is.
_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from orchestrator.schedulers.local.shepherd import main; sys.exit(main(sys.argv[2:]))"
)
#: A process whose command line has this is a shepherd: no part of any job, whoever started it.
MARK: Final = _BOOT.encode()

_children: list[subprocess.Popen[bytes]] = []


def start_shepherd(path: str, job: int, restart: int, tag: str, environ: Mapping[str, str]) -> None:
    """Start the shepherd of a claimed attempt, detached from everything of the caller's."""
    _children[:] = [child for child in _children if child.poll() is None]  # no zombies in a long watch
    env = {
        name: value
        for name, value in environ.items()
        if not name.startswith("TRAINMASTER_LOCAL_") and name != _CRASH_AT
    }
    if crash_at := environ.get(ENV_SHEPHERD_CRASH_AT):
        env[_CRASH_AT] = env[ENV_SHEPHERD_CRASH_AT] = crash_at
    _children.append(
        subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT, _ROOT, path, str(job), str(restart), tag],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=env,
            cwd="/",
            close_fds=True,
            start_new_session=True,
        )
    )


def missing(names: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Names wanted by ``env_from`` that this environment lacks."""
    return [name for name in names if name not in environ]


def job_environment(
    row: Mapping[str, Any], names: Sequence[str], environ: Mapping[str, str]
) -> dict[str, str]:
    """The environment of an attempt's batch process; the script exports ``JobSpec.env`` itself."""
    env = {name: environ[name] for name in (*BASE, *names) if name in environ}
    env.setdefault("PATH", os.defpath)
    env[ENV_JOB_ID] = str(row["job"])
    env[ENV_RESTART_COUNT] = str(row["restart_count"])
    env[ENV_NODELIST] = row["nodes"]
    env[ENV_TAG] = row["tag"]
    if row["gpu_ids"]:
        env["CUDA_VISIBLE_DEVICES"] = row["gpu_ids"]
    return env
