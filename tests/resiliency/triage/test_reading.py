"""The small parts: times, prefixes, tracebacks, Slurm's text, file names, catalogues."""

from __future__ import annotations

import calendar
from pathlib import Path

import pytest

from resiliency.taxonomy import CATEGORIES
from resiliency.triage import catalogue, clock, discover, lines, slurmtext, tracebacks
from resiliency.triage.progress import last_progress
from resiliency.triage.stamps import Stamps

T = float(calendar.timegm((2026, 8, 18, 18, 33, 32, 0, 0, 0)))
REF = T + 3 * 86400


@pytest.mark.parametrize(
    "text",
    [
        "[2026-08-18T18:33:32] job 1",
        "2026-08-18 18:33:32,000 INFO x",
        "2026/08/18 18:33:32 x",
        "  time      : 2026-08-18_18:33:32",
        "W0818 18:33:32.000000 489641 torch/distributed/run.py:793] x",
        "[rank0]:[E818 18:33:32.000000000 ProcessGroupNCCL.cpp:607] x",
        "[Tue Aug 18 18:33:32 2026] NVRM: x",
        "Aug 18 18:33:32 node-1 kernel: x",
        "2026-08-18T18:33:32.000000+0000 node-1 kernel: x",
        "ERROR 08-18 18:33:32 [core.py:718] x",
        "*** JOB 1 ON n CANCELLED AT 2026-08-18T18:33:32 DUE TO TIME LIMIT ***",
    ],
)
def test_each_way_to_write_a_time(text):
    stamp = clock.find(text, REF)
    assert stamp is not None
    assert stamp.seconds == T
    assert clock.find_last(f"no time\n{text}\nnone here\n", REF) == stamp


def test_seconds_since_boot_are_a_clock_of_their_own():
    stamp = clock.find("[3051832.279457] NVRM: x")
    assert stamp == clock.Stamp(3051832.279457, boot=True)
    assert clock.find("[   12.000001] x") is not None


@pytest.mark.parametrize(
    "text", ["", "rank 3: 4", "99:99:99", "2026-13-45T10:00:00x", "12:3:4 o'clock", "a 7:8"]
)
def test_what_is_no_time(text):
    assert clock.find(text, REF) is None


def test_a_time_of_day_is_that_of_the_nearest_day():
    assert clock.find("17:25:50 worker=54", T) == clock.Stamp(T - 4062, partial=True)


@pytest.mark.parametrize(
    ("text", "length", "want"),
    [
        ("[rank12]: x", 10, {"rank": 12}),
        ("[default4]:x", 11, {"local": 4}),
        ("012: x", 5, {"task": 12}),
        ("3: [rank9]: x", 12, {"task": 3, "rank": 9}),
        ("node-0417: x", 11, {"node": "node-0417"}),
        ("(Worker pid=7, ip=10.0.0.1) x", 28, {"pid": 7, "ip": "10.0.0.1"}),
        ("[1,12]<stderr>:x", 15, {"rank": 12}),
        ("srun: error: x", 0, {}),
        ("RuntimeError: x", 0, {}),
        ("12:30:45 x", 0, {}),
        ("mlx5_0: x", 0, {}),
    ],
)
def test_prefixes(text, length, want):
    prefix = lines.split_prefix(text)
    assert prefix.length == length
    assert {k: getattr(prefix, k) for k in want} == want


@pytest.mark.parametrize(
    "text",
    [
        "  lr .............................................. 0.0003",
        "export NCCL_DEBUG=INFO",
        "+ echo x",
        '  "a": "b",',
        "--foo bar",
        "key: true",
    ],
)
def test_configuration_is_told(text):
    assert lines.is_config(text)


@pytest.mark.parametrize(
    "text", ["OSError: [Errno 28] No space left", "KeyError: 'model'", "kernel: [12.3] x", "CUDA error: x"]
)
def test_errors_are_no_configuration(text):
    assert not lines.is_config(text)


def test_a_line_that_tries_again_and_one_that_gave_up():
    assert lines.is_retried("connection lost, retrying (2/5)")
    assert not lines.is_retried("giving up after retrying 5 times")


def _parse(text: str) -> tracebacks.Traceback | None:
    first, *rest = text.split("\n")
    offsets = enumerate(rest)
    return tracebacks.parse(first, iter(list(offsets)))


def test_the_exception_and_its_frames():
    found = _parse(
        "Traceback (most recent call last):\n"
        '  File "/a/train.py", line 3, in main\n    f(\n      x)\n    ~^^\n'
        '  File "/b/lib.py", line 4, in f\n    raise KeyError\nKeyError: 1\n'
    )
    assert found is not None
    assert found.text == "KeyError: 1"
    assert found.frames == "/a/train.py:main\n/b/lib.py:f"
    assert not found.chained


