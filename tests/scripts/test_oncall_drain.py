"""scripts/oncall-drain: lines to paste for nodes that are kept out, and nothing else that a shell runs."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from orchestrator import nodes
from orchestrator.home import Home
from resiliency.edges import SystemClock

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "oncall-drain"
CLOCK = SystemClock()
SECRET = "hf_" + "a" * 34


def drain(home: Path, *argv: str, code: int = 0) -> str:
    env = {**os.environ, "TRAINMASTER_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *argv], env=env, text=True, capture_output=True, cwd=home.parent
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def run_by_a_shell(text: str, tmp_path: Path) -> list[str]:
    """What a shell would call if the output were pasted: `scontrol` is one that writes down its arguments."""
    bin_ = tmp_path / "bin"
    bin_.mkdir(exist_ok=True)
    log = tmp_path / "calls"
    (bin_ / "scontrol").write_text(f'#!/bin/sh\nprintf "%s|" "$@" >> {log}\necho >> {log}\n')
    (bin_ / "scontrol").chmod(0o755)
    env = {"PATH": f"{bin_}:/usr/bin:/bin"}
    done = subprocess.run(["bash", "-s"], input=text, env=env, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    return log.read_text().splitlines() if log.exists() else []


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = SourceFileLoader("oncall_drain", str(SCRIPT))
    spec = importlib.util.spec_from_loader("oncall_drain", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_two_nodes_of_two_clusters(tmp_path: Path) -> None:
    home = tmp_path / "home"
    until = CLOCK.wall() + 86400
    nodes.exclude(Home.at(home), "b", ["n2"], reason='fan "broken"; $(reboot)', until=until, clock=CLOCK)
    nodes.exclude(Home.at(home), "a", ["gpu07"], reason=f"ticket 4711 {SECRET}", until=until, clock=CLOCK)
    out = drain(home)
    assert out.startswith("# 2 nodes to drain (")
    assert SECRET not in out
    assert out.index("# cluster a") < out.index("# gpu07: kept out until") < out.index("# cluster b")
    assert "; 0 failures of 0 jobs in 28 days" in out
    calls = run_by_a_shell(out, tmp_path)
    assert calls[1] == "update|NodeName=n2|State=DRAIN|Reason=trainmaster: fan broken reboot|"
    assert calls[0] == "update|NodeName=gpu07|State=DRAIN|Reason=trainmaster: ticket 4711 [redacted]|"
    assert len(calls) == 2


def test_one_cluster_only(tmp_path: Path) -> None:
    home = tmp_path / "home"
    until = CLOCK.wall() + 86400
    nodes.exclude(Home.at(home), "local", ["n1"], reason="fan", until=until, clock=CLOCK)
    nodes.exclude(Home.at(home), "other", ["n2"], reason="fan", until=until, clock=CLOCK)
    out = drain(home.parent / "none", "--home", str(home), "--cluster", "local")
    assert "NodeName=n1 " in out and "n2" not in out


def test_none(tmp_path: Path) -> None:
    out = drain(tmp_path / "home")
    assert out.startswith("# 0 nodes to drain")
    assert run_by_a_shell(out, tmp_path) == []


def test_the_verb_s_failure_is_passed_on(tmp_path: Path) -> None:
    assert drain(tmp_path / "home", "--cluster", "no-such-cluster", code=3) == ""


HOSTILE = ("n1;reboot", "n1 State=IDLE", "$(reboot)", "-n1", "n1\nreboot", "n1`reboot`", "ALL|reboot", "")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_is_none_is_told_and_not_run(script: ModuleType, name: str, tmp_path: Path) -> None:
    out = {"until": 2e9, "by": "person\nreboot", "reason": "fan\nreboot\r\x1b[2Jreboot"}
    evidence = [{"at": 1.9e9, "category": "gpu_off_bus", "proof": True, "detail": "Xid 79\nreboot"}]
    node = {
        "cluster": "c\nreboot", "node": name, "excluded": out, "evidence": evidence, "failed_jobs": 1,
        "drain": f'scontrol update NodeName={name} State=DRAIN Reason="fan"',
    }  # fmt: skip
    data = {"nodes": [node], "problems": ["torn\nreboot"]}
    text = "\n".join(script.lines(json.loads(json.dumps(data)), everything=True))
    assert all(line.startswith("# ") or not line for line in text.splitlines())
    assert "no name that Slurm would take; drain it by hand" in text
    assert run_by_a_shell(text + "\n", tmp_path) == []


def test_evidence_newest_first_and_those_that_are_not_kept_out_on_request(script: ModuleType) -> None:
    def failure(day: int) -> dict:
        return {"at": 1.9e9 + 86400 * day, "category": "xid", "proof": day == 5, "detail": f"day {day}"}

    free = {
        "cluster": "c", "node": "n3", "excluded": None, "evidence": [failure(day) for day in range(6)],
        "failed_jobs": 1, "drain": 'scontrol update NodeName=n3 State=DRAIN Reason="x"',
    }  # fmt: skip
    data = {"nodes": [free], "problems": []}
    assert len(list(script.lines(data, everything=False))) == 1
    text = list(script.lines(data, everything=True))
    assert text[2:4] == [
        "# failures showed on these too; not enough to keep them out",
        "# n3: not kept out; 6 failures of 1 job in 28 days",
    ]
    assert [line.split(": ")[-1] for line in text[4:]] == ["day 5", "day 4", "day 3"]
    assert "(proof)" in text[4] and "(no proof)" in text[5]
    assert not any(line.startswith("scontrol") for line in text)
