"""``scripts/oncall-bundle --collect`` against a fake ssh on PATH: no remote machine is asked."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "oncall-bundle"


def bundle(tmp_path, fake_ssh, *argv):
    folder = tmp_path / "bin"
    folder.mkdir()
    fake = folder / "ssh"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{fake_ssh}\n')
    fake.chmod(0o755)
    out = tmp_path / "out.tar.gz"
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "TRAINMASTER_HOME": str(tmp_path / "h")}
    command = [sys.executable, str(SCRIPT), "--collect", "-o", str(out), *argv]
    done = subprocess.run(command, env=env, text=True, capture_output=True)
    calls = (tmp_path / "calls").read_text().splitlines() if (tmp_path / "calls").exists() else []
    parts = {}
    if out.exists():
        with tarfile.open(out) as archive:
            parts = {m.name.split("/", 1)[1]: archive.extractfile(m).read().decode() for m in archive}
    return done, calls, parts


def test_all_that_the_node_says_is_kept(tmp_path):
    done, calls, parts = bundle(tmp_path, "echo said", "gx07")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(calls) > 3 and all(" -- gx07 " in c for c in calls)
    assert parts["lspci.txt"] == "said\n" and "not-collected.txt" not in parts


def test_an_unreachable_node_is_asked_once_and_said(tmp_path):
    done, calls, parts = bundle(tmp_path, "echo no route >&2; exit 255", "gx07")
    assert done.returncode == 1 and len(calls) == 1
    assert parts["not-collected.txt"] == "gx07 cannot be reached: no route\n"
    assert "failures.json" in parts


def test_a_command_that_fails_costs_only_itself(tmp_path):
    fake = 'case "$*" in *lspci*) echo half; echo gone >&2; exit 127;; *) echo said;; esac'
    done, _, parts = bundle(tmp_path, fake, "gx07")
    assert done.returncode == 1
    assert parts["lspci.txt"] == "half\nlspci -vv: exit code 127: gone\n"
    assert parts["bmc-events.txt"] == "said\n"


def test_what_came_before_the_time_was_over_is_kept(tmp_path):
    fake = 'case "$*" in *lspci*) echo half; exec sleep 30;; *) echo said;; esac'
    done, _, parts = bundle(tmp_path, fake, "gx07", "--timeout", "3")
    assert done.returncode == 1 and parts["lspci.txt"].startswith("half\n")
    assert parts["not-collected.txt"] == "lspci.txt: cut after 3 s\n"


@pytest.mark.parametrize("name", ["-oProxyCommand=id", "../x", "a b", "a;id", "a\nb", "u@h", ""])
def test_no_hostile_host_name_reaches_ssh(tmp_path, name):
    done, calls, parts = bundle(tmp_path, "echo said", "--", name)
    assert done.returncode == 2 and "not a host name" in done.stderr
    assert calls == [] and parts == {}
