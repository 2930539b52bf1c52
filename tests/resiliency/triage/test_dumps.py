# ruff: noqa: E501
"""Flight-recorder dumps and stacks: who did not come, who is elsewhere."""

from __future__ import annotations

import json
import pickle

import pytest

from resiliency.triage import flightrec, stacks
from resiliency.triage.api import triage_paths


def dump(rank, last, *, world=8, op="nccl:all_reduce", state="started", pack=pickle.dumps):
    entries = [
        {
            "process_group": ("0", "default_pg"),
            "collective_seq_id": n,
            "profiling_name": op if n == last else "nccl:all_reduce",
            "state": state if n == last else "completed",
            "time_created_ns": 1_790_000_000_000_000_000 + n,
            "is_p2p": False,
        }
        for n in range(1, last + 1)
    ]
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": json.dumps(list(range(world)))}}
    return pack({"version": "2.7", "rank": rank, "pg_config": config, "entries": entries})


@pytest.mark.parametrize("pack", [pickle.dumps, lambda d: json.dumps(d).encode()])
def test_the_rank_that_did_not_join_is_named(tmp_path, pack):
    for rank in range(8):
        data = dump(rank, 41, state="completed", pack=pack) if rank == 5 else dump(rank, 42, pack=pack)
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(data)
    verdict = triage_paths([tmp_path])
    assert (verdict.category, verdict.rank) == ("comm_timeout", 5)
    assert verdict.action == "restart_in_job"


def test_the_rank_without_a_dump_is_named(tmp_path):
    for rank in range(7):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(dump(rank, 42))
    assert triage_paths([tmp_path]).rank == 7


def test_ranks_in_different_collectives(tmp_path):
    for rank in range(8):
        op = "nccl:broadcast" if rank == 2 else "nccl:all_reduce"
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(dump(rank, 42, op=op))
    verdict = triage_paths([tmp_path])
    assert (verdict.category, verdict.action) == ("code_desync", "stop")
    assert "7 × nccl:all_reduce" in verdict.evidence[0]["text"]


def test_everyone_waits_and_nobody_is_missing(tmp_path):
    for rank in range(8):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(dump(rank, 42))
    assert flightrec.read([(p, p.name, None) for p in tmp_path.iterdir()])[0] == []


STACK = 'Process 1: python train.py\nThread 1 (idle): "Thread-1"\n    wait (threading.py:3)\nThread 2 (active): "MainThread"\n    {inner} ({file}:{line})\n    train_step (train.py:9)\n'


def test_the_odd_one_out_among_stacks(tmp_path):
    for rank in range(8):
        inner = ("read", "dataset.py", 4) if rank == 6 else ("all_reduce", "distributed_c10d.py", 2800)
        text = STACK.format(inner=inner[0], file=inner[1], line=inner[2])
        (tmp_path / f"py-spy-{rank}.txt").write_text(text)
    groups = stacks.read([(p, p.name, int(p.stem.rsplit("-", 1)[1])) for p in sorted(tmp_path.iterdir())])
    assert [len(g.files) for g in groups] == [7, 1]
    verdict = triage_paths([tmp_path])
    assert (verdict.category, verdict.rank) == ("hang", 6)
    assert "read (dataset.py)" in verdict.evidence[0]["text"]


def test_no_majority_no_odd_one(tmp_path):
    groups = [stacks.Group(("a",), [0, 1], ["0", "1"]), stacks.Group(("b",), [2, 3], ["2", "3"])]
    assert stacks.odd_one_out(groups) is None
