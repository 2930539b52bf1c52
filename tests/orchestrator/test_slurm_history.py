"""From squeue's and sacct's answers to one record per allocation: recorded and made hazards."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.schedulers.slurm import fields, history, sacct, squeue
from resiliency.jobstate import JobRecord
from tests.orchestrator.slurm_answers import DATA, accounting_row, queue_row, recorded

HAZARDS = sorted(p.name.removesuffix("-expected.json") for p in DATA.glob("history/*-expected.json"))


def look(hazard: str) -> tuple[squeue.Queue, sacct.Accounting]:
    asked = DATA / "history" / f"{hazard}.squeue"
    told = DATA / "history" / f"{hazard}.sacct"
    queue = squeue.parse(recorded(asked)) if asked.exists() else squeue.Queue(complete=False)
    rows = sacct.parse(recorded(told)) if told.exists() else sacct.Accounting(complete=False)
    return queue, rows


@pytest.mark.parametrize("hazard", HAZARDS)
def test_hazard(hazard: str) -> None:
    expected = json.loads((DATA / "history" / f"{hazard}-expected.json").read_text())
    queue, told = look(hazard)
    found = history.records(queue.rows, told.rows, queue_answered=queue.complete, since=expected["since"])
    assert found == [JobRecord(**record) for record in expected["records"]]
    assert queue.complete == expected["queue_complete"]
    assert told.complete == expected["accounting_complete"]
    assert sorted(queue.damaged) == expected["damaged"]


def test_every_recorded_answer_has_an_expectation() -> None:
    stems = {p.name.rsplit(".", 1)[0] for p in (DATA / "history").glob("*.s*")}
    assert stems == set(HAZARDS)
    assert len(HAZARDS) > 40


@pytest.mark.parametrize("hazard", [h for h in HAZARDS if "torn" not in h])
def test_a_torn_answer_is_never_taken_for_a_whole_one(hazard: str) -> None:
    """Cut anywhere but between records, an answer says that it is incomplete, and invents no job."""
    queue, told = look(hazard)
    path = DATA / "history" / f"{hazard}.squeue"
    if path.exists() and queue.complete and (text := recorded(path).rstrip("\n")):
        for cut in range(1, len(text), 7):
            part = squeue.parse(text[:cut])
            assert not part.complete or text[:cut].rstrip("\n")[-1:] in ("\x1e", "")
            assert {r.job_id for r in part.rows} <= {r.job_id for r in queue.rows}
    path = DATA / "history" / f"{hazard}.sacct"
    if path.exists() and (text := recorded(path).rstrip("\n")):
        for cut in range(1, len(text), 7):
            part_rows = sacct.parse(text[:cut])
            assert all(row in told.rows for row in part_rows.rows)


@given(st.text(st.sampled_from("\x1f\x1e\n|.07a-")), st.text(st.sampled_from("\x1f\x1e\n|.07a-")))
def test_no_text_whatever_makes_the_parsers_fail(queue: str, told: str) -> None:
    history.records(squeue.parse(queue).rows, sacct.parse(told).rows, queue_answered=True, since=0.0)


@given(st.lists(st.sampled_from(["NODE_FAIL", "PREEMPTED", "REQUEUED", "TIMEOUT"]), max_size=5), st.data())
def test_runs_are_numbered_alike_with_and_without_the_queue(ended: list[str], data: st.DataObject) -> None:
    """However sacct orders and repeats its rows, run i of a job is restart count i."""
    rows = [accounting_row(7, state, submitted=1000 * (i + 1)) for i, state in enumerate(ended)]
    now = 1000 * (len(ended) + 1)
    rows.append(accounting_row(7, "RUNNING", submitted=now))
    shuffled = data.draw(st.permutations(rows + rows[:1]))
    told = sacct.parse("".join(shuffled)).rows
    live = squeue.parse(queue_row(7, restart=len(ended), submitted=now)).rows
    alone = history.records([], told, queue_answered=False)
    both = history.records(live, told, queue_answered=True)
    for records in (alone, both):
        assert [(r.restart_count, r.state) for r in records] == [*enumerate(ended), (len(ended), "RUNNING")]


def test_a_job_is_found_by_name_or_by_comment_when_the_site_renames() -> None:
    rows = squeue.parse(
        queue_row(7, name="tok.a.001") + queue_row(8, name="site-x", comment="trainmaster:tok.b.001")
    ).rows
    found = history.records(rows, [], queue_answered=True)
    assert history.tokens({"tok.a.001", "tok.b.001", "tok.c.001"}, found) == {
        "tok.a.001": ("7",),
        "tok.b.001": ("8",),
    }


@pytest.mark.parametrize(
    ("text", "status"),
    [("0:9", (0, 9)), ("5:0", (5, 0)), ("1280", (5, 0)), ("9", (0, 9)), ("4021", (0, 53)),
     ("0", (0, 0)), ("", (None, None)), ("x:1", (None, None)), ("1:x", (None, None))],
)  # fmt: skip
def test_exit_status(text: str, status: tuple[int | None, int | None]) -> None:
    assert fields.exit_status(text) == status


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("infinite", None), ("UNLIMITED", None), ("n/a", None), ("30", 1800), ("5:00", 300),
     ("1:30:00", 5400), ("1-00:00:00", 86400), ("2-12", 216000), ("7-00:00", 604800)],
)  # fmt: skip
def test_time_limits(text: str, seconds: int | None) -> None:
    assert fields.seconds(text) == seconds
    if seconds is not None:
        assert fields.seconds(fields.time_limit(seconds)) == seconds


def test_records_hold_only_known_fields() -> None:
    names = {f.name for f in dataclasses.fields(JobRecord)}
    for path in Path(DATA / "history").glob("*-expected.json"):
        for record in json.loads(path.read_text())["records"]:
            assert set(record) <= names, path.name


@pytest.mark.parametrize(("count", "calls"), [(1, 1), (2000, 1), (15_000, 2)])
def test_ids_are_split_over_calls_only_above_what_an_argument_can_hold(count: int, calls: int) -> None:
    argvs = sacct.by_id([str(1_000_000 + i) for i in range(count)])
    assert len(argvs) == calls
    assert all(len(word) < 131_072 for argv in argvs for word in argv)
    asked = [i for argv in argvs for i in argv[-1].removeprefix("--jobs=").split(",")]
    assert len(set(asked)) == count
