"""``triage`` on the command line: what its words mean, its JSON, corrections and the scorecard."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import runs, triage

CASES = Path(__file__).resolve().parents[1] / "data" / "triage" / "cases"
PROGRAM = (sys.executable, "-m", "orchestrator", "triage")


@pytest.fixture
def env(tmp_path):
    return {**os.environ, "TRAINMASTER_HOME": str(tmp_path / "home"), "TZ": "UTC"}


def run(env, *argv, code=0, input=None):
    done = subprocess.run([*PROGRAM, *map(str, argv)], env=env, text=True, capture_output=True, input=input)
    assert done.returncode == code, done.stderr + done.stdout
    return done.stdout


def test_json_of_a_directory_is_the_format_of_the_labels(env):
    got = json.loads(run(env, CASES / "d12", "--json"))
    assert got["category"] == "gpu_off_bus"
    assert got["domain"] == "gpu"
    assert (got["role"], got["action"], got["node"], got["rank"]) == (
        "root",
        "requeue_excluding",
        "node-0507",
        12,
    )
    assert {k: got["evidence"][0][k] for k in ("file", "line")} == {"file": "dmesg-node-0507.log", "line": 17}
    assert {"chain", "alternatives", "confidence", "gpu"} <= set(got)


def test_files_alone_are_judged_too(env):
    got = json.loads(run(env, CASES / "d21" / "job.log", "--json"))
    assert (got["category"], got["action"]) == ("storage_full", "hold")


def test_the_page_is_plain_off_a_terminal(env):
    page = run(env, CASES / "d13", "--explain")
    assert "\x1b" not in page
    assert page.splitlines()[0] == "NVLink fault on node-0733 (rank 3): run again without it"


def test_neither_a_run_nor_a_job_is_said_so(env):
    run(env, "123456789", code=7)


def test_scorecard(env):
    text = run(env, "score", CASES)
    assert "category " in text
    assert "wrong exclusions 0" in text
    got = json.loads(run(env, "score", CASES, "--json"))
    assert got["wrong_exclusions"] == []


def test_signatures_list_test_lint(env, tmp_path):
    assert "nvidia-xid" in run(env, "signatures", "list", "--category", "gpu_fault")
    line = "NVRM: Xid (PCI:0000:9d:00): 79, pid=1, name=python"
    assert run(env, "signatures", "test", line).startswith("nvidia-xid")
    assert run(env, "signatures", "test", "-", input="all is well\n").startswith("-")
    assert " 0 problems" in run(env, "signatures", "lint")
    bad = tmp_path / "site.yaml"
    bad.write_text("- {id: x, category: nonsense, role: root, anchor: abc, pattern: '(a+)+$'}")
    said = run(env, "signatures", "lint", bad, code=3)
    assert "not in the taxonomy" in said
    assert "run away" in said


def test_a_site_s_signature_counts(env, tmp_path):
    site = tmp_path / "site.yaml"
    site.write_text(
        "- {id: site-leak, category: node_down, role: root, action: requeue_excluding, anchor: CDU leak,"
        " pattern: 'CDU leak on (?P<node>n[0-9]+)', provenance: ours, date: 2026-12,"
        " positive: ['CDU leak on n7'], negative: ['no leak']}"
    )
    log = tmp_path / "job.log"
    log.write_text("[2026-11-01T10:00:00] start\n[2026-11-01T10:00:05] CDU leak on n7\n")
    assert json.loads(run(env, log, "--json"))["category"] == "unknown"
    assert json.loads(run(env, log, "--json", "--signatures", site))["category"] == "node_down"


EXPERIMENT = """\
name: boom
cluster: local
defaults: {recovery: {restarts_in_job: 0, unexplained: 1}}
stages:
  a:
    kind: command
    run: python3 -c "import json; json.loads('nope')"
"""


def test_a_run_of_ours_is_judged_labelled_and_scored(env, tmp_path):
    (tmp_path / "exp.yaml").write_text(EXPERIMENT)
    argv = [
        sys.executable,
        "-m",
        "orchestrator",
        "submit",
        tmp_path / "exp.yaml",
        "--cluster",
        "local",
        "--wait",
    ]
    subprocess.run(list(map(str, argv)), env=env, capture_output=True, timeout=120, check=False)
    got = json.loads(run(env, "--json"))
    assert got["category"] == "data_error"
    assert "JSONDecodeError" in got["evidence"][0]["text"]
    (run_dir,) = (tmp_path / "home" / "runs").glob("boom-*")
    ours = runs.open_run(run_dir)
    attempt = triage.pick(ours)
    assert attempt.started is not None and attempt.started["nodes"] == "local-0"
    assert triage.of_attempt(ours, attempt).nodes == ["local-0"]
    page = run(env)
    assert "resume boom-" in page
    attempt = next(w for w in page.split() if w.startswith("local/"))
    run(env, "label", attempt, "config_error", "--note", "a typing error")
    assert f"miss {attempt}: wanted config_error" in run(env, "score", "--corrected")
    run(env, "label", attempt, "config_eror", code=2)
