"""The scripts for whoever is on call: they run, they mask, they say what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "data" / "triage" / "cases"
SECRET = "hf_" + "a" * 34


@pytest.fixture
def run(tmp_path):
    env = {**os.environ, "TRAINMASTER_HOME": str(tmp_path / "home")}

    def call(script, *argv, code=0):
        argv = [sys.executable, str(ROOT / "scripts" / script), *map(str, argv)]
        done = subprocess.run(argv, env=env, text=True, capture_output=True, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return call


def test_the_digest_of_an_empty_ledger(run, tmp_path):
    from metrics.ledger import Ledger

    (tmp_path / "home").mkdir()
    Ledger.open(tmp_path / "home" / "ledger.db").close()
    assert "0 failures" in run("oncall-digest")


def test_without_a_ledger_the_digest_says_so(run):
    assert "no ledger" in run("oncall-digest", code=6)


def test_logs_leave_without_their_secrets(run, tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    log = (CASES / "d21" / "job.log").read_bytes()
    (folder / "job.log").write_bytes(f"export HF_TOKEN={SECRET}\n".encode() + log)
    assert "1 files" in run("oncall-logs", folder, "-o", tmp_path / "out.tar.gz")
    with tarfile.open(tmp_path / "out.tar.gz") as archive:
        texts = {m.name: archive.extractfile(m).read().decode() for m in archive.getmembers()}
    assert SECRET not in "".join(texts.values())
    assert "No space left on device" in texts["0000-job.log"]
    assert '"storage_full"' in texts["verdict.json"]


def test_the_bundle_holds_the_node_s_kernel_log_and_verdict(run, tmp_path):
    run("oncall-bundle", "node-0507", CASES / "d12", "-o", tmp_path / "b.tar.gz")
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        texts = {m.name: archive.extractfile(m).read().decode() for m in archive.getmembers()}
    assert any("fallen off the bus" in t for n, t in texts.items() if "dmesg" in n)
    assert any('"gpu_off_bus"' in t for n, t in texts.items() if "verdict" in n)
