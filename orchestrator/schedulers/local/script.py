"""The batch script of a job as text a person can read: exports, directory, then the program itself.

Every value is quoted by ``shlex``; a name that a shell could not take as a name is refused.
``tests/orchestrator/test_local_script.py`` runs scripts with hostile values.
"""

from __future__ import annotations

import os
import re
import shlex

from orchestrator.schedulers.base import JobSpec
from resiliency.errors import SubmissionRejected

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check(job: JobSpec) -> None:
    """Raises SubmissionRejected for what no scheduler could run as it is written."""
    for name in (*job.env, *job.env_from):
        if not _NAME.fullmatch(name):
            raise SubmissionRejected(
                f"{name!r} cannot be the name of an environment variable",
                hint="names are letters, digits and underscores",
            )
    if not job.argv:
        raise SubmissionRejected(f"job {job.token!r} has no command", hint="give it an argv")
    texts = [job.token, *job.argv, *job.env.values(), os.fspath(job.chdir), os.fspath(job.output)]
    if any("\0" in text for text in texts):
        raise SubmissionRejected(f"job {job.token!r} has a NUL byte in a value")


def render(job: JobSpec) -> str:
    """The script. Pure."""
    check(job)
    about = " ".join(job.about.split()) or "a job"
    lines = ["#!/bin/bash", f"# Trainmaster, local scheduler: {_plain(about)}"]
    lines.append(f"# token {_plain(job.token)}; {job.nodes} emulated node(s)")
    if job.time_limit_s is not None:
        lead = "" if job.signal_lead_s is None else f", USR2 {job.signal_lead_s} s before"
        lines.append(f"# time limit {job.time_limit_s} s{lead}")
    if job.env_from:
        lines.append(f"# from the submitter's environment: {' '.join(job.env_from)}")
    lines += [f"export {name}={shlex.quote(value)}" for name, value in job.env.items()]
    lines += [f"module load {shlex.quote(module)}" for module in job.modules]
    lines += job.setup
    lines.append(f"cd -- {shlex.quote(os.fspath(job.chdir))} || exit 76")
    lines.append("exec " + " ".join(shlex.quote(word) for word in job.argv))
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """One line, so that nothing can leave the comment it stands in."""
    return "".join(c if c.isprintable() else "?" for c in text)