def test_a_chain_is_told_and_a_summary_s_indentation_read():
    found = _parse(
        "  traceback : Traceback (most recent call last):\n"
        '    File "/a.py", line 1, in f\n      x\n  ValueError: no\n'
        "During handling of the above exception, another exception occurred:\n"
    )
    assert found is not None
    assert (found.text, found.chained) == ("ValueError: no", True)


def test_a_traceback_that_nothing_ends():
    assert _parse('Traceback (most recent call last):\n  File "/a.py", line 1, in f\n    x') is None


def test_host_lists():
    assert slurmtext.expand("n[01-03,7],login1") == ["n01", "n02", "n03", "n7", "login1"]
    assert slurmtext.expand("None assigned") == []
    assert slurmtext.expand("gpu-[1-2]-ib") == ["gpu-1-ib", "gpu-2-ib"]


def test_sacct_in_another_order_and_cut_off():
    runs = slurmtext.parse_sacct(
        "JobID|State|ExitCode|NodeList\n7|CANCELLED by 12|0:15|n1\n7.batch|CANCELLED|0:15|n1\n8|FA"
    )
    assert [(r.job_id, r.state, r.cancelled_by, r.signal, len(r.steps)) for r in runs] == [
        ("7", "CANCELLED", "12", 15, 1)
    ]


def test_sinfo_reasons_with_spaces():
    found = slurmtext.parse_sinfo(
        "REASON USER TIMESTAMP NODELIST\nKill task failed     root      2026-09-14T15:20:10 n[1-2]\n"
    )
    assert (found[0].reason, found[0].nodes) == ("Kill task failed", ["n1", "n2"])


@pytest.mark.parametrize(
    ("name", "kind", "node", "rank"),
    [
        ("job.log", "log", None, None),
        ("rank-12.log", "log", None, 12),
        ("rank-12.log.gz", "log", None, 12),
        ("dmesg-node-0658.log", "kernel", "node-0658", None),
        ("node-0658.dmesg", "kernel", "node-0658", None),
        ("sacct.txt", "sacct", None, None),
        ("sinfo.txt", "sinfo", None, None),
        ("nodes.json", "places", None, None),
        ("nccl_trace_rank_7", "flight", None, 7),
        ("py-spy-3.txt", "stacks", None, 3),
        ("login.jsonl", "journal", None, None),
    ],
)
def test_what_a_file_is(name, kind, node, rank):
    found = discover.classify(Path("/x") / name, name)
    assert found is not None
    assert (found.kind, found.node, found.rank) == (kind, node, rank)


@pytest.mark.parametrize("name", ["expected.json", "model.safetensors", "train.py", "run.json"])
def test_what_is_not_read(name):
    assert discover.classify(Path("/x") / name, name) is None


@pytest.mark.parametrize(
    ("line", "step"),
    [
        (b" [2026-01-01 00:00:05] iteration      501/   50000 | consumed samples: 1 |", 501),
        (b"{'loss': 2.7, 'grad_norm': 0.2, 'learning_rate': 1e-4, 'epoch': 0.28}", None),
        (b"step: 120  loss:  2.41  memory: 30GiB", 120),
        (b"[default0]:Epoch 0:  12%|x| 120/1000 [00:10<01:20, 11 it/s, v_num=0]", 120),
    ],
)
def test_progress_of_several_trainers(line, step):
    found = last_progress(b"x\n" + line + b"\ny\n", 0, len(line) + 5)
    assert [f[1] for f in found] == [step]


def test_stamps_are_looked_for_once():
    text = b"[2026-08-18T18:33:32] a\n" + b"x\n" * 50 + b"[2026-08-18T18:33:40] b\n"
    stamps = Stamps()
    assert stamps.before(text, 0, 60, None) == (T, True)
    assert stamps.after(text, 0, 60, None) == T + 8
    assert stamps.before(text, 0, len(text), None) == (T + 8, True)


def test_the_catalogues_have_a_source_and_a_category_per_row():
    assert len(catalogue.xids()) > 90
    assert len(catalogue.sxids()) > 90
    for row in catalogue.xids().values():
        assert row["category"] in CATEGORIES
        assert row["source"]
        assert row["role"] in ("root", "ambiguous", "cascade", "context", "by_severity")
    assert {c for c, r in catalogue.xids().items() if r["proof"]} >= {48, 64, 74, 79, 94, 95, 119, 120, 140}
    assert not any(catalogue.xids()[c]["proof"] for c in (13, 31, 43, 45, 63, 92, 137, 154))
    assert all(
        r["source"] and r["severity"] in ("non_fatal", "potential", "always")
        for r in catalogue.sxids().values()
    )
