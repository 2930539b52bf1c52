"""Arrays, heterogeneous jobs, steps, odd values."""

from __future__ import annotations

from datetime import timezone

from orchestrator.importing.jobs import JobRow, Reading, read
from orchestrator.importing.table import Table

HEAD = "JobID|JobIDRaw|JobName|State|ExitCode|Submit|Start|End|NodeList|AllocTRES"
TIMES = "2026-01-01T00:00:00|2026-01-01T00:10:00|2026-01-01T01:00:00"


def jobs(*lines: str) -> tuple[list[JobRow], dict[str, int]]:
    table = Table([HEAD, *lines], "x")
    return read(table, Reading(timezone.utc, "c1")), dict(table.faults.counts)


def test_tasks_of_an_array_are_jobs_of_their_own_and_those_to_come_are_none() -> None:
    found, faults = jobs(
        f"9_1|11|a|COMPLETED|0:0|{TIMES}|n1|",
        f"9_2|12|a|FAILED|2:0|{TIMES}|n2|",
        "9_[3-8%1]|9|a|PENDING|0:0|2026-01-01T00:00:00|Unknown|Unknown|None assigned|",
    )
    assert [job.row.job_id for job in found] == ["11", "12"]
    assert faults == {"tasks of an array that were not yet jobs": 1}


def test_parts_of_a_heterogeneous_job_are_one_job_with_the_worst_end() -> None:
    found, _ = jobs(
        f"64+0|64|h|COMPLETED|0:0|{TIMES}|n1|",
        "64+1|65|h|FAILED|3:0|2026-01-01T00:00:00|2026-01-01T00:10:00|2026-01-01T02:00:00|n[2-3]|",
    )
    (job,) = found
    assert (job.row.job_id, job.row.state, job.row.exit_code, job.row.nodes) == (
        "64",
        "FAILED",
        3,
        "n1,n[2-3]",
    )
    assert job.row.ended_at == 1767232800.0


def test_steps_tell_the_exit_code_that_the_job_lacks() -> None:
    found, faults = jobs(
        f"5|5|s|FAILED|0:0|{TIMES}|n1|",
        f"5.extern|5.extern|extern|COMPLETED|0:0|{TIMES}|n1|",
        f"5.batch|5.batch|batch|FAILED|7:0|{TIMES}|n1|",
        f"6|6|s|FAILED|0:9|{TIMES}|n1|",
        f"7|7|s|FAILED|4:0|{TIMES}|n1|",
        f"7.0|7.0|s|FAILED|9:0|{TIMES}|n1|",
        f"8|8|s|FAILED|0:0|{TIMES}|n1|",
        f"99.0|99.0|s|FAILED|1:0|{TIMES}|n1|",
    )
    ends = [(job.row.exit_code, job.row.signal) for job in found]
    assert ends == [(7, 0), (None, 9), (4, 0), (None, None)]
    assert faults == {"step without a row of its job": 1}


def test_a_job_cancelled_while_it_waited_never_began() -> None:
    # Old Slurm prints the time of the cancel as its start.
    found, _ = jobs(
        "5|5|s|CANCELLED by 0|0:0|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T01:00:00|None assigned|"
    )
    assert found[0].row.started_at is None and found[0].row.cancelled_by == "0"


def test_gpus_of_a_node_are_told_only_where_they_divide() -> None:
    found, _ = jobs(
        f"5|5|s|FAILED|1:0|{TIMES}|n1|cpu=4,gres/gpu:h100=16,gres/gpu=16,node=2",
        f"6|6|s|FAILED|1:0|{TIMES}|n1|gres/gpu=7,node=2",
        f"7|7|s|FAILED|1:0|{TIMES}|n1|cpu=4",
    )
    assert [job.gpus_per_node for job in found] == [8, None, None]


def test_what_makes_no_sense_is_counted() -> None:
    found, faults = jobs(
        f"x|y|s|FAILED|1:0|{TIMES}|n1|",
        f"5|5|s|WEIRD|1:0|{TIMES}|n1|",
        "6|6|s|FAILED|1:0|later|2026-01-01T02:00:00|2026-01-01T01:00:00|n1|",
        "7|7|s|FAILED|1:0|Unknown|Unknown|Unknown|n1|",
    )
    assert len(found) == 1 and found[0].row.ended_at == found[0].row.started_at == found[0].row.submitted_at
    assert faults == {
        "job id makes no sense": 1,
        "state makes no sense": 1,
        "time of submit makes no sense (taken as not known)": 1,
        "ends before it starts (its end is taken as its start)": 1,
        "row without any time": 1,
    }
