# ruff: noqa: E501
"""Input that means harm, or that a machine in trouble leaves: triage answers, in bounded time and memory."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import resource
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resiliency.taxonomy import CATEGORIES
from resiliency.triage import flightrec, reader, slurmtext
from resiliency.triage.api import triage_paths
from resiliency.triage.prefilter import Prefilter
from resiliency.triage.reader import Source, pieces
from resiliency.triage.scan import Scanner
from resiliency.triage.signatures import load

OOM = b"[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79 GiB\n"
TRACE = (
    b'[rank3]: Traceback (most recent call last):\n[rank3]:   File "/w/t.py", line 3, in main\n[rank3]:     f()\n'
    + OOM
)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

words = st.sampled_from(
    [
        b"Traceback (most recent call last):\n",
        b'  File "/a/b.py", line 3, in f\n',
        b"    x = y\n",
        b"RuntimeError: CUDA error: unknown error\n",
        b"[rank4]: ",
        b"7: ",
        b"\x1b[31m",
        b"\r",
        b"\x00",
        b"\xff\xfe",
        b"NVRM: Xid (PCI:0000:9d:00): 79, pid=1\n",
        b"*** JOB 1 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO JOB REQUEUE ***\n",
        b"job 5 (x) restart_count=2 nodes=n[1-99999999]\n",
        b"will restart worker group\n",
        b"[9999999999.999999] ",
        b"E9999 99:99:99.9 1 x.py:1] failed (exitcode: -9) local_rank: 0 (pid: 1)\n",
        b"  time      : 2026-13-45_99:99:99\n",
        b" [2026-01-01 00:00:05] iteration      5/   10 | lm loss: 1\n",
        b"WorkNCCL(SeqNum=1, OpType=X, Timeout(ms)=9) ran for 1 milliseconds\n",
        b"Watchdog caught collective operation timeout: WorkNCCL(SeqNum=99999999999999999999, OpType=A, Timeout(ms)=9) ran for 9 milliseconds\n",
    ]
)
logs = st.lists(st.one_of(words, st.binary(max_size=40)), max_size=60).map(b"".join)


@QUICK
@given(log=logs, kernel=logs, sacct=logs)
def test_any_bytes_give_a_verdict(tmp_path, log, kernel, sacct):
    folder = tmp_path / str(time.monotonic_ns())
    folder.mkdir()
    (folder / "job.log").write_bytes(log)
    (folder / "dmesg-n1.log").write_bytes(kernel)
    (folder / "sacct.txt").write_bytes(b"JobID|State|ExitCode|Start|End|NodeList|Reason\n" + sacct)
    (folder / "sinfo.txt").write_bytes(sacct)
    (folder / "nodes.json").write_bytes(kernel)
    verdict = triage_paths([folder])
    assert verdict.category in CATEGORIES
    json.dumps(verdict.as_json())


@QUICK
@given(text=st.text(max_size=300))
def test_slurm_s_text_never_raises(text):
    slurmtext.parse_sacct(text)
    slurmtext.parse_sinfo(text)
    slurmtext.parse_places(text)
    assert len(slurmtext.expand(text)) <= slurmtext.MAX_NODES + 1


@pytest.mark.parametrize("chunk", [64, 1000, 4096, 70000])
def test_where_a_piece_ends_does_not_matter(tmp_path, chunk, monkeypatch):
    data = b"".join(b"noise\n" * 7000 + TRACE.replace(b"rank3", b"rank%d" % r) for r in range(6))
    data += b"x" * 200000 + b"\n" + TRACE.replace(b"rank3", b"rank7")
    path = tmp_path / "job.log"
    path.write_bytes(data)
    whole = Scanner(load([])).scan(Source(path), "job.log")
    monkeypatch.setattr("resiliency.triage.scan.pieces", lambda source, **k: pieces(source, chunk=chunk))
    split = Scanner(load([])).scan(Source(path), "job.log")
    assert [(h.line, h.signature) for h in split.hits] == [(h.line, h.signature) for h in whole.hits]
    assert whole.hits[-1].line == data.count(b"\n")


def test_both_engines_find_the_same_lines(tmp_path):
    pytest.importorskip("hyperscan")
    data = Path(__file__).resolve().parents[2] / "data" / "triage" / "cases"
    known = load([])
    for case in sorted(data.glob("d*"))[::5]:
        for log in case.glob("*.log"):
            made = [
                [
                    (h.signature, h.line, h.rank)
                    for h in Scanner(known, engine=e).scan(Source(log), log.name).hits
                ]
                for e in ("shapes", None)
            ]
            assert made[0] == made[1], log


@pytest.mark.parametrize("engine", ["shapes", None])
def test_an_anchor_is_found_wherever_it_stands(engine):
    anchors = [b"out of memory", b"Error 802", b"failed with -28"]
    for data in (b"x\nError 802\n", b"out of memory", b"a" * 9000 + b"failed with -28" + b"b" * 9000):
        assert list(Prefilter(anchors, force=engine).find(data, 0, len(data)))


def test_a_line_of_100_megabytes_with_the_cause_at_its_end(tmp_path):
    path = tmp_path / "job.log"
    with path.open("wb") as stream:
        for _ in range(100):
            stream.write(b"x" * (1 << 20))
        stream.write(b"\n" + TRACE)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert triage_paths([tmp_path]).category == "gpu_oom"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


def test_progress_bars_colours_nuls_and_bytes_that_are_no_text(tmp_path):
    bar = b"".join(b"\r 10%%|#    | %d/100" % n for n in range(500))
    noise = b"\xff\xfe\x00" * 100 + b"\n" + bar + b"\r\x1b[31m"
    trace = TRACE.replace(b"[rank3]: ", b"\x1b[36m[rank3]: \x1b[0m").replace(b"\n", b"\r\n")
    (tmp_path / "job.log").write_bytes(noise + trace)
    verdict = triage_paths([tmp_path])
    assert (verdict.category, verdict.rank) == ("gpu_oom", 3)


def test_links_in_a_circle_and_pipes_are_passed_by(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "a" / "job.log").write_bytes(TRACE)
    assert triage_paths([tmp_path]).category == "gpu_oom"


def test_a_log_that_grows_ends_where_it_ended(tmp_path):
    path = tmp_path / "job.log"
    path.write_bytes(TRACE)
    source = Source(path)
    stream = pieces(source, chunk=16)
    first = next(stream)
    with path.open("ab") as more:
        more.write(b"late\n" * 1000)
    assert len(first[1]) + sum(len(d) for _, d, _ in stream) == len(TRACE)


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("job.log.gz", gzip.compress),
        ("job.log.bz2", bz2.compress),
        ("job.log.xz", lzma.compress),
        ("job.log.zst", None),
    ],
)
def test_compressed_logs(tmp_path, name, pack):
    if pack is None:
        pack = pytest.importorskip("zstandard").ZstdCompressor().compress
    (tmp_path / name).write_bytes(pack(TRACE))
    verdict = triage_paths([tmp_path])
    assert verdict.category == "gpu_oom"
    assert verdict.evidence[0]["line"] == 4
    (tmp_path / name).write_bytes(pack(TRACE)[:-9])
    triage_paths([tmp_path])  # cut short: no exception


def test_a_bomb_is_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "MAX_RATIO", 50)
    (tmp_path / "job.log.gz").write_bytes(gzip.compress(b"\0" * (64 << 20)))
    verdict = triage_paths([tmp_path])
    assert any("unpacks to more than" in n for n in verdict.notes)


def test_the_deadline_is_kept_and_said(tmp_path):
    for n in range(50):
        (tmp_path / f"rank-{n}.log").write_bytes(b"all is well\n" * 100000)
    verdict = triage_paths([tmp_path], deadline_s=0.0)
    assert verdict.category == "unknown"
    assert any("the time allowed was over" in n for n in verdict.notes)


def test_a_limit_leaves_line_numbers_right(tmp_path):
    (tmp_path / "job.log").write_bytes(b"all is well\n" * 200000 + TRACE)
    verdict = triage_paths([tmp_path], limit_bytes=100000)
    assert verdict.category == "gpu_oom"
    assert verdict.evidence[0]["line"] == 200004


class _Evil:
    def __reduce__(self):
        return (os.system, ("touch /tmp/triage-was-here",))


def test_a_dump_that_would_run_code_is_refused(tmp_path):
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps({"entries": [_Evil()]}))
    with pytest.raises(ValueError, match="refused"):
        flightrec.load(path)
    assert any("refused" in n for n in triage_paths([tmp_path]).notes)


@QUICK
@given(
    data=st.one_of(
        st.binary(max_size=200),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=5),
            lambda c: (
                st.lists(c, max_size=3)
                | st.dictionaries(st.sampled_from(["entries", "pg_config", "rank", "x"]), c, max_size=4)
            ),
            max_leaves=12,
        ).map(lambda v: pickle.dumps(v)),
    )
)
def test_any_dump_is_read_or_refused(tmp_path, data):
    path = tmp_path / "nccl_trace_rank_3"
    path.write_bytes(data)
    flightrec.read([(path, path.name, 3)])


def test_hits_that_repeat_a_million_times_are_folded(tmp_path):
    line = (
        b"n1:1:2 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer n2<50472>\n"
    )
    stream = io.BytesIO()
    for n in range(50000):
        stream.write(line.replace(b"50472", b"%05d" % n))
    (tmp_path / "job.log").write_bytes(TRACE + stream.getvalue())
    verdict = triage_paths([tmp_path])
    assert verdict.category == "gpu_oom"
    assert max(r["count"] for r in verdict.chain) >= 49000
