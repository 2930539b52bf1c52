"""The accounting's rows in a ledger: the run computed by hand, whatever the portions it is read in."""

from __future__ import annotations

from pathlib import Path

import pytest

from metrics.ledger import Ledger
from metrics.ledger.rebuild import rebuild
from resiliency.events import Event
from tests.metrics.accounting.stories import RUN, Story, two_attempts
from tests.metrics.rundirs import dump, lines, write


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The story's journal in a run directory, in a ledger."""
    run_dir = write(tmp_path / "runs" / RUN, {"w": lines(two_attempts().events)})
    config = run_dir / "stages" / "train" / "stage.json"
    config.parent.mkdir(parents=True)
    config.write_text('{"launch": {"gpus_per_node": 4}, "stage": {"train": {"steps": 291}}}')
    (run_dir / "run.json").write_text("{}")
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.ingest_run(run_dir)
    return tmp_path


def test_views_show_the_run_computed_by_hand(home: Path) -> None:
    with Ledger.open(home / "ledger.db", readonly=True) as ledger:
        (good,) = ledger.rows("SELECT * FROM goodput")
        fall = {row["kind"]: tuple(row)[3:] for row in ledger.rows("SELECT * FROM waterfall")}
        first = ledger.rows("SELECT * FROM intervals WHERE kind = 'lost'")[0]
        stage = ledger.rows("SELECT gpus_per_node, total_steps FROM stage")[0]
    # tests/metrics/accounting/test_tiling.py has the arithmetic: 550 s and 110 s of wall-clock, 450 s and
    # 100 s of them on two nodes; 190 s of new and 99 s of repeated steps.
    assert (good["wall_s"], good["node_hours"]) == (660.0, 2 * 550 / 3600)
    assert (good["ettr"], good["goodput"]) == (round(289 / 660, 6), round(289 / 550, 6))
    assert (good["lost_node_hours"], good["unknown"]) == (round(2 * 102 / 3600, 6), 0.0)
    assert sum(seconds for seconds, *_ in fall.values()) == 660.0
    assert fall["productive"] == (190.0, 380.0, round(190 / 660, 6))
    assert fall["queued"][0] == 110.0 and "chained" not in fall
    assert (first["start_at"], first["seconds"], first["node_seconds"]) == ("1970-01-01T00:04:24Z", 102, 204)
    assert tuple(stage) == (4, 291)


def test_what_the_failure_cost(home: Path) -> None:
    with Ledger.open(home / "ledger.db", readonly=True) as ledger:
        (row,) = ledger.rows("SELECT * FROM outage")
        cycles = [tuple(r) for r in ledger.rows("SELECT base_step, lost_steps, lost_seconds FROM cycle")]
    # Step 202 is new again at 500: 399 s after … 400 = step 102, a second each.
    names = ("category", "counted", "step", "resumed_from", "onset_at", "detected_at", "decided_at")
    assert tuple(row[name] for name in names) == ("gpu_fault", 1, 201, 101, 366.0, 370.0, 371.0)
    assert (row["running_at"], row["progress_at"]) == (375.0, 500.0)
    assert (row["lost_steps"], row["lost_seconds"], row["tried"]) == (100, 102.0, 1)
    assert cycles == [(0, 100, 102.0), (101, 0, 0.0), (241, 0, 0.0)]


def test_reading_in_portions_gives_the_rows_of_a_rebuild(home: Path, tmp_path: Path) -> None:
    raw = lines(two_attempts().events)
    run_dir = home / "live" / RUN
    ends = [n for n, byte in enumerate(raw) if byte == 10]
    (run_dir / "stages" / "train").mkdir(parents=True)
    config = home / "runs" / RUN / "stages" / "train" / "stage.json"
    (run_dir / "stages" / "train" / "stage.json").write_bytes(config.read_bytes())
    with Ledger.open(tmp_path / "live.db") as ledger:
        for end in (*ends[::7], len(raw)):
            write(run_dir, {"w": raw[: end + 1]})
            ledger.ingest_run(run_dir)
        live = dump(ledger)
    rebuild(home, path=tmp_path / "fresh.db")
    fresh = dump(tmp_path / "fresh.db")
    for table in ("interval", "outage", "cycle", "attempt_node"):
        assert live[table] == fresh[table]
        assert live[table]


def test_a_stage_s_queue_begins_when_the_stages_it_needs_are_complete(tmp_path: Path) -> None:
    story = Story()
    stages = [{"name": "data"}, {"name": "train", "needs": ["data"]}]
    story.at(0.0, "run.created", None, name="demo", stages=stages)
    story.job("7.0", 1, 10.0, 50.0, 60.0)
    story.events.append(Event("stage.completed", RUN, "w", 100, 40.0, 0.0, "data", data={"epoch": 0}))
    run_dir = write(tmp_path / "runs" / RUN, {"w": lines(story.events)})
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.ingest_run(run_dir)
        found = ledger.rows("SELECT kind, seconds FROM interval ORDER BY n")
    assert [tuple(row) for row in found] == [("chained", 30.0), ("queued", 10.0), ("unknown", 10.0)]


def test_a_node_failure_that_only_the_scheduler_saw_is_got_over_by_the_next_link(tmp_path: Path) -> None:
    story = Story()
    story.job("7.0", 1, 0.0, 10.0, 230.0, state="NODE_FAIL")
    story.at(20.0, "role.started", "7.0", 0)
    story.at(50.0, "workload.resumed", "7.0", 0, step=0)
    story.words("7.0", 0, (100.0, 50), (150.0, 100), (200.0, 150))
    story.at(151.0, "checkpoint.committed", "7.0", 0, step=100, path="a")
    story.job("8.0", 2, 5.0, 300.0, None)
    story.at(310.0, "role.started", "8.0", 0)
    story.words("8.0", 0, (330.0, 110), (370.0, 150), (390.0, 170))  # it does not say where it went on from
    run_dir = write(tmp_path / "runs" / RUN, {"w": lines(story.events)})
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.ingest_run(run_dir)
        (row,) = ledger.rows("SELECT * FROM outage")
        found = ledger.rows("SELECT kind, seconds FROM interval ORDER BY attempt_id, n")
    assert (row["category"], row["counted"], row["step"], row["resumed_from"]) == ("node_down", 1, 150, 100)
    # Onset: the last progress. Step 151 is a second of the 20 steps in 20 s after 370.
    times = ("onset_at", "detected_at", "decided_at", "running_at", "progress_at")
    assert [row[name] for name in times] == [200.0, 230.0, None, 310.0, 371.0]
    assert (row["lost_steps"], row["lost_seconds"]) == (50, 50.0)
    assert [tuple(one) for one in found] == [
        ("queued", 10.0),
        ("launching", 10.0),
        ("init", 30.0),
        ("productive", 100.0),
        ("lost", 50.0),
        ("unknown", 30.0),  # between the last word and the scheduler's
        ("chained", 225.0),
        ("queued", 70.0),
        ("launching", 10.0),
        ("unknown", 20.0),  # ten steps were done in it, nobody knows when
        ("recomputing", 40.0),
        ("provisional", 20.0),
        ("unknown", None),
    ]
