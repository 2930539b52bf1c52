"""The command line of `scripts/dev-cluster`, where no Slurm is needed: help, docs, refusals."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "scripts"))

from devcluster.cli import build_parser  # noqa: E402
from devcluster.errors import EXIT_CODES, DevClusterError  # noqa: E402
from devcluster.render import render_all  # noqa: E402
from devcluster.settings import Layout, Settings  # noqa: E402

DOCS = (REPO / "docs/dev-cluster.md").read_text()


def verbs() -> dict[str, argparse.ArgumentParser]:
    for action in build_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    raise AssertionError("no verbs")


def run(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPO / "scripts/dev-cluster"), *argv]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})


@pytest.mark.parametrize("verb", sorted(verbs()))
def test_each_verb_is_documented_and_shows_an_example(verb: str) -> None:
    text = verbs()[verb].format_help()
    assert re.search(rf"example:\n.*dev-cluster {verb}\b", text)
    assert all(meaning in text for meaning in EXIT_CODES.values())
    assert f"`{verb}" in DOCS
    for action in verbs()[verb]._actions:
        for option in action.option_strings:
            if option not in ("-h", "--help"):
                assert option in DOCS, f"{verb} {option} is not in docs/dev-cluster.md"


def test_each_exit_code_is_in_the_docs() -> None:
    line = next(line for line in DOCS.split("\n\n") if line.startswith("Exit codes:"))
    assert [int(code) for code in re.findall(r"(?:: |· )(\d)\b", line)] == sorted(EXIT_CODES)


def test_bad_settings_are_all_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(DevClusterError) as caught:
        Settings(nodes=0, gpus=-1, cpus=3, users=("lab1", "a b", "root"))
    for word in ("--nodes 0", "--gpus -1", "--cpus 3", "'a b'", "root"):
        assert word in caught.value.message
    assert caught.value.code == 2


@pytest.mark.parametrize("path", ["/tmp/with space", "/tmp/quote'", "/tmp/" + "x" * 70, "/tmp/a$b"])
def test_a_state_directory_slurm_cannot_use_is_refused(path: str) -> None:
    done = run("status", TRAINMASTER_DEV_CLUSTER_DIR=path)
    assert done.returncode == 2
    assert "TRAINMASTER_DEV_CLUSTER_DIR" in done.stderr


@pytest.mark.parametrize("verb", ["status", "env"])
def test_without_a_cluster_the_next_step_is_named(verb: str) -> None:
    done = run(verb, "--dir", f"/tmp/no-such-{os.getpid()}")
    assert done.returncode == 3
    assert "dev-cluster up" in done.stderr
    assert done.stdout == ""


def test_settings_survive_the_file_and_unknown_keys_in_it() -> None:
    settings = Settings(nodes=3, users=("x",), port_base=30_000)
    record = {**json.loads(settings.to_json()), "from_a_later_version": 1}
    assert Settings.from_json(json.dumps(record)) == settings


def test_no_two_daemons_share_a_port_at_the_largest_size() -> None:
    settings = Settings(nodes=256, nodes_b=256)
    ports = [settings.database_port, settings.dbd_port]
    for cluster in settings.clusters:
        ports += [cluster.controller_port]
        ports += range(cluster.first_node_port, cluster.first_node_port + cluster.nodes)
    assert len(ports) == len(set(ports))
    assert max(ports) < settings.port_base + 620


def test_slurms_versions_get_the_configuration_they_understand() -> None:
    layout, settings = Layout(Path("/tmp/box")), Settings(gpus=0, nodes_b=0)
    cgroup = Path("/tmp/box/etc/alpha/cgroup.conf")
    # 22.05 dies of this key's value, 24.11 needs it where there is no cgroup file system
    assert "CgroupPlugin" not in render_all(layout, settings, (22, 5), "secret")[cgroup][0]
    files = render_all(layout, settings, (24, 11), "secret")
    assert files[cgroup][0] == "CgroupPlugin=disabled\n"
    assert "gpu" not in files[Path("/tmp/box/etc/alpha/slurm.conf")][0].replace("--gpus 0", "")
    assert not any("/beta/" in str(path) for path in files)
    readable = [path for path, (text, mode) in files.items() if "secret" in text and mode & 0o077]
    assert readable == []
