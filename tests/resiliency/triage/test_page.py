"""The page: one line that says it, fits 80 × 40, commands ready to paste."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from resiliency.triage import page, score
from resiliency.triage.api import triage_paths
from resiliency.triage.model import TriageVerdict

CASES = score.labelled(Path(__file__).resolve().parents[2] / "data" / "triage" / "cases")


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_fits_80_by_40_and_says_who_and_what(case):
    verdict = triage_paths([case])
    rows = page.lines(verdict, title=str(case), explain=True, history=["x" * 200] * 9)
    assert len(rows) <= page.HEIGHT
    assert all(len(r) <= page.WIDTH for r in rows)
    assert page.ACTIONS[verdict.action] in rows[0]
    assert any("owner: " in r for r in rows)


def test_a_bad_node_is_drained_with_the_reason():
    verdict = TriageVerdict("gpu_ecc", "gpu", "requeue_excluding", node="gpu-7", confidence=0.95)
    drain, resume, _ = page.next_commands(verdict, run="r1", stage="pretrain", job="77")
    assert drain == "scontrol update NodeName=gpu-7 State=DRAIN Reason='trainmaster: gpu_ecc job 77'"
    assert resume == "python -m orchestrator resume r1 --stage pretrain"


def test_no_exclusion_no_drain():
    verdict = TriageVerdict("ib_link", "network", "requeue", node="gpu-7")
    assert not any("DRAIN" in c for c in page.next_commands(verdict, job="77"))


def test_hostile_text_cannot_move_the_cursor():
    row = {"file": "a\x1b[2J.log", "line": 1, "text": "\x1b]0;x\x07\r\nboom \u202e"}
    verdict = TriageVerdict("unknown", "unknown", "restart_in_job", evidence=[row])
    assert all(c.isprintable() for line in page.lines(verdict) for c in line)


def test_long_commands_are_broken_so_that_they_can_be_pasted_and_are_never_cut():
    node = "gpu-node-with-a-long-name-0042"
    evidence = [{"file": "job.log", "line": n, "text": "x" * 200} for n in range(1, 6)]
    chain = [{"role": "cascade", "category": "comm_timeout", "signature": "s" * 40}] * 9
    verdict = TriageVerdict(
        "gpu_ecc", "gpu", "requeue_excluding", node=node, evidence=evidence, chain=chain, reason="y " * 600
    )
    rows = page.lines(verdict, run="r" * 40, stage="pretrain", job="77", explain=True)
    assert len(rows) == page.HEIGHT and max(map(len, rows)) <= page.WIDTH
    pasted = "\n".join(rows[rows.index("next") + 1 :]).replace("\\\n", "").splitlines()
    wanted = page.next_commands(verdict, run="r" * 40, stage="pretrain", job="77")
    assert [shlex.split(c) for c in pasted] == [shlex.split(c) for c in wanted]
    assert "State=DRAIN" in pasted[0] and "\\" in "".join(rows)
